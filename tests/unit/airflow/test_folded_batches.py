"""Batches of a source that is followed are one line between two other events, so that those stay to be seen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_page import add, get, viewer
from binlake import config
from binlake.records import thinning
from binlake.records.decisions import Reason, note
from binlake.store.metadata import now_us
from binlake_airflow.page.events import events
from past import HOUR, Past

SECOND = 1_000_000
DAY = 24 * HOUR
FOLLOWED = "follow: {every: 1s}\n"


def followed(folder: Path, extra: str = FOLLOWED) -> Past:
    """A source with one batch, of 40 days ago."""
    past = replace(add(folder), batches=1, now_us=now_us() - 40 * DAY).write()
    with (folder / "shop.yaml").open("a") as file:
        file.write(extra)
    return replace(past, config=config.load(folder / "shop.yaml"))


@pytest.fixture
def past(folder: Path) -> Past:
    return followed(folder)


def record(past: Past, times: list[int], table: str = "shop.table_0001") -> None:
    """Record batches from number 2 on, each of three rows."""
    did = {"table": table, "status": "following", "inserted": 3, "updated": 0, "deleted": 0, "seconds": 0.1}
    past.metadata.append("runs", [
        {
            "run": f"f{number}", "kind": "sync", "batch": number, "started_us": at_us - SECOND // 2, "ended_us": at_us,
            "outcome": "recorded", "tables": json.dumps([did]), "phases": "{}", "mutations": 3, "message": f"m{number}",
        }
        for number, at_us in enumerate(times, 2)
    ])  # fmt: skip


def stop(past: Past, at_us: int, table: str = "table_0001") -> None:
    row = {"batch": 1, "database": "shop", "table": table, "file": "b.1", "offset": at_us % 97, "reason": "why"}
    past.metadata.append("quarantine", [{**row, "at_us": at_us}])


def lines(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """Title, and the rows of batches that are one line, else the message."""
    told = ((event["title"], event["what"], event["rows"], event["since_us"]) for event in answer["events"])
    return [
        (title, f"{rows:,} rows" if since_us and rows is not None else what) for title, what, rows, since_us in told
    ]


def noon(days_ago: int = 0) -> int:
    return (now_us() // DAY - days_ago) * DAY + DAY // 2


def test_batches_between_two_events_are_one_line(past: Past) -> None:
    begun = noon(1)
    record(past, [begun + at * SECOND for at in range(1000)])
    stop(past, begun + 123 * SECOND + 1)
    answer = events(past.config, None, None, 50)
    assert lines(answer) == [
        ("876 batches", "2,628 rows"), ("table stopped", "why"), ("124 batches", "372 rows")
    ]  # fmt: skip
    oldest = answer["events"][-1]
    assert (oldest["since_us"], oldest["at_us"], oldest["batch"]) == (begun, begun + 123 * SECOND, None)
    assert answer["earlier_us"] is not None
    (first,) = events(past.config, None, answer["earlier_us"], 50)["events"]
    assert first["title"] == "sync"
    assert first["what"].startswith("batch 1: "), "one alone is told as it always is"


def test_a_stop_of_a_week_ago_stays_to_be_seen(past: Past) -> None:
    times = [noon(day) + at * SECOND for day in range(6, 0, -1) for at in range(200)]
    record(past, times)
    stop(past, noon(6) - SECOND)
    answer = events(past.config, None, None, 50)
    assert lines(answer) == [*[("200 batches", "600 rows")] * 6, ("table stopped", "why")]


def test_each_batch_and_each_event_is_on_one_page(past: Past) -> None:
    begun = noon(3)
    record(past, [begun + at * SECOND for at in range(90)])
    stops = [begun + at * 10 * SECOND + 1 for at in range(9)] + [begun - 20 * DAY, begun - 30 * DAY]
    for at_us in stops:
        stop(past, at_us)
    seen: list[dict[str, Any]] = []
    before: int | None = None
    for _ in range(20):
        answer = events(past.config, None, before, 3)
        seen += answer["events"]
        before = answer["earlier_us"]
        if before is None:
            break
    assert before is None
    assert sorted(event["at_us"] for event in seen if event["kind"] == "stop") == sorted(stops)
    spans = [(event["since_us"] or event["at_us"], event["at_us"]) for event in seen if event["kind"] == "run"]
    carried = [begun + at * SECOND for at in range(90)]
    assert [sum(since <= at <= until for since, until in spans) for at in carried] == [1] * 90


def test_batches_are_counted_that_the_upkeep_put_together(past: Past) -> None:
    begun = noon(1)
    record(past, [begun + at * SECOND for at in range(300)])
    assert thinning.thin_runs(past.metadata, begun + HOUR) == 299
    record_later = {"kind": "sync", "run": "x", "outcome": "recorded", "tables": "[]", "phases": "{}", "mutations": 0}
    past.metadata.append("runs", [{**record_later, "batch": 302, "started_us": 1, "ended_us": begun + HOUR}])
    assert lines(events(past.config, None, None, 50))[0] == ("301 batches", "900 rows")


def test_batches_are_listed_one_by_one_where_that_is_asked(past: Past) -> None:
    begun = noon(1)
    record(past, [begun + at * SECOND for at in range(5)])
    listed = events(past.config, "batch", begun + 3 * SECOND, 2)
    assert [event["batch"] for event in listed["events"]] == [4, 3]
    assert [title for title, _ in lines(events(past.config, "run", None, 50))] == ["5 batches"]
    assert events(past.config, "stop", None, 50)["events"] == []


@pytest.mark.parametrize(("every_us", "titles"), [(SECOND, ["10 batches"]), (HOUR, ["sync"] * 10)])
def test_without_follow_in_the_yaml_batches_are_folded_where_they_come_by_the_second(
    folder: Path, every_us: int, titles: list[str]
) -> None:
    past = followed(folder, "")
    begun = noon(2)
    past.metadata.replace("runs", "true", [])
    record(past, [begun + at * every_us for at in range(10)])
    assert [title for title, _ in lines(events(past.config, None, None, 10))] == titles


def test_of_one_table_what_concerns_it(server: Any, folder: Path, past: Past) -> None:
    name, other = past.names[1], past.names[2]
    begun = noon(1)
    record(past, [begun + at * SECOND for at in range(4)])
    past.metadata.append("runs", [
        {"run": "v", "kind": "verify", "batch": 1, "started_us": begun + at, "ended_us": begun + at + 2, "tables": "[]",
         "phases": "{}", "message": message}
        for at, message in ((100, "of both"), (200, "of the other"))
    ])  # fmt: skip
    compared = {"database": "shop", "batch": 1, "chunks": 1, "source_rows": 1, "seconds": 1.0, "equal": True}
    past.metadata.append("verifications", [
        {**compared, "table": table.table, "at_us": begun + at}
        for table, at in ((name, 101), (other, 101), (other, 201))
    ])  # fmt: skip
    for table in (name, other):
        stop(past, begun - SECOND, table.table)
        note(past.metadata, "pause", Reason("ada", table.table), database="shop", table=table.table)
    user = viewer(server)
    for table, compared_in in ((name, ["of both"]), (other, ["of the other", "of both"])):
        answer = get(user, f"sources/shop/events?table={table}")
        by_kind = {kind: [event for event in answer["events"] if event["kind"] == kind] for kind in (
            "stop", "decision", "verify", "run")}  # fmt: skip
        assert [event["tables"] for event in by_kind["stop"]] == [[str(table)]]
        assert [event["why"] for event in by_kind["decision"]] == [table.table]
        assert [event["what"] for event in by_kind["verify"]] == compared_in
        assert ("batches" in [event["title"] for event in by_kind["run"]]) == (table == name)
    assert "no table 'shop.nowhere'" in get(user, "sources/shop/events?table=shop.nowhere", 404)["detail"]
