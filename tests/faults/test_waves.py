"""What fails in a wave of a snapshot is told once, by its real cause, with a remedy that fits it."""

from __future__ import annotations

from typing import Any

import pytest

from binlake.errors import AccessDenied, BinlakeError, ConnectionFailed, TableError
from binlake.phases.bootstrap import names_to_snapshot
from binlake.report import Report
from binlake.snapshot import snapshot as snapshots, waves
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from mirror import Mirror, on_mariadb, on_mysql
from servers import free_port


@pytest.fixture
def two(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Two tables, which are copied in one wave."""
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)")
    monkeypatch.setattr(snapshots, "_PAUSE", 0)
    return mirror


def failing(mirror: Mirror, executors: Endpoint, capsys: pytest.CaptureFixture[str]) -> tuple[BinlakeError, str]:
    """A snapshot whose chunks are copied by another endpoint than its control connection's: the error, and what the
    run said before."""
    with Source.open(mirror.endpoint) as source:
        task = snapshots.SnapshotTask(mirror.config, executors, source, mirror.metadata, Report(), 0)
        names = names_to_snapshot(mirror.config, source, mirror.metadata, None)
        with pytest.raises(BinlakeError) as caught:
            snapshots.snapshot(lambda why: mirror.spark, task, names)
    return caught.value, capsys.readouterr().err


@on_mysql
def test_a_password_that_the_executors_have_wrong(two: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    two.server.create_account("forgetful", "right", [f"SELECT ON `{two.database}`.*"])
    error, said = failing(two, Endpoint("127.0.0.1", two.server.port, "forgetful", "wr0ng"), capsys)
    assert isinstance(error, AccessDenied)
    assert "Access denied for user 'forgetful'" in error.message
    assert error.remedy.startswith("check the password")
    assert "wr0ng" not in str(error) + said
    assert "repeated" not in said


@on_mysql
def test_a_server_that_nothing_proves_to_the_executors(two: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    two.server.create_account("afar", "right", [f"SELECT ON `{two.database}`.*"])
    error, said = failing(two, Endpoint("0.0.0.0", two.server.port, "afar", "right"), capsys)
    assert "asks for the password itself (caching_sha2_password)" in error.message
    assert "allow_cleartext" in error.remedy
    assert "repeated" not in said


def test_a_grant_that_is_missing(two: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    two.server.create_account("empty_handed", "right", ["USAGE ON *.*"])
    error, _ = failing(two, Endpoint("127.0.0.1", two.server.port, "empty_handed", "right"), capsys)
    assert isinstance(error, AccessDenied)
    assert "SELECT command denied" in error.message
    assert "binlake help servers" in error.remedy


@on_mysql
def test_a_server_that_the_executors_dont_reach(two: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    error, said = failing(two, Endpoint("127.0.0.1", free_port(), "root", ""), capsys)
    assert isinstance(error, ConnectionFailed)
    assert "Communications link failure: ConnectException: Connection refused" in error.message
    assert "executors reach it" in error.remedy
    # the fourth failure is the run's own error, and isn't said as one more wave
    assert said.count("a wave failed and is repeated") == 3


@on_mysql
def test_a_task_that_fails_by_itself(
    two: Mirror, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the driver's jar isn't on the class path of the executors."""
    monkeypatch.setattr(waves.jdbc, "DRIVER", "com.example.Missing")
    error, _ = failing(two, two.endpoint, capsys)
    assert isinstance(error, waves.ChunkFailed)
    assert "ClassNotFoundException: com.example.Missing" in error.message
    assert "reach" not in error.remedy


@on_mariadb
def test_a_table_that_is_dropped_meanwhile(two: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    run_wave = waves.run_wave

    def dropped_before(*arguments: Any, **options: Any) -> None:
        two.execute("DROP TABLE IF EXISTS b")
        run_wave(*arguments, **options)

    monkeypatch.setattr(snapshots, "run_wave", dropped_before)
    with pytest.raises(TableError, match=r"\.b was dropped"):
        two.snapshot()
    assert two.watermark("a")["status"] == "following"
