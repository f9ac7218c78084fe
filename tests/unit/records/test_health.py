"""Health: one sentence, by all that is known of a source, and what to do about each thing that is wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from binlake.lease.followers import FollowerStatus
from binlake.records.decisions import Reason
from binlake.records.evidence import AirflowState, DagState, Evidence, FailedDagRun, HealthLimits, LogStanding
from binlake.records.feed_watermarks import FeedStatus
from binlake.records.health import Health, health_of
from binlake.records.health_reasons import Remedy
from binlake.records.merged_shapes import ProblemBeside
from binlake.records.runs import Verified
from binlake.records.status import BatchStatus, FailedRun, PoisonEvent, SnapshotStatus, SourceStatus, TableStatus
from binlake.store.run_rows import RunRow

NOW = datetime(2026, 3, 1, 12, 10, tzinfo=UTC)


def standing(**changes: Any) -> SourceStatus:
    """A source that the noon's run carried to its start."""
    carried = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1e6)
    return replace(SourceStatus("shop", 7, "s/b.000001:4@1", None, None, (), None, carried_us=carried), **changes)


def us(moment: datetime) -> int:
    return int(moment.timestamp() * 1e6)


def before(**ago: float) -> int:
    return us(NOW - timedelta(**ago))


def ended(**ago: float) -> RunRow:
    return RunRow(run="r", kind="sync", outcome="", ended_us=before(**ago))


def lines(health: Health) -> list[str]:
    return [f"{line.health}: {line.what}" for line in health.advice]


def log_of(**changes: Any) -> LogStanding:
    return replace(LogStanding(1, "binlog.000001:9", 0, "binlog.000001", 1, 9, 24.0), **changes)


def compared(**changes: Any) -> Verified:
    return replace(Verified(before(seconds=36), 7, "s/b.000001:4@1", True, 0, 9, 9), **changes)


@pytest.mark.parametrize(
    ("status", "after", "paused", "said"),
    [
        (standing(), timedelta(0), False, []),
        (standing(), timedelta(hours=2), False, []),
        (standing(), timedelta(hours=2, minutes=6), False, ["bad: it is more than a run behind its schedule"]),
        (standing(), timedelta(0), True, ["warn: nothing carries it forward: its sync is paused"]),
        (standing(position=None), timedelta(9), False, ["new: no table has a snapshot yet"]),
        (
            standing(tables=tuple(TableStatus("shop.a", state) for state in ("stopped", "paused", "paused"))),
            timedelta(0),
            False,
            ["bad: 1 table is stopped", "warn: 2 tables are paused"],
        ),
        (
            standing(poison=(PoisonEvent("b.000001", 4, "an unknown event", "skip it"),)),
            timedelta(0),
            False,
            ["bad: the run is stopped at b.000001:4 by an unknown event"],
        ),
        (
            standing(snapshots=(SnapshotStatus("shop.a", 3, 1, 9),)),
            timedelta(0),
            False,
            ["warn: the snapshot of shop.a isn't finished, 1 of 3 chunks, 9 rows"],
        ),
        (
            standing(snapshots=tuple(SnapshotStatus(f"shop.{n}", 4, 1, 9) for n in range(300)), position=None),
            timedelta(0),
            False,
            [
                "new: no table has a snapshot yet",
                "warn: the snapshot of shop.0 and 299 others aren't finished, 300 of 1,200 chunks, 2,700 rows",
            ],
        ),
        (
            standing(snapshots=(SnapshotStatus("shop.a", 3, 1, 9),), position=None, holder="a bootstrap"),
            timedelta(0),
            False,
            ["new: the first snapshot is being taken, 1 of 3 chunks, 9 rows"],
        ),
        (
            standing(feeds=(FeedStatus("orders", "stopped", 5, 2, 9, "no such topic", "make it"),)),
            timedelta(0),
            False,
            ["bad: feed orders is stopped: no such topic"],
        ),
        (
            standing(tables=(TableStatus("shop.a", "following", problem="can't be read: no such file"),)),
            timedelta(0),
            False,
            ["bad: 1 table is damaged in the lake: files can't be read, or hold other rows than were verified"],
        ),
    ],
)
def test_what_is_said_of_a_source(status: SourceStatus, after: timedelta, paused: bool, said: list[str]) -> None:
    dags = {"sync": DagState("binlake_shop_sync", paused, None)}
    known = Evidence(status, us(NOW + after), HealthLimits("0 * * * *"), airflow=AirflowState(dags))
    health = health_of(known)
    assert lines(health) == said
    assert all(line.remedy for line in health.advice)
    assert health.level == (said[0].partition(":")[0] if said else "good")


