"""A source that is followed for hours: ``following.py [MINUTES] [CHANGES A SECOND] [TABLES] [EVERY]``.

By default two hours of 1,000 changes a second in 50 tables of MySQL, looked at every second. In the end every table
equals the server's. What the first minutes behind the start were is compared with the last ones: how fresh the lake
was, CPU and memory. Where the machine has become slower meanwhile by itself, times may be longer by as much.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

import comparison  # noqa: E402
from bench_figures import show  # noqa: E402
from bench_follow import Freshness, figures, measure  # noqa: E402
from binlake.config import PipelineConfig  # noqa: E402
from binlake.report import Report  # noqa: E402
from binlake.schema.table import TableName  # noqa: E402
from servers import Server  # noqa: E402

WINDOW = 300.0
"""Seconds at the beginning, and at the end, that are compared."""
LATE = 1.2
"""How many times the early figures the late ones may be, on a machine that is as quick as before."""


def main(minutes: float, pace: float, tables: int, every: float) -> None:
    def equal(server: Server, config: PipelineConfig) -> None:
        for number in range(tables):
            name = TableName("follow", f"t{number}")
            comparison.assert_equal(server, name.database, name.table, config.table_path(name))
        print(f"equal: {tables} tables")

    measured = measure(minutes * 60, pace, tables, Report(), equal, every=every)
    show("following", figures(measured, tables, minutes * 60))
    assert_steady(measured)


def assert_steady(measured: Freshness) -> None:
    first, last = measured.delays[0][0], measured.delays[-1][0]
    window = min(WINDOW, (last - first) / 3)
    count = round(window)
    slower = statistics.median(measured.reference[-count:]) / statistics.median(measured.reference[:count])
    late = {}
    for share in (0.5, 0.95):
        begin = measured.percentile(share, until=first + window)
        late[f"p{share * 100:.0f}"] = measured.percentile(share, since=last - window) / begin
    early, later = measured.usage[:count], measured.usage[-count:]
    late["cpu"] = (later[-1].cpu_seconds - later[0].cpu_seconds) / (early[-1].cpu_seconds - early[0].cpu_seconds)
    late["memory"] = max(sample.megabytes for sample in later) / max(sample.megabytes for sample in early)
    print("late to early:", {name: round(value, 2) for name, value in late.items()}, f"the machine: {slower:.2f}")
    most = {name: LATE * (1 if name == "memory" else max(1, slower)) for name in late}
    assert all(value <= most[name] for name, value in late.items()), (late, most)


if __name__ == "__main__":
    asked = [float(text) for text in sys.argv[1:]]
    minutes, pace, tables, every = (*asked, *(120.0, 1000.0, 50.0, 1.0)[len(asked) :])
    main(minutes, pace, int(tables), every)
