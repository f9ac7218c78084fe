"""Metrics of a source in Prometheus' text form. Pure.

Of each table there are families of their own: a sum over a family counts nothing twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from binlake.config.units import DAY_US
from binlake.planner.steps import Status
from binlake.records.evidence import Evidence
from binlake.records.health import health_of
from binlake.records.health_reasons import WORST_FIRST, differing, following
from binlake.records.runs import MutationCounts
from binlake.records.status import TableStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of the text form."""
_PREFIX = "binlake_"
_KINDS = ("inserted", "updated", "deleted")
_OF_TODAY = "since midnight UTC, when it begins at 0 again"


@dataclass(frozen=True)
class MetricFamily:
    """Metrics with one meaning. stat: the name without ``binlake_``, as Airflow's own metrics have it. help: the
    meaning."""

    stat: str
    help: str
    kind: Literal["gauge", "counter"] = "gauge"

    @property
    def name(self) -> str:
        """Return the name in Prometheus."""
        return _PREFIX + self.stat

    def of(self, value: float, source: str, **labels: str) -> MetricSample:
        """Return one metric of a source."""
        return MetricSample(self, value, {"source": source, **labels})


@dataclass(frozen=True)
class MetricSample:
    """One metric: its value, and the labels that distinguish it from others of its family."""

    family: MetricFamily
    value: float
    labels: Mapping[str, str]


WRITTEN = MetricFamily("metrics_timestamp_seconds", "Time at which these metrics were made.")
READABLE = MetricFamily("source_readable", "1 if the source's metadata can be read, else 0, and nothing else is known.")
HEALTH = MetricFamily("health", "1 for the source's level of health, 0 for the others.")
LAG_SECONDS = MetricFamily(
    "lag_seconds",
    "Seconds for which commits may be missing in the lake; 0 while the newest look at the log found nothing new.",
)
LAG_BYTES = MetricFamily("lag_bytes", "Bytes of log beyond the lake at the newest look.")
HEADROOM_SECONDS = MetricFamily(
    "headroom_seconds", "Seconds for which the server keeps the log that is needed next; below 0 it may be gone."
)
CARRIED = MetricFamily("carried_timestamp_seconds", "Time before which the lake has every commit.")
LOOKED = MetricFamily("log_seen_timestamp_seconds", "Time of the newest look at the server's log.")
BATCHES = MetricFamily("batches_total", "Batches that were planned.", "counter")
ROWS = MetricFamily("rows_total", f"Rows that the log changed in recorded batches, by kind, {_OF_TODAY}.", "counter")
RUN_ENDED = MetricFamily("run_ended_timestamp_seconds", "Time at which the newest run that carried rows ended.")
PHASE_SECONDS = MetricFamily("run_phase_seconds", "Seconds of each phase of the newest run that carried rows.")
VERIFIED = MetricFamily(
    "verified_through_timestamp_seconds",
    "Time at which the table that was compared longest ago was read and known equal to the server.",
)
UNVERIFIED_TABLES = MetricFamily("unverified_tables", "Tables that follow the log and aren't known to be equal.")
DIFFERING_TABLES = MetricFamily("differing_tables", "Tables that differed from the server when compared last.")
DIFFERING_ROWS = MetricFamily("differing_rows", "Rows known to differ from the server when compared last.")
TABLES = MetricFamily("tables", "Tables by status.")
HEARTBEAT_AGE = MetricFamily(
    "follower_heartbeat_age_seconds", "Seconds since the process that follows the log gave a sign of life."
)
TABLE_STATUS = MetricFamily("table_status", "1 for the table's status.")
TABLE_ROWS = MetricFamily(
    "table_rows_total", f"Rows of the table that the log changed in recorded batches, by kind, {_OF_TODAY}.", "counter"
)
TABLE_VERIFIED = MetricFamily(
    "table_verified_through_timestamp_seconds",
    "Time at which the table's chunk that was compared longest ago was read and known equal to the server.",
)
TABLE_DIFFERING_ROWS = MetricFamily(
    "table_differing_rows", "Rows of the table known to differ from the server when compared last."
)
FAMILIES = (
    WRITTEN, READABLE, HEALTH, LAG_SECONDS, LAG_BYTES, HEADROOM_SECONDS, CARRIED, LOOKED, BATCHES, ROWS, RUN_ENDED,
    PHASE_SECONDS, VERIFIED, UNVERIFIED_TABLES, DIFFERING_TABLES, DIFFERING_ROWS, TABLES, HEARTBEAT_AGE, TABLE_STATUS,
    TABLE_ROWS, TABLE_VERIFIED, TABLE_DIFFERING_ROWS,
)  # fmt: skip
"""All families, in the text's order."""


