"""A lake that lives long: ``many_syncs.py KIND COUNT [MINUTES] [FOLDER]``.

Syncs of one table, in one process and none of them with Spark, looked after as by the daily DAG, with promises of
seconds in the place of weeks: the number of files, the CPU time of a sync and the size of metadata must stay bounded.
Ends after COUNT syncs or MINUTES, prints a table, proves the lake equal and its bounds, and draws it into FOLDER
(soak-light.svg, soak-dark.svg).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

import bench_pictures  # noqa: E402
from bench_pictures import Bar, Chart  # noqa: E402
from binlake import pipeline  # noqa: E402
from binlake.records.record import RunReport  # noqa: E402
from binlake.report import Report  # noqa: E402
from binlake.spark import session  # noqa: E402
from long_life import BRIEF, Stand, begin, live  # noqa: E402
from mirror import Mirror  # noqa: E402
from servers import Kind, Server  # noqa: E402

ROWS, EVERY, BARS = 200_000, 25, 5
LATE = 2.0
"""What the last fifth of the stands may be of the first: what only grows comes to nine times that."""
LATE_CPU = 1.5
"""The same of a sync's CPU time, of the last two stands and the first two: the table has grown by a tenth."""
BOUNDED = ("data_files", "files_on_disk", "log_files", "metadata_files", "metadata_megabytes", "megabytes")


class WithoutSpark(Mirror):
    """Its syncs, as they are by default where few rows change."""

    def sync(self, **options: Any) -> RunReport:
        def refuse(why: str) -> NoReturn:
            raise AssertionError(f"a sync asks for Spark: {why}")

        return pipeline.sync(self.config, self.origin, refuse, Report(quiet=True), **options)


def main(kind: Kind, count: int, minutes: float, folder: Path | None) -> None:
    spark = session.build("soak", master="local[2]")
    with Server(kind) as server, tempfile.TemporaryDirectory(prefix="binlake-soak-") as lake:
        server.execute("CREATE DATABASE d")
        mirror = WithoutSpark(server, "d", Path(lake), spark, options={"maintain": {**BRIEF, "file_mb": 4}})
        begin(mirror, ROWS)
        ends = time.monotonic() + minutes * 60
        stands: list[Stand] = []
        print(" ".join(f"{field.name:>16}" for field in fields(Stand)))
        for stand in live(mirror, count, EVERY):
            stands.append(stand)
            print(" ".join(f"{value:>16}" for value in astuple(stand)), flush=True)
            if time.monotonic() > ends:
                break
        mirror.assert_equal("t")
        print(f"{kind}: equal after {stands[-1].syncs} syncs")
    spark.stop()
    if folder:
        draw(stands, folder)
    assert_bounded(stands)


def assert_bounded(stands: Sequence[Stand]) -> None:
    fifth = max(1, len(stands) // 5)
    grown = {name: _later(stands, name, fifth) for name in BOUNDED}
    cpu = _later(stands, "sync_cpu_seconds", 2)
    print("late to early:", {**grown, "sync_cpu_seconds": cpu})
    assert max(grown.values()) <= LATE, grown
    assert cpu <= LATE_CPU, cpu


def _later(stands: Sequence[Stand], name: str, count: int) -> float:
    """How many times the mean of the first is that of the last."""
    first, last = (sum(getattr(stand, name) for stand in part) for part in (stands[:count], stands[-count:]))
    return round(last / first, 2)


def draw(stands: Sequence[Stand], folder: Path) -> None:
    """A few of the stands, evenly chosen, the last among them."""
    shown = stands[:: -max(1, len(stands) // BARS)][::-1]
    titles = {
        "sync_cpu_seconds": ("A sync", "CPU seconds"),
        "files_on_disk": ("The table's folder", "data files"),
        "log_files": ("The table's Delta log", "files"),
        "metadata_files": ("binlake's own tables, their logs included", "files"),
        "metadata_megabytes": ("The same", "MB"),
    }
    charts = [
        Chart(title, unit, [Bar(f"after {stand.syncs} syncs", getattr(stand, name)) for stand in shown])
        for name, (title, unit) in titles.items()
    ]
    for name, colours in bench_pictures.COLOURS.items():
        (folder / f"soak-{name}.svg").write_text(bench_pictures.draw(charts, colours), encoding="utf-8")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        arguments[0],  # type: ignore[arg-type]
        int(arguments[1]),
        float(arguments[2]) if len(arguments) > 2 else 60.0,
        Path(arguments[3]) if len(arguments) > 3 else None,
    )