@pytest.mark.parametrize(
    ("hours_left", "said"),
    [
        (9, []),
        (5, ["warn: the log that is needed next may be purged in 5 h"]),
        (-1, ["bad: the log that is needed next is older than the 24 hours for which the server keeps it"]),
    ],
)
def test_a_log_that_may_be_purged_is_warned_of(hours_left: float, said: list[str]) -> None:
    until = us(NOW + timedelta(hours=hours_left))
    known = Evidence(standing(), us(NOW), log=log_of(kept_until_us=until))
    assert lines(health_of(known)) == said


TABLES = tuple(TableStatus(f"shop.t{number}", "following") for number in range(9))
ALL_EQUAL = {row.table: compared() for row in TABLES}
WELL = Evidence(
    standing(tables=TABLES, carried_us=before(seconds=2)),
    us(NOW),
    HealthLimits("0 * * * *", lag_minutes=5, retention_hours=12, verify_schedule="@daily"),
    ALL_EQUAL,
    log_of(at_us=before(seconds=2), kept_hours=720.0, kept_until_us=us(NOW + timedelta(days=29, hours=3))),
    AirflowState(heartbeat_us=before(seconds=3)),
)


def test_all_is_well_says_what_was_proved_and_when_and_how_far_behind_it_may_be() -> None:
    health = health_of(WELL)
    assert health.level == "good"
    assert health.sentence == (
        "9 of 9 tables equal the server at 12:09:24 UTC (compared 36 s ago). 0 s behind (asked 2 s ago). "
        "29 days of log left."
    )
    follower = FollowerStatus("a", 1, before(seconds=1), 1.0, 7, 1.0, "", is_silent=False)
    followed = health_of(replace(WELL, status=replace(WELL.status, follower=follower)))
    assert "). 1 s behind. 29" in followed.sentence


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ({}, "9 tables, not compared with the server yet. 0 s behind (asked 2 s ago)."),
        (
            dict(list(ALL_EQUAL.items())[:7]),
            "7 of 9 tables equal the server at 12:09:24 UTC (compared 36 s ago); 2 not compared yet. 0 s",
        ),
        (
            ALL_EQUAL | {"shop.t3": compared(at_us=before(hours=13))},
            "9 of 9 tables equal the server at 2026-02-28 23:10:00 UTC (compared 13 h ago). 0 s",
        ),
    ],
)
def test_the_sentence_claims_no_more_than_the_oldest_comparison(results: dict[str, Verified], said: str) -> None:
    health = health_of(replace(WELL, compared=results))
    assert health.level == "good"
    assert health.sentence.startswith(said)


def test_what_cannot_be_compared_is_not_counted() -> None:
    left_out = frozenset({"shop.t3"})
    compared_ones = {table: result for table, result in ALL_EQUAL.items() if table not in left_out}
    assert health_of(replace(WELL, compared=compared_ones, unmirrored=left_out)).sentence.startswith("8 of 8 tables")


def test_what_is_not_known_is_not_said() -> None:
    nothing = Evidence(standing(tables=TABLES[:1], carried_us=None), us(NOW))
    assert health_of(nothing).sentence == "1 table, not compared with the server yet."
    assert health_of(replace(nothing, status=standing(carried_us=None))).sentence == "No table follows the log."


DIFFERS = compared(equal=False, differing=1, differing_rows=6, at_us=before(minutes=12))
DEAD = FollowerStatus("host pid 7", 1, before(minutes=4), 1.0, 7, 1.0, "", is_silent=True, is_dead=True)
SYNC, REPAIR = Remedy("sync"), Remedy("repair", tables=("shop.t1",))


def dag(what: str, *, paused: bool = False) -> dict[str, DagState]:
    return {what: DagState(f"binlake_shop_{what}", paused, None)}


def followed(follower: FollowerStatus | None, **changes: Any) -> dict[str, Any]:
    return {"status": replace(WELL.status, follower=follower, **changes)}


