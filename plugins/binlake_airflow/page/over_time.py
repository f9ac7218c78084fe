"""Charts of what happened to a source over an hour, a day, a week or a month, from metadata alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, tzinfo
from typing import Any, Literal

import numpy as np

from binlake.config import PipelineConfig
from binlake.config.units import HOUR_US
from binlake.records.evidence import lag_seconds, log_standing
from binlake.records.lake_sizes import sums_at
from binlake.records.status import SourceStatus, read_status
from binlake.store.conditions import Newest
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import BatchRow, DecisionRow, LogRow, QuarantineRow, StatementRow
from binlake.store.run_rows import RunRow, VerificationRow
from binlake.store.typed_rows import Row
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
_OLDER = Newest("ended_us", 1)
_PHASES = ("plan", "stage", "merge")
_LOOKS_OF_PHASES = {WAITING: "phase-0", **{phase: f"phase-{at}" for at, phase in enumerate(_PHASES, 1)}}
_LOOKS = ["at_us", "kept_hours", "bytes_ahead", "batch", "kind"]


@dataclass(frozen=True)
class Drawn:
    """A chart: its title, what it shows in words, the look of each of its series by name, and the SVG. is_empty: it
    shows nothing in its span."""

    name: str
    title: str
    says: str
    looks: dict[str, str]
    svg: str
    is_empty: bool = False


def over_time(config: PipelineConfig, span: Span | None, width: int, zone: tzinfo = UTC) -> dict[str, Any]:
    """Return a source's charts. span: None for that which fits what is known. width: of each, in pixels. zone: in which
    times are said."""
    metadata, now = metadata_of(config), now_us()
    status = read_status(config, metadata)
    span = span or fitting(metadata, status, now)
    periods = Periods.until(now, *SPANS[span], zone)
    looks = _looks(metadata, periods)
    behind, left = lag_and_headroom(metadata, status, periods, now, looks)
    ran = totals_of(metadata).by(periods)
    drawn = [
        _lag(config, periods, behind, width),
        _rows(periods, ran, width),
        _phases(periods, ran, width),
        _headroom(config, periods, left, width),
        *_sizes(metadata, periods, width),
        _events(metadata, periods, ran, looks, width),
    ]
    return {
        "source": config.source.name,
        "span": span,
        "charts": [asdict(chart) for chart in drawn if not chart.is_empty],
        "empty": [chart.title for chart in drawn if chart.is_empty],
        "compared": [asdict(day) for day in compared_days(metadata, now, VERIFIED_DAYS, zone)],
        "now_us": now,
    }


def fitting(metadata: Metadata, status: SourceStatus, now: int) -> Span:
    """Return the span to begin with: an hour where all that is known is younger, else the shortest from a day on in
    which something happened."""
    newest = max(status.last_run.ended_us if status.last_run else 0, status.nothing_new_us or 0)
    if newest and not RunRow.first(metadata, "ended_us", where=f"ended_us < {now - HOUR_US}", newest=_OLDER):
        return "hour"
    reach: dict[Span, int] = {span: width * (count - 1) for span, (width, count) in SPANS.items() if span != "hour"}
    return next((span for span, us in reach.items() if newest >= now - us), "month") if newest else "day"


def _looks(metadata: Metadata, periods: Periods) -> list[LogRow]:
    """Return the looks at the server's log in all periods, and the last one before."""
    before = LogRow.read(metadata, *_LOOKS, where=f"at_us < {periods.since_us}", newest=Newest("at_us", 1))
    return [*before, *LogRow.read(metadata, *_LOOKS, where=f"at_us >= {periods.since_us}")]


def lag_and_headroom(
    metadata: Metadata, status: SourceStatus, periods: Periods, now: int, looks: Sequence[LogRow]
) -> tuple[list[float | None], list[float | None]]:
    """Return the most seconds that the lake was behind in each period, and for how many seconds the server still kept
    the log."""
    had_nothing = (row for row in looks if row.bytes_ahead == 0)
    nothing_new = [(row.at_us, row.batch) for row in had_nothing if row.batch is not None]
    carried = Carried.by(_batches(metadata, periods.since_us), nothing_new)
    if status.carried_us is not None:
        carried = carried.also(*_first_snapshot(metadata, status.carried_us))
    lag = lag_seconds(status, log_standing(metadata, status), now)
    kept = [(row.at_us, row.kept_hours) for row in looks]
    at_most = most_behind(periods, carried.as_batches(), now)  # what was written since the newest look isn't known
    return most_behind(periods, carried, now, lag), headroom(periods, at_most, kept)


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
    series = Series("behind by", "behind", behind)
    says = "The most in each period: everything committed before was in the lake."
    return _line("lag", "Behind by", says, periods, series, width, None if minutes is None else minutes * 60)


