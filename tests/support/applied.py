"""Binlog files applied to a server: by mysqlbinlog and MySQL's client, or as a relay log of MariaDB's."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from servers import Kind, Server, Setting, program

AS_REPLICA: dict[Kind, dict[str, Setting]] = {
    "mysql": {},
    # What is staged doesn't tell that a column is COMPRESSED: a conversion, to MariaDB.
    "mariadb": {"relay_log": "mysqld-relay-bin", "slave_type_conversions": "ALL_NON_LOSSY"},
}
"""Settings of a server that applies."""


def apply_by_mysqlbinlog(target: Server, *files: Path) -> None:
    printed = subprocess.run(
        [*program("mysql", "mysqlbinlog"), "--no-defaults", "--verify-binlog-checksum", *map(str, files)],
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert not printed.stderr, printed.stderr.decode()
    client = [*program("mysql", "mysql"), "--no-defaults", "-uroot", f"-S{target.socket}", "--binary-mode"]
    applied = subprocess.run(client, input=printed.stdout, capture_output=True, timeout=120)
    assert applied.returncode == 0, applied.stderr.decode()


def apply_as_relay_log(target: Server, *files: Path) -> None:
    """Files of one numbering from 1 on; their ROTATE events, which are another server's, are stepped over."""
    listed = [target.datadir / f"mysqld-relay-bin.{number:06d}" for number in range(1, len(files) + 1)]
    for relayed, file in zip(listed, files, strict=True):
        relayed.write_bytes(file.read_bytes())
    (target.datadir / "mysqld-relay-bin.index").write_text("".join(f"./{relay_log.name}\n" for relay_log in listed))
    relayed = listed[0]
    target.execute(
        f"CHANGE MASTER TO MASTER_HOST = 'nowhere', RELAY_LOG_FILE = '{relayed.name}', RELAY_LOG_POS = 4",
        "START SLAVE SQL_THREAD",
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with target.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW SLAVE STATUS")
            names = [column[0] for column in cursor.description or ()]
            status = dict(zip(names, (cursor.fetchall() or ((),))[0], strict=True))
        assert not int(status["Last_SQL_Errno"]), status["Last_SQL_Error"]
        if "read all relay log" in (status["Slave_SQL_Running_State"] or ""):  # None before its thread runs
            return
        time.sleep(0.1)
    raise AssertionError(f"the relay log wasn't applied: {status}")


def apply(target: Server, *files: Path) -> None:
    if target.kind == "mysql":
        apply_by_mysqlbinlog(target, *files)
    else:
        apply_as_relay_log(target, *files)
