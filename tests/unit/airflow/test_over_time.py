"""What happened to a source: its charts, and the list of all events."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from deltalake import DeltaTable

from airflow_page import add
from binlake import config
from binlake.lease import lease
from binlake.records import failures
from binlake.records.decisions import Reason, note
from binlake.records.record import note_log
from binlake.source.ahead import LogSeen
from binlake.store.metadata import Metadata, now_us
from binlake_airflow.page.events import events
from binlake_airflow.page.over_time import SPANS, over_time
from drawn import drawn, said
from past import HOUR, Past

MINUTE = HOUR // 60


@pytest.fixture
def past(folder: Path) -> Past:
    with_limits = replace(add(folder), batches=30).write()
    with (folder / "shop.yaml").open("a") as file:
        file.write("airflow: {lag_minutes: 90, retention_hours: 5}\n")
    return replace(with_limits, config=config.load(folder / "shop.yaml"))


def words_by_chart(past: Past, span: Any) -> dict[str, list[str]]:
    """What each chart says of its periods, by the chart's name."""
    answer = over_time(past.config, span, 640)
    periods = {chart["name"]: said(drawn(chart["svg"])) for chart in answer["charts"]}
    assert all(len(words) == SPANS[answer["span"]][1] for words in periods.values())
    return {name: [period.split(": ", 1)[1] for period in words] for name, words in periods.items()}


def test_a_day_of_hourly_runs(past: Past) -> None:
    by_chart = words_by_chart(past, "day")
    assert list(by_chart) == ["lag", "rows", "phases", "events"], "how long the server keeps its log isn't known"
    recorded = [words for words in by_chart["rows"] if words != "inserted 0, updated 0, deleted 0"]
    assert len(recorded) == 24
    assert recorded[-1] == "inserted 60, updated 2, deleted 0"
    assert [words for words in by_chart["phases"] if "merge 3.25 s" in words][-1] == (
        "plan 0.1 s, stage 1.5 s, merge 3.25 s, waiting 15.2 s"
    )
    most = [words for words in by_chart["lag"] if words.startswith("behind by 60.")]
    assert len(most) >= 22, "an hour, and the 20 seconds of a run"
    assert {*by_chart["events"]} == {"syncs 1", "nothing"}
    assert over_time(past.config, "day", 640)["empty"] == ["Headroom"], "it takes no room"


def test_longer_spans_sum_up(past: Past) -> None:
    rows = words_by_chart(past, "month")["rows"]
    counts = [int(words.split(",")[0].removeprefix("inserted ").replace(",", "")) for words in rows]
    assert sum(counts) == sum(table.inserted for batch in range(1, 31) for table in past.did(batch))
    assert sum(count > 0 for count in counts) in (5, 6)
    assert words_by_chart(past, "week")["lag"][0] == "behind by not known", "before the first batch"


def test_what_a_look_at_the_server_says(past: Past) -> None:
    now = now_us()
    for minutes, hours in ((100, 3.0), (20, 2.0)):
        seen = LogSeen(now - minutes * MINUTE, "binlog.000001:9", 0, "binlog.000001", 1, 9, hours)
        note_log(past.metadata, seen, batch=30)
    carried = {"updated_us": now - 110 * MINUTE, "planned_us": now - 111 * MINUTE}
    past.metadata.replace("batches", "batch >= 28", [past.batch(30) | carried])
    by_chart = words_by_chart(past, "hour")
    assert by_chart["lag"][-1] == "behind by 0 s", "nothing was there 20 minutes ago"
    assert by_chart["lag"][0] == "behind by 0 s", "nor since the batch"
    assert by_chart["headroom"][-1].startswith("kept for 100 min")
    looks = {chart["name"]: chart["looks"] for chart in over_time(past.config, "hour", 640)["charts"]}
    assert looks["headroom"] == {"limit 5 h": "limit"}
    assert looks["lag"] == {"limit 90 min": "limit"}


def test_a_look_before_the_span_says_what_it_begins_with(past: Past) -> None:
    now = now_us()
    for minutes in (63, 53):
        note_log(past.metadata, LogSeen(now - minutes * MINUTE, "binlog.000001:9", 0, None, 0, 0, 3.0), batch=30)
    carried = {"updated_us": now - 110 * MINUTE, "planned_us": now - 111 * MINUTE}
    past.metadata.replace("batches", "batch >= 28", [past.batch(30) | carried])
    lag = words_by_chart(past, "hour")["lag"]
    assert {*lag} == {"behind by 0 s"}, "from look to look, and not since the batch"


