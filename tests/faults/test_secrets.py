"""What must not be told: passwords to nobody, values of rows to no log, staged rows to no other account."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_home import ProcessWatch
from binlake.binlog.reader import read
from binlake.errors import BinlakeError
from binlake.planner.manifest import Manifest
from binlake.schema.invalid import FAIL
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from binlake.staging.staged_files import stage_slice, write_manifest
from binlake.storage import files
from binlog_slices import SERVER_ID, from_server, written
from mirror import SHORT_LIVED, Mirror
from servers import Server, free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD = "Geheimwort7f3a"
VALUE = "Zeilenwert9b1c"

TWO_SYNCS = """
import sys
from binlake.cli import command_line
for _ in range(2):
    print("ended with", command_line.run(["sync", "--config", sys.argv[1]]), flush=True)
    input()
"""


def endpoint(port: int) -> Endpoint:
    return Endpoint("127.0.0.1", port, "keeper", PASSWORD)


@pytest.fixture
def keeper(server: Server) -> Iterator[str]:
    """The URI of an account whose password is recognised anywhere."""
    server.create_account("keeper", PASSWORD, ["ALL ON *.*"])
    yield server.uri("keeper", PASSWORD)
    server.execute("DROP USER keeper")


def failures(server: Server) -> Iterator[BinlakeError]:
    """What a server says that is down, that knows another password, that has no such table, that went away."""
    with pytest.raises(BinlakeError) as down:
        Source.open(endpoint(free_port()))
    yield down.value
    with pytest.raises(BinlakeError) as denied:
        Source.open(Endpoint("127.0.0.1", server.port, "keeper", PASSWORD + "wrong"))
    yield denied.value
    with Source.open(endpoint(server.port)) as source:
        with pytest.raises(BinlakeError) as unknown:
            source.query("SELECT * FROM nowhere.t")
        yield unknown.value
        server.execute(f"KILL {source.connection_id}")
        with pytest.raises(BinlakeError) as gone:
            source.now()
        yield gone.value


def test_no_error_no_traceback_and_no_repr_holds_the_password(server: Server, keeper: str) -> None:
    for error in failures(server):
        shown = "".join(traceback.format_exception(error))
        assert "keeper" in shown or str(server.port) in shown or "127.0.0.1" in shown
        for text in (shown, str(error), repr(error), repr(error.__dict__)):
            assert PASSWORD not in text
        assert PASSWORD.encode() not in pickle.dumps(error)  # as Spark's workers send it
    with Source.open(endpoint(server.port)) as source:
        for holder in (source, source.transport(SERVER_ID), source.endpoint):
            assert PASSWORD not in repr(holder)


def modes(folder: Path) -> set[tuple[str, int]]:
    return {
        ("folder" if path.is_dir() else "file", stat.S_IMODE(path.stat().st_mode))
        for path in (folder, *folder.rglob("*"))
    }


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
def test_staged_rows_are_their_owners_alone(server: Server, database: str, lake: Path) -> None:
    with written(server) as made:
        server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    staging = lake / "tests" / "_staging"
    items = read(from_server(server), made.part, lambda schema, table: schema == database)
    staged = stage_slice(items, made.part, 0, str(staging / "1" / "attempt"), FAIL)
    write_manifest(str(staging / "1" / "attempt"), Manifest(1, "attempt", (staged,)))
    files.make_private_folder(str(staging / "snapshot"))
    assert staged.files
    assert modes(staging) == {("folder", 0o700), ("file", 0o600)}
    # Tables are for their readers.
    assert stat.S_IMODE(staging.parent.stat().st_mode) == 0o755


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_runs_that_fail_tell_neither_password_nor_rows(mirror: Mirror, keeper: str, spark: SparkSession) -> None:
    """By an invalid date, by rows that the log has as statements only, by a constraint that somebody added."""
    mirror.options = {"policies": {"tables": {"*.told": {"on_unfollowable": "stop"}}}}
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE dated (id INT PRIMARY KEY, note VARCHAR(40), d DATE)",
        "CREATE TABLE told (id INT PRIMARY KEY, note VARCHAR(40))",
        "CREATE TABLE guarded (id INT PRIMARY KEY, note VARCHAR(40))",
        "INSERT INTO told VALUES (1, '')",
        "INSERT INTO guarded VALUES (1, '')",
    )
    mirror.sync()
    spark.sql(f"ALTER TABLE delta.`{mirror.path('guarded')}` ADD CONSTRAINT short CHECK (LENGTH(note) < 5)")
    mirror.execute(
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', binlog_format = 'STATEMENT'",
        f"UPDATE told SET note = '{VALUE}'",
        "SET SESSION binlog_format = 'ROW'",
        f"INSERT INTO dated VALUES (1, '{VALUE}', '2024-02-30')",
    )
    environment = {**os.environ, **SHORT_LIVED, "AIRFLOW_CONN_TESTS": keeper}
    with (
        ProcessWatch(PASSWORD) as watch,
        subprocess.Popen(
            [sys.executable, "-c", TWO_SYNCS, str(mirror.write_yaml())], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process,
    ):  # fmt: skip
        deadline = threading.Timer(240, process.kill)
        deadline.start()
        first = _until_ended(process)
        mirror.execute(f"INSERT INTO guarded VALUES (2, '{VALUE}')")
        print(file=process.stdin, flush=True)
        second = _until_ended(process)
        process.communicate("\n")
        deadline.cancel()
    assert "ended with 3" in first
    assert "told stopped" in first
    assert "dated, " in first
    assert "ended with 3" in second
    assert "guarded failed" in second
    assert watch.jobs_seen
    assert not watch.leaks
    assert PASSWORD not in first + second
    assert VALUE not in first + second
    for name in ("runs", "batches", "lease", "watermarks", "ddl_history", "quarantine", "schemas"):
        # The quarantine keeps the bytes of the event that stopped a table: they are what it is for.
        kept = repr([{key: value for key, value in row.items() if key != "raw"} for row in mirror.metadata.read(name)])
        assert PASSWORD not in kept, name
        assert VALUE not in kept, name
    holding = [path for path in mirror.folder.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert holding == []
    assert modes(Path(mirror.config.staging_path())) == {("folder", 0o700), ("file", 0o600)}


def _until_ended(process: subprocess.Popen[str]) -> str:
    """What it says until a sync has ended."""
    said = ""
    stream: Any = process.stdout
    while "ended with" not in said:
        line = stream.readline()
        assert line, said
        said += line
    return said
