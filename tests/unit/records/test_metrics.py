"""Metrics for Prometheus: their values come of the evidence, and their text is one that its parsers take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from binlake.lease.followers import FollowerStatus
from binlake.records.evidence import Evidence
from binlake.records.metrics import FAMILIES, counted_since, samples_of, to_text, unreadable
from binlake.records.runs import MutationCounts
from binlake.records.status import SourceStatus
from measured_source import COUNTS, KNOWN, LOG, NOW, STATUS, TABLES, before, row
from prometheus_text import Parsed, parse


def parsed(
    known: Evidence, counts: Mapping[str, MutationCounts] = COUNTS, *, by_table: bool = False
) -> dict[str, Parsed]:
    return parse(to_text(samples_of(known, counts, by_table=by_table)))


def seconds(us: int) -> float:
    return us / 1e6


def test_the_values_are_those_of_the_evidence() -> None:
    found = {name.removeprefix("binlake_"): family for name, family in parsed(KNOWN).items()}
    single = {name: family.value(source="shop") for name, family in found.items() if len(family.values) == 1}
    assert single == {
        "metrics_timestamp_seconds": NOW.timestamp(),
        "source_readable": 1,
        "lag_seconds": 0,
        "lag_bytes": 0,
        "headroom_seconds": 20 * 3600,
        "carried_timestamp_seconds": seconds(before(minutes=5)),
        "log_seen_timestamp_seconds": seconds(before(minutes=5)),
        "batches_total": 7,
        "run_ended_timestamp_seconds": seconds(before(minutes=9)),
        "verified_through_timestamp_seconds": seconds(before(hours=3)),
        "unverified_tables": 0,
        "differing_tables": 1,
        "differing_rows": 3,
    }
    assert {dict(labels)["level"]: value for labels, value in found["health"].values.items()} == {
        "bad": 1, "new": 0, "warn": 0, "good": 0,
    }  # fmt: skip
    kinds = {dict(labels)["kind"]: value for labels, value in found["rows_total"].values.items()}
    assert kinds == {"inserted": 15, "updated": 2, "deleted": 1}
    assert found["rows_total"].kind == found["batches_total"].kind == "counter"
    phases = {dict(labels)["phase"]: value for labels, value in found["run_phase_seconds"].values.items()}
    assert phases == {"plan": 0.25, "merge": 3}
    numbers = {dict(labels)["status"]: value for labels, value in found["tables"].values.items()}
    assert numbers == {
        "following": 2, "stopped": 1, "paused": 0, "catching up": 0, "resnapshot": 0, "excluded": 0, "dropped": 0,
        "missing": 0,
    }  # fmt: skip


def test_tables_have_families_of_their_own() -> None:
    """Sums over a family would count a table twice if it had the source's name."""
    found, without = parsed(KNOWN, by_table=True), parsed(KNOWN)
    of_tables = {name for name, family in found.items() if any("table" in dict(labels) for labels in family.values)}
    assert of_tables == found.keys() - without.keys()
    assert {name: found[name] for name in without} == without
    assert found["binlake_table_rows_total"].value(table="shop.a", kind="inserted") == 5
    assert found["binlake_table_rows_total"].value(table="shop.c", kind="deleted") == 0
    assert found["binlake_table_status"].value(table="shop.c", status="stopped") == 1
    assert found["binlake_table_differing_rows"].value(table="shop.b") == 3
    assert found["binlake_table_differing_rows"].value(table="shop.a") == 0
    verified = found["binlake_table_verified_through_timestamp_seconds"]
    assert verified.value(table="shop.b") == seconds(before(hours=3))
    assert not any(("table", "shop.c") in labels for labels in verified.values)


@pytest.mark.parametrize("name", ['shop.a"b', "shop.a\\b", "shop.a\nb", "shop.a\\nb", "shop.{a},b=1", "shop.tàble 😀"])
def test_names_with_anything_in_them(name: str) -> None:
    known = replace(KNOWN, status=replace(STATUS, tables=(row(name),)))
    assert parsed(known, by_table=True)["binlake_table_status"].value(table=name, status="following") == 1


