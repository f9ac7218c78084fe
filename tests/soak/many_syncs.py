"""A lake that lives long: ``many_syncs.py KIND COUNT [MINUTES] [FOLDER]``.

Syncs of one table, in one process and one Spark session, looked after as by the daily DAG, with promises of seconds in
the place of weeks: the number of files, the time of a sync and the size of metadata must stay bounded. Ends after COUNT
syncs or MINUTES, prints a table, proves the lake equal, and draws it into FOLDER (soak-light.svg, soak-dark.svg).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

import bench_pictures  # noqa: E402
from bench_pictures import Bar, Chart  # noqa: E402
from binlake.lake import session  # noqa: E402
from long_life import BRIEF, Stand, begin, live  # noqa: E402
from mirror import Mirror  # noqa: E402
from servers import Kind, Server  # noqa: E402

ROWS, EVERY, BARS = 200_000, 24, 12


def main(kind: Kind, count: int, minutes: float, folder: Path | None) -> None:
    spark = session.build("soak", master="local[2]")
    with Server(kind) as server, tempfile.TemporaryDirectory(prefix="binlake-soak-") as lake:
        server.execute("CREATE DATABASE d")
        mirror = Mirror(server, "d", Path(lake), spark, options={"maintain": {**BRIEF, "file_mb": 4}})
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
    if folder:
        draw(stands, folder)
    spark.stop()


def draw(stands: Sequence[Stand], folder: Path) -> None:
    """A dozen of the stands, evenly chosen."""
    shown = stands[:: max(1, len(stands) // BARS)]
    titles = {
        "sync_seconds": ("A sync", "seconds"),
        "files_on_disk": ("The table's folder after upkeep", "files"),
        "metadata_files": ("binlake's own tables after upkeep", "files"),
        "megabytes": ("The whole lake after upkeep", "MB"),
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