@pytest.mark.parametrize(
    ("changes", "said", "button"),
    [
        (
            {"compared": ALL_EQUAL | {"shop.t1": DIFFERS}},
            "bad: shop.t1 differs from the server by 6 rows, compared 12 min ago",
            REPAIR,
        ),
        (
            {"compared": ALL_EQUAL | {"shop.t1": DIFFERS, "shop.t2": replace(DIFFERS, differing_rows=100)}},
            "bad: 2 tables differ from the server: shop.t1 by 6 rows, shop.t2 by at least 100 rows; compared 12 min",
            Remedy("repair", tables=("shop.t1", "shop.t2")),
        ),
        (
            {
                "compared": ALL_EQUAL | {"shop.t1": replace(DIFFERS, differing_rows=None)},
                "limits": HealthLimits(repair="never"),
            },
            "bad: shop.t1 differs from the server, compared 12 min ago",
            Remedy("show", state="following"),
        ),
        (
            {"compared": ALL_EQUAL | {"shop.t1": compared(equal=None)}},
            "warn: shop.t1 couldn't be compared with the server, 36 s ago",
            Remedy("verify", tables=("shop.t1",)),
        ),
        (
            {"compared": ALL_EQUAL | {"shop.t1": compared(at_us=before(days=3))}},
            "warn: shop.t1 wasn't compared with the server for 3 days, though verify.schedule is @daily",
            Remedy("verify", tables=("shop.t1",)),
        ),
        ({"status": replace(WELL.status, lost=("pins",))}, "bad: the metadata table pins is gone, and with it", None),
        (
            {"unreadable": {"shop.t1": "its Delta log lacks version 3"}},
            "bad: shop.t1 can't be read in the lake: its Delta log lacks version 3",
            REPAIR,
        ),
        (
            {
                "status": replace(WELL.status, carried_us=before(minutes=6)),
                "log": log_of(at_us=before(seconds=9), bytes_ahead=1_500_000),
            },
            "bad: it is 6 min and 1.5 MB of log behind; lag_minutes allows 5",
            SYNC,
        ),
        (
            {"log": log_of(at_us=before(seconds=9), kept_hours=14.0, kept_until_us=us(NOW + timedelta(hours=11)))},
            "bad: the log that is needed next may be purged in 11 h; retention_hours demands 12 h",
            SYNC,
        ),
        (
            {"log": log_of(at_us=before(seconds=9), bytes_ahead=None, server="other", kept_hours=None)},
            "bad: the lake belongs to another server: it follows s, and the connection leads to other",
            SYNC,
        ),
        (
            {"log": log_of(at_us=before(seconds=9), bytes_ahead=None, server="s", oldest_file="b.000007")},
            "bad: the server's log, from b.000007 on, doesn't hold b.000001:4, where the lake is",
            None,
        ),
        (followed(DEAD), "bad: host pid 7, which followed the log, is dead since 4 min", SYNC),
        (
            followed(DEAD, last_run=ended(minutes=1)),
            "warn: host pid 7, which followed the log, is dead since 4 min",
            SYNC,
        ),
        (
            {**followed(DEAD), "airflow": AirflowState(dag("follow", paused=True))},
            "bad: host pid 7, which followed the log, is dead since 4 min",
            Remedy("follow"),
        ),
        (
            followed(replace(DEAD, is_dead=False)),
            "bad: host pid 7 followed the log, and gives no sign of life since 4 min",
            SYNC,
        ),
        (
            followed(replace(DEAD, is_dead=False, cannot_write="the disk is full")),
            "bad: host pid 7 follows the log, and can give no sign of life since 4 min: the disk is full",
            None,
        ),
        (
            followed(replace(DEAD, is_dead=False, is_silent=False, waits_for="the server is away")),
            "warn: the process that follows the log waits: the server is away",
            None,
        ),
        (
            {"airflow": AirflowState(dag("follow", paused=True))},
            "warn: nobody follows the log: binlake_shop_follow is paused",
            Remedy("follow"),
        ),
        (
            {
                "airflow": AirflowState(dag("follow")),
                "limits": HealthLimits(),
                "status": replace(WELL.status, carried_us=before(minutes=6)),
                "log": None,
            },
            "warn: nobody follows the log, though binlake_shop_follow should",
            Remedy("follow"),
        ),
        (
            {
                "airflow": AirflowState(dag("follow"), at_work={"follow": before(minutes=5)}),
                "limits": HealthLimits(),
                "status": replace(WELL.status, carried_us=before(minutes=6)),
                "log": None,
            },
            "warn: nobody follows the log, though binlake_shop_follow should",
            SYNC,
        ),
        (
            {**followed(DEAD), "airflow": AirflowState(dag("follow"))},
            "bad: host pid 7, which followed the log, is dead since 4 min",
            Remedy("follow"),
        ),
        (
            {**followed(DEAD), "airflow": AirflowState(dag("follow"), at_work={"follow": before(minutes=9)})},
            "bad: host pid 7, which followed the log, is dead since 4 min",
            None,
        ),
        (
            {"airflow": AirflowState(is_alive=False, heartbeat_us=before(minutes=5))},
            "bad: Airflow's scheduler gives no sign of life since 2026-03-01 12:05:00 UTC (5 min ago)",
            None,
        ),
        ({"airflow": AirflowState(is_alive=False)}, "bad: no scheduler of Airflow has given a sign of life yet", None),
        (
            {"airflow": AirflowState(failed={"maintain": FailedDagRun("r", before(minutes=3), "copy", "no space")})},
            "warn: the last run of binlake_shop_maintain failed in task copy, 3 min ago: no space",
            None,
        ),
        (
            {
                "airflow": AirflowState(
                    failed={"verify": FailedDagRun("r", before(minutes=3), "verify", "Terminated")}
                ),
                "cancelled": {"binlake_shop_verify/r": Reason("ada", "too slow")},
            },
            "warn: the last run of binlake_shop_verify was cancelled 3 min ago by ada: too slow",
            Remedy("verify"),
        ),
        (
            {"airflow": AirflowState(failed={"sync": FailedDagRun("r", before(minutes=3))})},
            "warn: the last run of binlake_shop_sync failed, 3 min ago",
            SYNC,
        ),
        (
            {"status": replace(WELL.status, beside=(ProblemBeside("shop.t__log", "is stopped", "repair it"),))},
            "bad: shop.t__log: is stopped",
            None,
        ),
        (
            {"status": replace(WELL.status, open_batch=BatchStatus(8, "planned", "", None, "its run died"))},
            "warn: batch 8 isn't finished: its run died",
            SYNC,
        ),
    ],
)
def test_each_reason_is_told_with_what_mends_it(changes: dict[str, Any], said: str, button: Remedy | None) -> None:
    health = health_of(replace(WELL, **changes))
    (advice,) = health.advice
    assert lines(health)[0].startswith(said)
    assert advice.remedy
    assert advice.button == button
    assert health.level == advice.health
    assert health.sentence.lower().startswith(advice.what.lower()[:40])