def test_of_two_lives_with_one_name_the_living_one_is_told() -> None:
    """A metric that stands there twice makes Prometheus refuse the whole text."""
    lives = (row("shop.a"), row("shop.a", "dropped"))
    for tables in (lives, lives[::-1]):
        found = parsed(replace(KNOWN, status=replace(STATUS, tables=tables)), by_table=True)
        assert found["binlake_table_status"].value(table="shop.a", status="following") == 1
        assert len(found["binlake_table_status"].values) == 1
        assert found["binlake_tables"].value(status="dropped") == 1


def test_what_is_not_known_is_left_out() -> None:
    nothing = SourceStatus("shop", 0, None, None, None, (), None)
    found = parsed(Evidence(nothing, before()), {}, by_table=True)
    missing = {"lag_seconds", "lag_bytes", "headroom_seconds", "carried_timestamp_seconds", "run_phase_seconds"}
    assert not {f"binlake_{name}" for name in missing} & found.keys()
    assert found["binlake_health"].value(level="new") == 1
    assert found["binlake_rows_total"].value(kind="inserted") == 0
    unverified = parsed(replace(KNOWN, status=replace(STATUS, tables=(TABLES[0], row("shop.b")))))
    assert unverified["binlake_unverified_tables"].value(source="shop") == 1
    assert unverified["binlake_verified_through_timestamp_seconds"].value() == seconds(before(hours=2))


def test_several_sources_share_each_family() -> None:
    other = replace(KNOWN, status=replace(STATUS, source="bank"))
    samples = [*samples_of(KNOWN, COUNTS, by_table=True), *samples_of(other, {}, by_table=True), unreadable("lost")]
    found = parse(to_text(samples))
    assert found["binlake_rows_total"].value(source="bank", kind="inserted") == 0
    assert found["binlake_rows_total"].value(source="shop", kind="inserted") == 15
    assert {dict(labels)["source"]: value for labels, value in found["binlake_source_readable"].values.items()} == {
        "shop": 1, "bank": 1, "lost": 0,
    }  # fmt: skip
    assert not any(("source", "lost") in labels for labels in found["binlake_health"].values)
    assert to_text([]) == ""


def test_each_family_is_named_once_and_says_what_it_is() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    assert all(family.help.endswith(".") and "\n" not in family.help for family in FAMILIES)


# lag -----------------------------------------------------------------------------------------------------------------
def later(known: Evidence, **ago: float) -> Evidence:
    return replace(known, now_us=known.now_us + int(timedelta(**ago).total_seconds() * 1e6))


def test_lag_does_not_grow_while_nothing_is_written() -> None:
    """The newest look found nothing beyond the lake; that nobody looked since is another metric."""
    assert later(KNOWN, hours=9).lag_seconds == 0


def test_lag_grows_while_something_is_known_to_be_missing() -> None:
    behind = replace(KNOWN, log=replace(LOG, bytes_ahead=90))
    assert behind.lag_seconds == 600
    assert later(behind, hours=1).lag_seconds == 600 + 3600
    assert replace(KNOWN, log=replace(LOG, bytes_ahead=None)).lag_seconds == 600
    assert replace(KNOWN, log=None).lag_seconds == 600


@pytest.mark.parametrize(("sign", "expected"), [({"seconds": 1}, 2.5), ({"hours": 1}, 0.0)])
def test_a_follower_knows_it_unless_somebody_looked_since(sign: dict[str, float], expected: float) -> None:
    follower = FollowerStatus("host", before(hours=3), before(**sign), 1.0, 7, 2.5, "", is_silent=False)
    followed = replace(KNOWN, status=replace(STATUS, follower=follower))
    assert followed.lag_seconds == expected
    assert later(followed, hours=5).lag_seconds == expected
    age = parsed(followed)["binlake_follower_heartbeat_age_seconds"].value(source="shop")
    assert age == timedelta(**sign).total_seconds()
    no_word = replace(STATUS, follower=replace(follower, behind_seconds=None))
    assert replace(KNOWN, status=no_word).lag_seconds == 0


def test_rows_are_counted_from_midnight_on() -> None:
    """Runs expire: the sum over all that are known would fall, which Prometheus takes for one that began again."""
    midnight = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1e6)
    assert counted_since(midnight) == counted_since(midnight + 1) == counted_since(before()) == midnight
    assert counted_since(midnight - 1) == midnight - 24 * 3600 * 1_000_000
