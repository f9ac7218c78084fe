"""Attempts that failed: what is written down of them, and until when they are told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from binlake import config, pipeline
from binlake.cli import printing
from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, LeaseHeld, NoBinlog, SourceError, SparkNeeded, UsageError
from binlake.lease import lease
from binlake.lease.lease import Lease
from binlake.records import failures, missing_log, runs
from binlake.records.status import read_status
from binlake.report import Report
from binlake.source.connection import endpoint
from binlake.spark.starting import no_session
from binlake.store.metadata import now_us
from past import Past
from servers import free_port

YAML = """
source: {name: shop, connection: shop_mysql, server_id: 4001}
tables: {include: ["shop.*"]}
lake: {path: ./lake}
"""


@pytest.fixture
def past(tmp_path: Path) -> Past:
    file = tmp_path / "shop.yaml"
    file.write_text(YAML)
    return Past(config.load(file), now_us() - 60_000_000)


def attempt(config: PipelineConfig, error: Exception) -> None:
    @failures.noted("inner")
    def inner(_: PipelineConfig) -> None:
        raise error

    @failures.noted("outer")
    def outer(config: PipelineConfig) -> None:
        inner(config)

    with pytest.raises(type(error)):
        outer(config)


def noted(past: Past) -> list[tuple[str, str]]:
    rows = past.metadata.read("runs", where="kind = 'failed'")
    return [(next(iter(json.loads(row["phases"]))), row["message"]) for row in rows]


def test_what_fails_is_noted_once_where_it_came_from_and_without_values(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt(past.config, SourceError("before any lake"))
    assert not Path(past.config.root).exists()
    past.write()
    for passing in (LeaseHeld("wait"), SparkNeeded("ask"), UsageError("no")):
        attempt(past.config, passing)
    assert noted(past) == []
    attempt(past.config, ValueError("4711, topsecret"))
    assert noted(past) == [("inner", "unexpected ValueError; the log says more")]
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "binlake_shop_sync")
    monkeypatch.setenv("AIRFLOW_CTX_DAG_RUN_ID", "manual__1")
    began_us = now_us()
    attempt(past.config, SourceError("no route", remedy="fix it"))
    failures.note_death(past.metadata, "merge", began_us)
    failed = read_status(past.config).failed
    assert failed is not None
    assert (failed.run, failed.phase, failed.message) == (
        "binlake_shop_sync/manual__1", "inner", "no route\n  → fix it"
    )  # fmt: skip
    failures.note_death(past.metadata, "merge", now_us())
    assert len(noted(past)) == 3
    assert any(phase == "merge" and "died" in said for phase, said in noted(past))


def test_a_server_without_a_log_is_noted_whichever_step_saw_it(past: Past) -> None:
    seen = NoBinlog("no log", remedy="restart it", server="db", at_us=7_000_000)
    attempt(past.config, seen)
    assert not Path(past.config.root).exists()
    past.write()
    attempt(past.config, NoBinlog("no log", remedy="restart it", server="db", at_us=7_000_000))
    assert noted(past) == [("inner", "no log\n  → restart it")]
    last_seen = [
        missing_log.last_seen(past.metadata, *asked) for asked in (("db", 7_000_000), ("db", 7_000_001), ("d", 0))
    ]
    assert last_seen == [7_000_000, None, None]


@pytest.mark.parametrize("by", ["this process", "deltalake"])
def test_times_without_a_log_end(past: Past, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    past.write()
    if by == "deltalake":
        monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
    for at_us in (5, 6, 9):
        missing_log.note(past.metadata, NoBinlog("no log", remedy="restart it", server="db", at_us=at_us))
        missing_log.end_without_log(past.metadata, "db", 7)
    assert [row.at_us for row in missing_log.noted(past.metadata, "db") if row.ended_us is None] == [9]
    assert missing_log.last_seen(past.metadata, "db", 0) == 9
    assert len(missing_log.noted(past.metadata, "db")) == 3


def test_a_run_that_lost_its_lease_writes_nothing_down(past: Past) -> None:
    @failures.noted("merge")
    def step(held: Lease, config: PipelineConfig) -> None:
        past.metadata.swap("lease", "token IS NOT NULL", {"token": "of another"})
        raise SourceError("a file that the other run removed")

    past.write()
    with pytest.raises(LeaseHeld, match="lost its lease"), lease.held(past.metadata) as held:
        step(held, past.config)
    assert noted(past) == []


def test_a_failure_is_told_until_something_succeeds(past: Past) -> None:
    past.write()
    server = endpoint(host="127.0.0.1", port=free_port(), user="u", password="topsecret", extra={})
    with pytest.raises(BinlakeError):
        pipeline.sync(past.config, server, no_session, Report())
    status = read_status(past.config)
    assert status.failed is not None
    assert (status.failed.phase, "topsecret" in status.failed.message) == ("plan", False)
    assert status.last_run is not None
    assert status.last_run.batch == 3, "the last that succeeded"
    assert any(line.startswith("the last run failed in plan") for line in printing.status_lines(status, "?"))
    assert [run.kind for run in runs.newest(past.metadata, 2)] == ["failed", "sync"]
    look = {"at_us": now_us(), "head": "b.1:4", "files": 1, "bytes": 4}
    past.metadata.append("source_log", [{**look, "kind": "look"}, {**look, "kind": "planned"}])
    assert read_status(past.config).failed is not None, "a look is no run"
    past.metadata.append("source_log", [{**look, "kind": "nothing new"}])
    status = read_status(past.config)
    assert (status.failed, status.nothing_new_us) == (None, look["at_us"]), "a run found nothing new since"


def test_a_batch_tells_the_attempts_that_failed_while_it_was_open(past: Past) -> None:
    past.write()
    failures.note(past.metadata, "stage", "of no batch", now_us())
    row = {"run": "r", "kind": "failed", "batch": 3, "ended_us": 5, "outcome": "failed", "tables": "[]"}
    past.metadata.append("runs", [{**row, "phases": '{"merge": 1.5}', "message": "no space"}])
    batch = runs.of_batch(past.metadata, 3)
    assert batch is not None
    assert batch.run is not None
    assert [(failure.message, failure.phases) for failure in batch.failures] == [("no space", {"merge": 1.5})]
