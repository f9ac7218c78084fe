"""binlake status, as people and programs read it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from binlake.cli import command_line
from binlake.records.record import log_noted
from binlake.store.metadata import Metadata, now_us
from mirror import Mirror


def status(mirror: Mirror, *options: str) -> int:
    return command_line.run(["status", "--config", str(mirror.write_yaml()), *options])


@pytest.fixture
def standing(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Two tables that follow, one that nobody snapshotted, and log beyond them."""
    monkeypatch.setenv("AIRFLOW_CONN_TESTS", mirror.server.uri())
    mirror.execute("CREATE TABLE orders (id INT PRIMARY KEY)", "CREATE TABLE items (id INT PRIMARY KEY)")
    mirror.snapshot()
    mirror.execute("CREATE TABLE later (id INT PRIMARY KEY, v TEXT)")
    mirror.execute("INSERT INTO later VALUES (1, REPEAT('x', 5000))")
    return mirror


def test_status_of_tables_and_log(standing: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(standing) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    assert "MB behind" in said
    assert "tables: 2 following, 1 new" in said

    def shown(*options: str) -> dict[str, Any]:
        assert status(standing, "--json", *options) == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    assert 5000 < shown()["bytes_ahead"] < 10_000
    assert [row["table"] for row in shown("--state", "new")["tables"]] == [f"{standing.database}.later"]
    assert [row["table"] for row in shown("--tables", "*.o*")["tables"]] == [f"{standing.database}.orders"]
    standing.sync()
    assert shown()["bytes_ahead"] == 0
    # What the server said of its log is in metadata, for who doesn't ask it.
    seen = log_noted(Metadata(standing.config.metadata_path("").rstrip("/")))
    assert seen is not None
    assert (seen.head, seen.bytes_ahead, seen.files >= 1) == (shown()["head"], 0, True)
    seconds = standing.server.execute("SELECT @@GLOBAL.binlog_expire_logs_seconds")[0][0]
    assert seen.kept_hours == (seconds / 3600 or None)
    assert abs(seen.at_us - now_us()) < 600_000_000
    assert shown("--state", "new")["tables"] == []


def test_status_needs_no_server(
    standing: Mirror, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_TESTS")
    assert status(standing) == 0
    said = capsys.readouterr().out
    assert "how far behind isn't known:" in said
    assert "tables: 2 following\n" in said
