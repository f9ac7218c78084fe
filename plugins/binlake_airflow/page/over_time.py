"""Charts of what happened to a source over an hour, a day, a week or a month, from metadata alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from binlake.config import PipelineConfig
from binlake.config.units import DAY_US, HOUR_US
from binlake.records.lake_sizes import sums_at
from binlake.records.status import SourceStatus, read_status
from binlake.store.conditions import Newest
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import BatchRow, LogRow
from binlake.store.run_rows import RunRow
from binlake_airflow.page import charts
from binlake_airflow.page.answers import VERIFIED_DAYS, metadata_of, totals_of
from binlake_airflow.page.charts import COUNT, MINUTE_US, SECONDS, Periods, Series
from binlake_airflow.page.compared_days import compared_days
from binlake_airflow.page.lag import Batches, Carried, headroom, most_behind
from binlake_airflow.page.totals import WAITING, Ran

Span = Literal["hour", "day", "week", "month"]
SPANS: dict[Span, tuple[int, int]] = {
    "hour": (MINUTE_US, 60),
    "day": (15 * MINUTE_US, 96),
    "week": (2 * HOUR_US, 84),
    "month": (6 * HOUR_US, 124),
}
"""The microseconds of a period, and the number of periods, by span."""
_PHASES = ("plan", "stage", "merge")
_LOOKS_OF_PHASES = {WAITING: "phase-0", **{phase: f"phase-{at}" for at, phase in enumerate(_PHASES, 1)}}
_LOOKS = ["at_us", "kept_hours", "bytes_ahead", "batch"]


@dataclass(frozen=True)
class Drawn:
    """A chart: its title, what it shows in words, the look of each of its series by name, and the SVG."""

    name: str
    title: str
    says: str
    looks: dict[str, str]
    svg: str


def over_time(config: PipelineConfig, span: Span, width: int) -> dict[str, Any]:
    """Return a source's charts. width: of each, in pixels."""
    metadata, now = metadata_of(config), now_us()
    periods = Periods.until(now, *SPANS[span])
    behind, left = lag_and_headroom(metadata, read_status(config, metadata), periods, now)
    ran = totals_of(metadata).by(periods)
    drawn = [
        _lag(config, periods, behind, width),
        _rows(periods, ran, width),
        _phases(periods, ran, width),
        _headroom(config, periods, left, width),
        *_sizes(metadata, periods, width),
        _events(metadata, periods, ran, width),
    ]
    since = now // DAY_US * DAY_US - VERIFIED_DAYS * DAY_US
    return {
        "source": config.source.name,
        "span": span,
        "charts": [asdict(chart) for chart in drawn if chart],
        "compared": [asdict(day) for day in compared_days(metadata, since)],
        "now_us": now,
    }


def lag_and_headroom(
    metadata: Metadata, status: SourceStatus, periods: Periods, now: int
) -> tuple[list[float | None], list[float | None]]:
    """Return the most seconds that the lake was behind in each period, and for how many seconds the server still kept
    the log."""
    looks = LogRow.read(metadata, *_LOOKS, where=f"at_us >= {periods.since_us}")
    before = LogRow.read(metadata, *_LOOKS, where=f"at_us < {periods.since_us}", newest=Newest("at_us", 1))
    had_nothing = (row for row in (*before, *looks) if row.bytes_ahead == 0)
    nothing_new = [(row.at_us, row.batch) for row in had_nothing if row.batch is not None]
    carried = Carried.by(_batches(metadata, periods.since_us), nothing_new)
    if status.carried_us is not None:
        carried = carried.also(max(now, int(carried.at_us.max(initial=0))), status.carried_us)
        carried = carried.also(*_first_snapshot(metadata, status.carried_us))
    behind = most_behind(periods, carried, now)
    return behind, headroom(periods, behind, [(row.at_us, row.kept_hours) for row in (*before, *looks)])


def _batches(metadata: Metadata, since_us: int) -> Batches:
    """Return the batches recorded since a time, and the one before."""
    columns, recorded = ["batch", "updated_us", "planned_us", "until_us"], "state = 'recorded' AND updated_us"
    last = BatchRow.read(metadata, *columns, where=f"{recorded} < {since_us}", newest=Newest("updated_us", 1))
    rows = metadata.read_columns("batches", columns, where=f"{recorded} >= {since_us}").to_pydict()
    earlier = {name: [getattr(row, name) or 0 for row in last] for name in columns}
    values = {name: np.array([*earlier[name], *(value or 0 for value in rows[name])], np.int64) for name in columns}
    before = np.where(values["until_us"] > 0, values["until_us"], values["planned_us"])
    return Batches(values["batch"], values["updated_us"], before)