def test_the_worst_reason_comes_first_and_is_the_sentence() -> None:
    changes: dict[str, Any] = {
        "compared": ALL_EQUAL | {"shop.t1": DIFFERS},
        "airflow": AirflowState(dag("sync", paused=True)),
    }
    health = health_of(replace(WELL, **changes))
    assert [line.health for line in health.advice] == ["bad", "warn"]
    assert health.sentence == "shop.t1 differs from the server by 6 rows, compared 12 min ago."
    assert (health.compared.equal, health.compared.differing, health.compared.tables) == (8, 1, 9)
    paused = health_of(replace(WELL, airflow=AirflowState(dag("sync", paused=True))))
    assert paused.sentence == "Nothing carries it forward: its sync is paused."


def test_a_dead_scheduler_comes_before_the_follower_that_died_with_it() -> None:
    at_work = {"follow": before(minutes=9)}
    airflow = AirflowState(dag("follow"), heartbeat_us=before(minutes=5), is_alive=False, at_work=at_work)
    scheduler, follower = health_of(replace(WELL, **followed(DEAD), airflow=airflow)).advice
    assert scheduler.what.startswith("Airflow's scheduler gives no sign of life since")
    assert follower.what.startswith("host pid 7, which followed the log, is dead since")
    assert follower.remedy == "start Airflow's scheduler: the DAG binlake_shop_follow then begins to follow again"
    alive = health_of(replace(WELL, **followed(DEAD), airflow=replace(airflow, is_alive=True))).advice
    assert [line.remedy for line in alive] == ["nothing: the DAG binlake_shop_follow begins to follow again"]


def test_one_failure_is_told_once() -> None:
    """By what noted it, which knows the remedy; that a verification failed is told by what it found."""
    failed = FailedRun("binlake_shop_sync/r", "merge", 8, before(minutes=3), "no space is left\n  → make some")
    runs = {"sync": FailedDagRun("r", before(minutes=3), "merge"), "verify": FailedDagRun("v", before(minutes=12), "v")}
    known = replace(
        WELL,
        status=replace(WELL.status, failed=failed),
        airflow=AirflowState(failed=runs),
        compared=ALL_EQUAL | {"shop.t1": DIFFERS},
    )
    assert lines(health_of(known)) == [
        "bad: shop.t1 differs from the server by 6 rows, compared 12 min ago",
        "warn: the last run failed in merge, 3 min ago: no space is left",
    ]