def _headroom(config: PipelineConfig, periods: Periods, left: Sequence[float | None], width: int) -> Drawn:
    """Return the chart; an empty one where the server keeps its log for ever, or isn't known."""
    hours = config.airflow.retention_hours
    says = "For at least this long the server still kept the log that was needed next."
    series = Series("kept for", "kept", left)
    return _line("headroom", "Headroom", says, periods, series, width, None if hours is None else hours * 3600)


def _line(name: str, title: str, says: str, periods: Periods, series: Series, width: int, limit: float | None) -> Drawn:
    """Return a line of seconds, with its limit in the legend."""
    looks = {}
    if limit is not None:
        far = ", far above" if charts.is_far(series, limit) else ""
        looks = {f"limit {charts.duration(limit)}{far}": "limit"}
    svg = charts.line(title, periods, series, SECONDS, width, limit)
    return Drawn(name, title, says, looks, svg, is_empty=all(value is None for value in series.values))


def _rows(periods: Periods, ran: Sequence[Ran], width: int) -> Drawn:
    kinds = ("inserted", "updated", "deleted")
    series = [Series(kind, kind, [getattr(period, kind) for period in ran]) for kind in kinds]
    title, says = "Rows changed", "Of batches recorded in each period."
    svg = charts.columns(title, periods, series, COUNT, width)
    return Drawn("rows", title, says, {kind: kind for kind in kinds}, svg, is_empty=_are_empty(series))


def _phases(periods: Periods, ran: Sequence[Ran], width: int) -> Drawn:
    known = {phase for period in ran for phase, seconds in period.seconds.items() if seconds}
    names = [*_PHASES, *sorted(known - {*_PHASES, WAITING}), WAITING]
    looks = {name: _LOOKS_OF_PHASES.get(name, "phase-4") for name in names}
    series = [Series(name, looks[name], [period.seconds.get(name, 0.0) for period in ran]) for name in names]
    title = "Time of runs, by phase"
    says = "Waiting is a run's time outside its phases: in Airflow mostly the start of tasks."
    svg = charts.columns(title, periods, series, SECONDS, width)
    return Drawn("phases", title, says, looks, svg, is_empty=_are_empty(series))


def _are_empty(series: Sequence[Series]) -> bool:
    return not any(value for member in series for value in member.values)


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


_LANES = {"snapshots": "bootstrap", "failed": "failed", "verify": "verify", "repairs": "repair", "upkeep": "maintain"}
"""Lanes of runs that aren't syncs, and the kind of each."""
_TIMES: dict[str, tuple[type[Row], str]] = {
    "DDL": (StatementRow, "committed_us"),
    "stops": (QuarantineRow, "at_us"),
    "decisions": (DecisionRow, "at_us"),
}
"""Lanes of other events: their rows, and the column of their time."""


def _events(metadata: Metadata, periods: Periods, ran: Sequence[Ran], looks: Sequence[LogRow], width: int) -> Drawn:
    """Return a lane for each kind of event of which there is one."""
    since = periods.since_us
    runs = RunRow.read(metadata, "kind", "ended_us", where=f"kind <> 'sync' AND ended_us >= {since}")
    lanes = {name: [row.ended_us for row in runs if row.kind == kind] for name, kind in _LANES.items()}
    for name, (rows, column) in _TIMES.items():
        lanes[name] = [getattr(row, column) for row in rows.read(metadata, column, where=f"{column} >= {since}")]
    found = VerificationRow.read(metadata, "at_us", where=f"at_us >= {since} AND equal = false")
    if found:
        lanes["differing"] = [row.at_us for row in found]
    quiet = _counted(periods, [row.at_us for row in looks if row.kind == "nothing new"])
    series = [
        Series("syncs", "event-syncs", [period.runs + count for period, count in zip(ran, quiet, strict=True)]),
        *(Series(name, f"event-{name.lower()}", _counted(periods, times)) for name, times in lanes.items()),
    ]
    series = [lane for lane in series if any(lane.values)]
    title, says = "What happened", "A mark for each period in which it happened; the list below has all of it."
    return Drawn("events", title, says, {}, charts.lanes(title, periods, series, width), is_empty=not series)


def _counted(periods: Periods, times: Sequence[int]) -> list[int]:
    counts = [0] * periods.count
    for time in times:
        index = (time - periods.since_us) // periods.width_us
        if 0 <= index < periods.count:
            counts[index] += 1
    return counts
