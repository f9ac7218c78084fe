"""A table that many syncs change, and what its lake has come to."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from mirror import Mirror

BRIEF = {"history_hours": 0.01, "log_hours": 0.01, "metadata_hours": 0.01, "runs_days": 0.0005}
"""Promises that are over within the run, as a week is within years: 36 s of history."""


@dataclass(frozen=True)
class Stand:
    """After some syncs: the mean CPU seconds of one in this process, the seconds of the upkeep, and what there is.
    log: files of the table's Delta log. metadata: our own tables, their logs included."""

    syncs: int
    sync_cpu_seconds: float
    maintain_seconds: float
    data_files: int
    files_on_disk: int
    log_files: int
    metadata_files: int
    metadata_megabytes: float
    megabytes: float


def begin(mirror: Mirror, rows: int) -> None:
    mirror.execute(
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(40), n INT)",
        "SET SESSION cte_max_recursion_depth = 10000000"
        if mirror.server.kind == "mysql"
        else "SET SESSION max_recursive_iterations = 10000000",
        "INSERT INTO t (v, n) WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < "
        f"{rows}) SELECT LEFT(SHA2(i, 256), 40), i FROM s",
    )
    mirror.snapshot()


def live(mirror: Mirror, syncs: int, every: int, *, upkeep: bool = True, seed: int = 1) -> Iterator[Stand]:
    """Syncs after new rows at the end, changed ones near it and anywhere, and deleted ones; a stand after ``every``.

    Without ``upkeep`` nobody looks after the lake.
    """
    chance = random.Random(seed)
    for block in range(0, syncs, every):
        seconds = 0.0
        for _ in range(min(every, syncs - block)):
            _change(mirror, chance)
            began = time.process_time()
            mirror.sync()
            seconds += time.process_time() - began
        began = time.monotonic()
        if upkeep:
            mirror.maintain()
        done = min(block + every, syncs)
        yield _stand(mirror, done, seconds / (done - block), time.monotonic() - began if upkeep else 0.0)


def _change(mirror: Mirror, chance: random.Random) -> None:
    ((newest,),) = mirror.server.execute("SELECT MAX(id) FROM t", database=mirror.database)
    anywhere = ", ".join(str(chance.randint(1, int(newest))) for _ in range(5))
    mirror.execute(
        "INSERT INTO t (v, n) VALUES " + ", ".join(f"('{chance.random()}', {n})" for n in range(20)),
        f"UPDATE t SET n = n + 1 WHERE id > {int(newest) - 50}",
        f"UPDATE t SET v = '{chance.random()}' WHERE id IN ({anywhere})",
        f"DELETE FROM t WHERE id = {chance.randint(1, int(newest))}",
    )


def _stand(mirror: Mirror, syncs: int, sync_cpu_seconds: float, maintain_seconds: float) -> Stand:
    table, ours = Path(mirror.path("t")), Path(mirror.config.metadata_path(""))
    log = _files(table / "_delta_log")
    return Stand(
        syncs,
        round(sync_cpu_seconds, 3),
        round(maintain_seconds, 2),
        len(DeltaTable(str(table)).file_uris()),
        len(_files(table)) - len(log),
        len(log),
        len(_files(ours)),
        _megabytes(ours),
        _megabytes(mirror.folder),
    )


def _megabytes(folder: Path) -> float:
    return round(sum(file.stat().st_size for file in _files(folder)) / 1e6, 2)


def _files(folder: Path) -> list[Path]:
    """Without those that Hadoop puts beside each."""
    return [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".crc")]