def test_a_dead_follower_that_was_given_up_is_told_for_a_day() -> None:
    gone = replace(DEAD, at_us=before(hours=30))
    assert lines(health_of(replace(WELL, **followed(gone, last_run=ended(hours=1))))) == []


@pytest.mark.parametrize(
    ("left", "named"),
    [(["shop.t0", "shop.t1"], ("shop.t0", "shop.t1")), (["shop.t0", "shop.new"], ()), (["shop.new"], ())],
)
def test_a_snapshot_that_ended_is_continued(left: list[str], named: tuple[str, ...]) -> None:
    """Tables that are followed are named: a bootstrap that names none copies the others alone."""
    unfinished = tuple(SnapshotStatus(table, 3, 1, 9) for table in left)
    known = replace(WELL, status=replace(WELL.status, snapshots=unfinished))
    (advice,) = health_of(known).advice
    assert advice.button == Remedy("bootstrap", tables=named)


BEGUN = standing(position=None)


@pytest.mark.parametrize(
    ("status", "since_us", "paused", "what", "button"),
    [
        (BEGUN, None, False, "the first snapshot begins: its run is queued", None),
        (BEGUN, before(seconds=4), False, "the first snapshot begins: its run started 4 s ago", None),
        (BEGUN, before(seconds=4), True, "the first snapshot begins: its run started 4 s ago", None),
        (
            BEGUN, None, True, "the first snapshot waits: its DAG is paused", Remedy("unpause", dag="bootstrap"),
        ),
        (
            replace(BEGUN, holder="a job", snapshots=(SnapshotStatus("shop.a", 3, 1, 9),)), before(minutes=1), False,
            "the first snapshot is being taken, 1 of 3 chunks, 9 rows", None,
        ),
        (
            replace(BEGUN, holder="a job", holder_died=True), before(seconds=4), False,
            "the first snapshot begins: its run started 4 s ago", None,
        ),
    ],
)  # fmt: skip
def test_the_first_snapshot_is_told_from_its_first_second_and_offered_once(
    status: SourceStatus, since_us: int | None, paused: bool, what: str, button: Remedy | None
) -> None:
    at_work = {"bootstrap": since_us}
    failed = {"bootstrap": FailedDagRun("r", before(minutes=3))}
    airflow = AirflowState(dag("bootstrap", paused=paused), failed=failed, at_work=at_work)
    known = Evidence(status, us(NOW), airflow=airflow)
    health = health_of(known)
    first = next(line for line in health.advice if "first snapshot" in line.what)
    assert known.is_copied_first
    assert (first.what, first.button) == (what, button)
    assert Remedy("bootstrap") not in [line.button for line in health.advice]


def test_a_snapshot_is_offered_while_none_is_at_work() -> None:
    for at_work in ({}, {"maintain": 5}):
        known = Evidence(BEGUN, us(NOW), airflow=AirflowState(dag("bootstrap"), at_work=at_work))
        assert not known.is_copied_first
        assert [line.button for line in health_of(known).advice] == [Remedy("bootstrap")]
    assert not replace(WELL, airflow=AirflowState(at_work={"bootstrap": 5})).is_copied_first, "it isn't the first"


@pytest.mark.parametrize("lag_minutes", [5, None])
def test_lag_does_not_grow_between_looks_at_an_idle_server(lag_minutes: float | None) -> None:
    """Half an hour after a look that found nothing: the next one is the hourly sync's."""
    limits = replace(WELL.limits, lag_minutes=lag_minutes)
    known = replace(WELL, limits=limits, now_us=us(NOW + timedelta(minutes=30)))
    assert "0 s behind (asked 30 min ago)." in health_of(known).sentence
    unscheduled = replace(known, limits=replace(limits, schedule=None))
    assert lines(health_of(unscheduled)) == (
        ["warn: the server was looked at 30 min ago: its log may have grown by more than is shown here"]
        if lag_minutes
        else []
    )


def test_a_server_that_the_limits_should_have_looked_at_is_told() -> None:
    watch = {"watch": DagState("binlake_shop_watch", False, None)}
    limits = replace(WELL.limits, watched_at="*/10 * * * *")
    known = replace(WELL, limits=limits, airflow=replace(WELL.airflow or AirflowState(), dags=watch))
    later = replace(known, now_us=us(NOW + timedelta(minutes=40)))
    assert not lines(health_of(known))
    assert lines(health_of(later)) == [
        "warn: the server was looked at 40 min ago: its log may have grown by more than is shown here"
    ]
