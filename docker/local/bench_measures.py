"""One measurement of the decoder's bench, in a process of its own: ``bench_measures.py WHAT ARGUMENTS`` prints JSON.

Rates are counted per second of the process's own CPU time as well as by the clock: on a shared machine the first is the
one that repeats. Each measurement reads its log once to warm up, then several times, and gives the median.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from binlake.schema.invalid import FAIL

PASSES = 5


def excluded(log: dict[str, Any], what: str) -> Callable[[str, str], Any]:
    """What a reader wants of a log: all, all but its large columns, or its small table alone."""
    if what == "columns":
        return lambda database, table: frozenset({"body", "words"})
    if what == "table":
        return lambda database, table: table == "beside"
    return lambda database, table: database == log["name"]


def decode(log: dict[str, Any], what: str = "all") -> int:
    """Mutations that binlake decodes from the file, checksums proved, JSON as text."""
    from binlake.binlog.border import Mutations
    from binlake.binlog.reader import read

    items = read(_transport(log), _slice(log), excluded(log, what))
    return sum(item.batch.num_rows for item in items if isinstance(item, Mutations))


def stage(log: dict[str, Any], what: str = "all") -> int:
    """The same into staging's Parquet."""
    from binlake.binlog.reader import read
    from binlake.staging.staged_files import stage_slice

    part = _slice(log)
    with tempfile.TemporaryDirectory() as folder:
        items = read(_transport(log), part, excluded(log, what))
        staged = stage_slice(items, part, 0, folder, FAIL)
    return sum(file.rows for file in staged.files)


def _transport(log: dict[str, Any]) -> Any:
    from pathlib import Path

    from binlake.binlog.transport import FileTransport

    return FileTransport(Path(log["datadir"]))


def _slice(log: dict[str, Any]) -> Any:
    from binlake.position import Slice

    return Slice(log["file"], log.get("start", 4), log["size"], 0, False)


def repeated(work: Callable[[], int]) -> dict[str, float]:
    rows = work()
    walls, cpus = [], []
    for _ in range(PASSES):
        began, used = time.perf_counter(), time.process_time()
        rows = work()
        walls.append(time.perf_counter() - began)
        cpus.append(time.process_time() - used)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "rows": rows,
        "wall": statistics.median(walls),
        "cpu": statistics.median(cpus),
        "peak_mb": peak / 1024,
    }


def together(work: Callable[[], int]) -> dict[str, float]:
    """For processes side by side: warm, wait for the word on standard input, then work through the passes."""
    work()
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    rows = sum(work() for _ in range(PASSES))
    return {"rows": rows, "wall": time.perf_counter() - began}


def wire(log: dict[str, Any], port: int) -> dict[str, float]:
    """Bytes of the log read from the live server as a replica, not decoded."""
    from binlake.source.dump import ServerTransport
    from binlake.source.endpoint import Endpoint

    transport = ServerTransport(Endpoint("127.0.0.1", port, "root", ""), 6198, "mysql")
    return repeated(lambda: sum(chunk.size for chunk in transport.chunks(_slice(log))))


def cold(log: dict[str, Any]) -> dict[str, float]:
    """What a stage task pays before it is at work: modules, kernels out of their cache, a small slice to Parquet."""
    began = time.perf_counter()
    import binlake.staging.stage  # noqa: F401

    imported = time.perf_counter()
    rows = stage(log)
    return {"rows": rows, "import": imported - began, "wall": time.perf_counter() - began}


def mysql_replication(log: dict[str, Any], port: int, seconds: float) -> dict[str, float]:
    """Rows that mysql-replication gives out of the live server's log in some seconds."""
    from pymysqlreplication import BinLogStreamReader

    reader = BinLogStreamReader(
        connection_settings={"host": "127.0.0.1", "port": port, "user": "root", "passwd": ""},
        server_id=6199,
        log_file=log["file"],
        log_pos=4,
        resume_stream=True,
        only_schemas=[log["name"]],
        only_events=_row_events(),
    )
    rows = 0
    began, used = time.perf_counter(), time.process_time()
    for event in _for_some_time(reader, began + seconds):
        rows += len(event.rows)
        if rows >= log["rows"]:
            break
    result = {"rows": rows, "wall": time.perf_counter() - began, "cpu": time.process_time() - used}
    reader.close()
    return result


def _row_events() -> list[Any]:
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

    return [WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent]


def _for_some_time(reader: Any, end: float) -> Iterator[Any]:
    for event in reader:
        yield event
        if time.perf_counter() > end:
            return


def main(what: str, log: dict[str, Any], *more: str) -> dict[str, float]:
    if what == "decode":
        return repeated(lambda: decode(log, *more))
    if what == "stage":
        return repeated(lambda: stage(log, *more))
    if what == "together":
        return together(lambda: decode(log))
    if what == "cold":
        return cold(log)
    if what == "wire":
        return wire(log, int(more[0]))
    if what == "mysql-replication":
        return mysql_replication(log, int(more[0]), float(more[1]))
    raise SystemExit(f"no measurement is called {what}")


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:])))