def test_the_lakes_size_is_a_line_from_upkeep_to_upkeep(past: Past) -> None:
    """A table of before the span, one that is gone within it, and what grew half an hour ago."""
    now, row = now_us(), {"database": "shop", "files": 2}
    past.metadata.append("lake_sizes", [
        {**row, "table": "a", "bytes": 1_000, "at_us": now - 40 * 24 * HOUR},
        {**row, "table": "a", "bytes": 500_000, "at_us": now - 30 * HOUR},
        {**row, "table": "b", "bytes": 1_000_000, "at_us": now - 10 * HOUR},
        {**row, "table": "b", "bytes": 0, "files": 0, "at_us": now - 5 * HOUR},
        {**row, "table": "a", "bytes": 2_000_000, "files": 3, "at_us": now - 30 * MINUTE},
    ])  # fmt: skip
    day = words_by_chart(past, "day")
    assert list(dict.fromkeys(day["size"])) == ["size 500 kB", "size 1.5 MB", "size 2 MB"]
    assert list(dict.fromkeys(day["files"])) == ["files 2", "files 4", "files 3"]
    assert set(words_by_chart(past, "hour")["size"]) == {"size 500 kB", "size 2 MB"}
    assert words_by_chart(past, "month")["size"][0] == "size 1 kB"


