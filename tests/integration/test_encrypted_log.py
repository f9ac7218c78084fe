"""A log that its server encrypts is followed through the server, which sends it in the clear; its files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake.cli import command_line
from binlake.doctor.server_checks import server_checks
from binlake.errors import CorruptEvent
from binlake.source.folder import Folder
from binlake.source.folder_log import FolderLog
from keyring import mysql_with_keyring
from mirror import Mirror
from servers import Server


def test_mysql_with_a_keyring(
    new_server: type[Server], lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """binlog_encryption is on from the start, off, on again; each change begins a file of the log."""
    with mysql_with_keyring(tmp_path), new_server("mysql", binlog_encryption=True) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (0)")
        mirror = Mirror(server, "d", lake, spark=None, reader="direct")  # type: ignore[arg-type]
        mirror.options = {"merge": {"without_spark_mb": 16}}
        mirror.snapshot()
        mirror.execute("INSERT INTO t VALUES (1)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (2)")
        mirror.sync()
        mirror.assert_equal("t")
        mirror.execute(
            "SET GLOBAL binlog_encryption = OFF",
            "INSERT INTO t VALUES (3)",
            "SET GLOBAL binlog_encryption = ON",
            "ALTER INSTANCE ROTATE BINLOG MASTER KEY",
            "INSERT INTO t VALUES (4)",
        )
        mirror.sync()
        mirror.assert_equal("t")
        assert mirror.verify().equal
        encrypted = [row[2] for row in server.execute("SHOW BINARY LOGS")]
        assert {"Yes", "No"} == set(encrypted)
        (check,) = [check for check in server_checks(mirror.endpoint) if check.name == "binlog_encryption"]
        assert check.ok is True
        with pytest.raises(CorruptEvent, match="encrypted") as refused:
            FolderLog(Folder(server.datadir)).head()
        assert "through its server" in refused.value.remedy
        newest = max(server.datadir.glob("binlog.0*"))
        assert command_line.run(["binlog", newest.as_uri()]) == 3
        assert "the file is encrypted" in capsys.readouterr().err