def counted_since(now_us: int) -> int:
    """Return the time since which rows are counted. Runs expire: a sum over all that are known would fall each day,
    which Prometheus takes for a counter that began again, and adds the whole sum."""
    return now_us - now_us % DAY_US


def samples_of(known: Evidence, counts: Mapping[str, MutationCounts], *, by_table: bool) -> Iterator[MetricSample]:
    """Yield the metrics of a source. counts: mutations of each table since ``counted_since``."""
    source = known.status.source
    yield WRITTEN.of(known.now_us / 1e6, source)
    yield READABLE.of(1, source)
    level = health_of(known).level
    for one in WORST_FIRST:
        yield HEALTH.of(one == level, source, level=one)
    yield from _of_log(known)
    yield from _of_runs(known, counts)
    yield from _of_comparisons(known)
    numbers = Counter(row.status for row in known.status.tables)
    for status in get_args(Status):
        yield TABLES.of(numbers[status], source, status=status)
    if follower := known.status.follower:
        yield HEARTBEAT_AGE.of(max(0.0, (known.now_us - follower.at_us) / 1e6), source)
    if by_table:
        yield from _of_tables(known, counts)


def unreadable(source: str) -> MetricSample:
    """Return what is said of a source whose metadata can't be read."""
    return READABLE.of(0, source)


def _of_log(known: Evidence) -> Iterator[MetricSample]:
    log, carried = known.log, known.carried_us
    values = (
        (LAG_SECONDS, known.lag_seconds),
        (LAG_BYTES, log.bytes_ahead if log else None),
        (HEADROOM_SECONDS, known.headroom_seconds),
        (CARRIED, None if carried is None else carried / 1e6),
        (LOOKED, log.at_us / 1e6 if log else None),
    )
    for family, value in values:
        if value is not None:
            yield family.of(value, known.status.source)


def _of_runs(known: Evidence, counts: Mapping[str, MutationCounts]) -> Iterator[MetricSample]:
    source, last = known.status.source, known.status.last_run
    yield BATCHES.of(known.status.batch, source)
    for kind in _KINDS:
        yield ROWS.of(sum(getattr(count, kind) for count in counts.values()), source, kind=kind)
    if last:
        yield RUN_ENDED.of(last.ended_us / 1e6, source)
        for phase, seconds in last.seconds.items():
            yield PHASE_SECONDS.of(seconds, source, phase=phase)


def _of_comparisons(known: Evidence) -> Iterator[MetricSample]:
    source, tables = known.status.source, set(following(known))
    rows = [row for row in known.status.tables if row.table in tables]
    verified = [at_us for row in rows if (at_us := _verified_us(row)) is not None]
    if verified:
        yield VERIFIED.of(min(verified) / 1e6, source)
    differ = differing(known).values()
    yield UNVERIFIED_TABLES.of(len(rows) - len(verified), source)
    yield DIFFERING_TABLES.of(len(differ), source)
    yield DIFFERING_ROWS.of(sum(found.differing_rows or 0 for found in differ), source)


def _of_tables(known: Evidence, counts: Mapping[str, MutationCounts]) -> Iterator[MetricSample]:
    source, differ = known.status.source, differing(known)
    lives = sorted(known.status.tables, key=lambda row: row.status != "dropped")
    for table, row in {row.table: row for row in lives}.items():  # of lives with one name, the one that didn't end
        yield TABLE_STATUS.of(1, source, table=table, status=row.status)
        count = counts.get(table, MutationCounts(0, 0, 0, 0))
        for kind in _KINDS:
            yield TABLE_ROWS.of(getattr(count, kind), source, table=table, kind=kind)
        if (at_us := _verified_us(row)) is not None:
            yield TABLE_VERIFIED.of(at_us / 1e6, source, table=table)
        found = differ.get(table)
        yield TABLE_DIFFERING_ROWS.of((found and found.differing_rows) or 0, source, table=table)


def _verified_us(row: TableStatus) -> int | None:
    """Return when a table of the status was read and known equal; None where it isn't known equal."""
    return row.verified_through.at_us if row.verified_through else None


# text ----------------------------------------------------------------------------------------------------------------
def to_text(samples: Iterable[MetricSample]) -> str:
    """Return metrics, also of several sources, in Prometheus' text form: each family once."""
    by_family: defaultdict[MetricFamily, list[MetricSample]] = defaultdict(list)
    for sample in samples:
        by_family[sample.family].append(sample)
    return "".join(f"{line}\n" for family in FAMILIES for line in _lines(family, by_family[family]))


def _lines(family: MetricFamily, samples: Iterable[MetricSample]) -> list[str]:
    lines = [f"{family.name}{{{_labels(sample.labels)}}} {_number(sample.value)}" for sample in samples]
    return [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}", *lines] if lines else []


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(value) if isinstance(value, float) else str(int(value))