def test_charts_of_a_year_read_no_more_than_they_show(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    past = replace(add(folder), tables=1000, batches=8760, changed=20).write(commits=12)
    for span in ("hour", "day"):
        over_time(past.config, span, 640)
    rows: dict[str, int] = {}
    reads = Metadata.read, Metadata.read_columns

    def counted(at: int) -> Any:
        def read(self: Metadata, name: str, *asked: Any, **chosen: Any) -> Any:
            result = reads[at](self, name, *asked, **chosen)
            rows[name] = rows.get(name, 0) + len(result)
            return result

        return read

    monkeypatch.setattr(Metadata, "read", counted(0))
    monkeypatch.setattr(Metadata, "read_columns", counted(1))
    past.metadata.append("runs", [{**past.run(8760), "batch": 8761, "run": "new", "ended_us": now_us()}])
    over_time(past.config, "day", 640)
    assert rows["runs"] <= 2 + 1 + 1, "those since what was counted, and the status's own"
    assert rows["batches"] <= 25 + 1 + 2
    over_time(past.config, "month", 640)
    assert rows["batches"] <= 28 + 31 * 24 + 2
    rows.clear()
    events(past.config, None, None, 8)
    assert sum(rows.values()) <= 8


def test_all_events_stand_in_one_list(past: Past) -> None:
    now = now_us()
    failures.note(past.metadata, "merge", "no space is left\n  → make some", now - 9_000_000)
    note(past.metadata, "pause", Reason("ada", "its rows move"), database="shop", table="table_0001", batch=30)
    statement = {
        "batch": 30, "file": "binlog.000001", "offset": 7, "database": "shop", "statement": "DROP TABLE a, b",
        "kind": "DROP TABLE", "action": "followed", "committed_us": now + HOUR,
    }  # fmt: skip
    past.metadata.append("ddl_history", [{**statement, "table": table} for table in ("a", "b")])
    past.metadata.append("quarantine", [{
        "batch": 30, "database": "shop", "table": "table_0002", "file": "binlog.000001", "offset": 9,
        "reason": "no such type", "remedy": "fix it", "raw": b"topsecret", "at_us": now + 2 * HOUR,
    }])  # fmt: skip
    past.metadata.append("runs", [{
        "run": "v", "kind": "verify", "batch": 30, "started_us": now, "ended_us": now + 3 * HOUR, "tables": "[]",
        "phases": "{}", "message": "all tables are equal",
    }])  # fmt: skip
    newest = events(past.config, None, None, 6)["events"]
    assert "topsecret" not in json.dumps(newest)
    assert [(event["kind"], event["title"]) for event in newest] == [
        ("verify", "verify"), ("stop", "table stopped"), ("ddl", "DROP TABLE, followed"), ("decision", "pause"),
        ("failed", "merge failed"), ("run", "sync"),
    ]  # fmt: skip
    assert (newest[1]["tables"], newest[1]["place"], newest[1]["remedy"]) == (
        ("shop.table_0002",), "binlog.000001:9", "fix it"
    )  # fmt: skip
    assert newest[2]["tables"] == ("shop.a", "shop.b")
    assert [event["look"] for event in newest] == [None] * 6
    assert (newest[3]["who"], newest[3]["why"]) == ("ada", "its rows move")
    assert (newest[4]["what"], newest[4]["remedy"]) == ("no space is left", "make some")
    assert [event["batch"] for event in events(past.config, "run", None, 3)["events"]] == [30, 29, 28]
    older = events(past.config, None, newest[-1]["at_us"], 2)["events"]
    assert [event["batch"] for event in older] == [29, 28]
    assert lease.read(past.metadata).open is None


def test_statements_of_one_second_stand_on_one_page(past: Past) -> None:
    """A migration of many tables: MariaDB's log tells the second of each statement, and no more."""
    second = now_us() // 1_000_000 * 1_000_000
    statement = {
        "batch": 30, "file": "binlog.000001", "database": "shop", "kind": "CREATE TABLE", "action": "followed",
        "statement": "CREATE TABLE …",
    }  # fmt: skip
    past.metadata.append("ddl_history", [
        {**statement, "offset": offset, "table": f"t{offset}", "committed_us": second - (offset < 2) * 1_000_000}
        for offset in range(12)
    ])  # fmt: skip
    page = events(past.config, "ddl", None, 5)["events"]
    assert sorted(event["tables"] for event in page) == sorted((f"shop.t{offset}",) for offset in range(2, 12))
    older = events(past.config, "ddl", page[-1]["at_us"], 5)["events"]
    assert sorted(event["tables"] for event in older) == [("shop.t0",), ("shop.t1",)]


def test_a_comparison_is_seen_once_it_is_written(past: Past) -> None:
    """Though the same process has read the table before, whose files the upkeep may have put together since."""
    row = {"database": "shop", "at_us": now_us(), "equal": True, "chunks": 1, "source_rows": 1, "seconds": 1.0}
    for tables in (1, 2):
        past.metadata.append("verifications", [{**row, "table": f"t{tables}"}])
        (day,) = over_time(past.config, "day", 640)["compared"]
        assert day["equal"] == tables
    DeltaTable(past.metadata.location("verifications")).optimize.compact()
    DeltaTable(past.metadata.location("verifications")).vacuum(0, dry_run=False, enforce_retention_duration=False)
    (day,) = over_time(past.config, "day", 640)["compared"]
    assert day["equal"] == 2


def test_a_comparison_that_found_a_difference_is_red_in_the_list_on_the_chart_and_on_the_calendar(past: Past) -> None:
    now = now_us() - 10_000_000
    run = {"batch": 3, "tables": "[]", "phases": "{}", "message": "1 of 2 tables equal"}
    past.metadata.append("runs", [
        {**run, "run": "v", "kind": "verify", "started_us": now - 9, "ended_us": now},
        {**run, "run": "w", "kind": "verify", "started_us": now + 20, "ended_us": now + 30},
        {**run, "run": "r", "kind": "repair", "started_us": now + 40, "ended_us": now + 50},
    ])  # fmt: skip
    row = {"database": "shop", "batch": 3, "chunks": 1, "source_rows": 1, "seconds": 1.0}
    found = {**row, "table": "b", "equal": False, "differing": 1, "differing_rows": 6}
    past.metadata.append("verifications", [
        {**found, "at_us": now - 1}, {**row, "table": "a", "equal": True, "at_us": now - 1},
        {**row, "table": "b", "equal": True, "at_us": now + 25},
        {**found, "at_us": now + 45}, {**found, "at_us": now + 46, "equal": True},
    ])  # fmt: skip
    compared = events(past.config, "verify", None, 5)["events"]
    assert [(event["title"], event["look"], event["tables"]) for event in compared] == [
        ("repair", "warn", ("shop.b",)), ("verify", None, ()), ("verify", "bad", ("shop.b",))
    ]  # fmt: skip
    drawn = over_time(past.config, "hour", 640)
    (lanes,) = [chart["svg"] for chart in drawn["charts"] if chart["name"] == "events"]
    assert "mark event-differing" in lanes
    (day,) = [day for day in drawn["compared"] if day["differing"]]
    assert day["found"] == ({"table": "shop.b", "differing_rows": 6},)


def test_the_days_on_which_tables_were_compared(past: Past) -> None:
    day = 24 * HOUR
    today = now_us() // day * day
    row = {"database": "shop", "chunks": 4, "source_rows": 400, "seconds": 2.0, "differing": 0}
    looked = {"looked_chunks": 1, "looked_rows": 100}
    past.metadata.append("verifications", [
        {**row, "table": "a", "at_us": today - day, "equal": True},
        {**row, "table": "a", "at_us": today - day + 5, "equal": False, "differing": 1},
        {**row, **looked, "table": "b", "at_us": today - day, "equal": True},
        {**row, "table": "b", "at_us": today + 7, "equal": None},
        {**row, "table": "a", "at_us": today + 7, "equal": True},
        {**row, "table": "a", "at_us": today - 200 * day, "equal": True},
    ])  # fmt: skip
    before, now = over_time(past.config, "day", 640)["compared"]
    counts = ("equal", "differing", "not_compared", "rows", "chunks", "seconds")
    assert [before[name] for name in counts] == [1, 1, 0, 900, 9, 6.0]
    assert [now[name] for name in counts] == [1, 0, 1, 800, 8, 4.0]


def test_the_span_fits_what_is_known(folder: Path) -> None:
    past = add(folder)
    assert over_time(past.config, None, 640)["span"] == "day", "nothing is known yet"
    for batches, ago, span in ((1, 0, "hour"), (30, 0, "day"), (30, 30, "week"), (30, 300, "month")):
        made = replace(add(folder, f"s{batches}_{ago}"), batches=batches, now_us=now_us() - ago * HOUR - MINUTE).write()
        assert over_time(made.config, None, 640)["span"] == span
    assert over_time(made.config, "hour", 640)["span"] == "hour"


def test_lanes_are_of_what_happened_and_a_sync_that_found_nothing_is_one(past: Past) -> None:
    now = now_us()
    past.metadata.append("runs", [{
        "run": "b", "kind": "bootstrap", "started_us": now - 9, "ended_us": now - 3 * HOUR - 30 * MINUTE,
        "tables": "[]", "phases": "{}", "message": "9 rows of 1 table", "mutations": 9, "bytes": 7,
    }])  # fmt: skip
    seen = LogSeen(now - 5 * HOUR - 30 * MINUTE, "binlog.000001:9", 0, None, 0, 0, 3.0)
    note_log(past.metadata, replace(seen, at_us=seen.at_us - HOUR), 30, "nothing new")
    note_log(past.metadata, seen, 30)
    words = words_by_chart(past, "day")["events"]
    assert [text for text in words if text != "syncs 1"].count("nothing") == 96 - 24 - 2, "a look is no sync"
    assert sum("snapshots 1" in text for text in words) == 1


def test_times_and_days_are_those_of_the_zone(past: Past) -> None:
    """A day that isn't over in New York."""
    zone = ZoneInfo("America/New_York")
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    row = {"database": "shop", "table": "a", "equal": True, "chunks": 1, "source_rows": 1, "seconds": 1.0}
    past.metadata.append("verifications", [{**row, "at_us": round(midnight.timestamp() * 1e6) + MINUTE}])
    days = [over_time(past.config, "day", 640, zone)["compared"][0]["day"] for zone in (UTC, zone)]
    assert days == [f"{midnight:%Y-%m-%d}", f"{midnight - timedelta(days=1):%Y-%m-%d}"]
    chart = over_time(past.config, "hour", 640, zone)["charts"][0]
    assert said(drawn(chart["svg"]))[0].startswith(f"{datetime.now(zone) - timedelta(minutes=59):%H:%M} to ")


def test_syncs_that_found_nothing_are_one_line_between_others(past: Past) -> None:
    """Newest first: two since the newest batch, one before it; a look of the limits' task is none."""
    newest = past.run(30)["ended_us"]
    seen = LogSeen(0, "binlog.000001:9", 0, None, 0, 0, 3.0)
    for at_us in (newest - 20 * MINUTE, newest + MINUTE // 2, newest + 2 * MINUTE):
        past.metadata.append("source_log", [{**asdict(seen), "at_us": at_us, "batch": 30, "kind": "nothing new"}])
    past.metadata.append("source_log", [{**asdict(seen), "at_us": newest + MINUTE, "batch": 30, "kind": "look"}])
    page = events(past.config, None, None, 4)
    told = [(event["title"], event["what"], event["batch"], event["rows"]) for event in page["events"]]
    assert told == [
        ("2 syncs", "nothing new", None, None), ("sync", past.run(30)["message"], 30, 62),
        ("sync", "nothing new", None, None), ("sync", past.run(29)["message"], 29, past.run(29)["mutations"]),
    ]  # fmt: skip
    assert page["events"][0]["since_us"] == newest + MINUTE // 2
    older = events(past.config, None, page["earlier_us"], 4)["events"]
    assert [event["batch"] for event in older] == [28, 27, 26, 25], "none is shown twice"