def _first_snapshot(metadata: Metadata, carried_us: int) -> tuple[int, int]:
    """Return when the first snapshot ended, and when it began; ``carried_us`` for both if that isn't known any more."""
    rows = RunRow.read(metadata, "started_us", "ended_us", where="kind = 'bootstrap'")
    return min(((row.ended_us, row.started_us) for row in rows), default=(carried_us, carried_us))


def _lag(config: PipelineConfig, periods: Periods, behind: Sequence[float | None], width: int) -> Drawn:
    minutes = config.airflow.lag_minutes
    limit = None if minutes is None else ("limit", minutes * 60)
    title, says = "Behind by", "At most, in each period: what was committed before was in the lake."
    svg = charts.line(title, periods, Series("behind by", "behind", behind), SECONDS, width, limit)
    return Drawn("lag", title, says, {}, svg)


def _headroom(config: PipelineConfig, periods: Periods, left: Sequence[float | None], width: int) -> Drawn | None:
    """Return the chart; None where the server keeps its log for ever, or isn't known."""
    if all(value is None for value in left):
        return None
    hours = config.airflow.retention_hours
    limit = None if hours is None else ("limit", hours * 3600)
    title, says = "Headroom", "For so long at least the server still kept the log that was needed next."
    svg = charts.line(title, periods, Series("kept for", "kept", left), SECONDS, width, limit)
    return Drawn("headroom", title, says, {}, svg)


def _rows(periods: Periods, ran: Sequence[Ran], width: int) -> Drawn:
    kinds = ("inserted", "updated", "deleted")
    series = [Series(kind, kind, [getattr(period, kind) for period in ran]) for kind in kinds]
    title, says = "Rows changed", "Of batches recorded in each period."
    svg = charts.columns(title, periods, series, COUNT, width)
    return Drawn("rows", title, says, {kind: kind for kind in kinds}, svg)


def _phases(periods: Periods, ran: Sequence[Ran], width: int) -> Drawn:
    known = {phase for period in ran for phase, seconds in period.seconds.items() if seconds}
    names = [*_PHASES, *sorted(known - {*_PHASES, WAITING}), WAITING]
    looks = {name: _LOOKS_OF_PHASES.get(name, "phase-4") for name in names}
    series = [Series(name, looks[name], [period.seconds.get(name, 0.0) for period in ran]) for name in names]
    title = "Time of runs, by phase"
    says = "Waiting is what a run took beyond its phases: in Airflow mostly the start of tasks."
    return Drawn("phases", title, says, looks, charts.columns(title, periods, series, SECONDS, width))


def _sizes(metadata: Metadata, periods: Periods, width: int) -> list[Drawn]:
    """Return the charts of the lake's size and number of files; none before an upkeep noted them."""
    ends = [periods.since_us + at * periods.width_us for at in range(1, periods.count + 1)]
    sums = sums_at(metadata, ends)
    if not any(sums):
        return []
    says = "Of the newest versions of all tables, as the upkeep saw them last."
    in_bytes = Series("size", "kept", [None if size is None else size.bytes for size in sums])
    in_files = Series("files", "kept", [None if size is None else size.files for size in sums])
    return [
        Drawn(series.name, title, says, {}, charts.line(title, periods, series, unit, width))
        for title, series, unit in (("Size of the lake", in_bytes, charts.BYTES), ("Data files", in_files, COUNT))
    ]


_LANES = {"failed": "failed", "verify": "verify", "upkeep": "maintain"}
"""Lanes of runs that aren't syncs, and the kind of each."""
_TIMES = {"DDL": ("ddl_history", "committed_us"), "stops": ("quarantine", "at_us"), "decisions": ("decisions", "at_us")}
"""Lanes of other events: the metadata table, and the column of its time."""


def _events(metadata: Metadata, periods: Periods, ran: Sequence[Ran], width: int) -> Drawn:
    since = periods.since_us
    runs = RunRow.read(metadata, "kind", "ended_us", where=f"kind <> 'sync' AND ended_us >= {since}")
    lanes = {name: [row.ended_us for row in runs if row.kind == kind] for name, kind in _LANES.items()}
    for name, (table, column) in _TIMES.items():
        lanes[name] = [row[column] for row in metadata.read(table, [column], where=f"{column} >= {since}")]
    found = metadata.read("verifications", ["at_us"], where=f"at_us >= {since} AND equal = false")
    if found:
        lanes["differing"] = [row["at_us"] for row in found]
    series = [
        Series("syncs", "event-syncs", [period.runs for period in ran]),
        *(Series(name, f"event-{name.lower()}", _counted(periods, times)) for name, times in lanes.items()),
    ]
    title, says = "What happened", "A mark for each period in which something did; all of it is listed below."
    return Drawn("events", title, says, {}, charts.lanes(title, periods, series, width))


def _counted(periods: Periods, times: Sequence[int]) -> list[int]:
    counts = [0] * periods.count
    for time in times:
        index = (time - periods.since_us) // periods.width_us
        if 0 <= index < periods.count:
            counts[index] += 1
    return counts
