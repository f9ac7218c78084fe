"""Damaged logs for the decoder: an error of our tree with its place, or rows; never anything else.

    .venv/bin/python tests/binlogs/fuzz.py --minutes 10 [--first SEED] [--seed SEED]

Each case is a seed: it chooses a log of this folder and damages it (mutate.py). Children decode the cases, so that a
crash or a hang is caught and its seed printed; ``--seed`` runs one again. Every read and written buffer ends at a
forbidden page, and each case is decoded twice with other bytes behind its events: what depends on them is a fault too.
Exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import mmap
import os
import select
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.append(str(Path(__file__).parents[1] / "support"))

import logs
from guard import GuardedTransport, guarded_buffers
from mutate import mutated

from binlake import binlog
from binlake.binlog.border import Mutations, Stopped
from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.listing import list_events
from binlake.binlog.reader import read
from binlake.binlog.transport import FileTransport
from binlake.errors import BinlogError, PositionLost
from binlake.position import Slice
from binlake.schema.invalid import KEEP_DATES

HANG = 30
"""Seconds after which a case counts as hanging."""
_BATCH = 400
FILE = "fuzzed.000001"


def case(seed: int) -> bytes:
    """The damaged file of a seed."""
    data = (logs.HERE / f"{logs.NAMES[seed % len(logs.NAMES)]}.000001").read_bytes()
    return mutated(np.random.default_rng(seed), data)


def outcome(path: Path, size: int, fill: int) -> str:
    """``rows N …`` with a checksum of all that was decoded, or the error's name. Raises what it mustn't."""
    part = Slice(path.name, 4, size, 0, True)
    rows, digest, stopped = 0, hashlib.sha256(), 0
    try:
        transport = GuardedTransport(path, fill)
        for item in read(transport, part, lambda database, table: True, invalid=KEEP_DATES):
            stopped += isinstance(item, Stopped)
            if isinstance(item, Mutations):
                item.batch.validate(full=True)
                rows += item.batch.num_rows
                digest.update(repr(item.batch.slice(0, 64).to_pylist()).encode())
    except (BinlogError, PositionLost) as error:
        _has_place(error, path)
        return type(error).__name__
    return f"{'stopped' if stopped else 'rows'} {rows} {digest.hexdigest()}"


def _has_place(error: BinlogError | PositionLost, path: Path) -> None:
    if path.name not in str(error):
        raise AssertionError(f"an error without its place: {error}") from error


def check(seed: int, path: Path) -> str:
    """The kind of a case's outcome. Raises what would be a fault of the decoder."""
    data = case(seed)
    path.write_bytes(data)
    results = []
    for fill in (0, 0xFF):
        with guarded_buffers(fill):
            results.append(outcome(path, len(data), fill))
    assert results[0] == results[1], "bytes behind an event were heeded"
    part = Slice(path.name, 4, len(data), 0, True)
    for walk in (transaction_boundaries, list_events):
        try:
            list(walk(FileTransport(path), part))
        except (BinlogError, PositionLost) as error:
            _has_place(error, path)
    return results[0].split()[0]


def _child(seeds: range, path: Path, progress: np.ndarray, report: int) -> None:
    """Decodes the cases; one line for each outcome. Never returns."""
    faulthandler.disable()
    with os.fdopen(report, "w", 1) as lines:
        for seed in seeds:
            progress[0] = seed
            try:
                lines.write(f"{check(seed, path)}\n")
            except BaseException:
                lines.write(f"FAILED {seed} {traceback.format_exc()!r}\n")
    os._exit(0)


def run_children(seeds: range, counts: Counter[str], failures: list[str]) -> None:
    """The cases in a child; after a crash or a hang, the rest in another."""
    shared = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.int64)
    with tempfile.TemporaryDirectory() as folder:
        first = seeds.start
        while first < seeds.stop:
            shared[0] = first
            out, into = os.pipe()
            child = os.fork()
            if not child:
                os.close(out)
                _child(range(first, seeds.stop), Path(folder) / FILE, shared, into)
            os.close(into)
            verdict, text = _watch(child, out, shared)
            for line in text.splitlines():
                word, *rest = line.split(" ", 2)
                counts[word] += 1
                if word == "FAILED":
                    failures.append(f"seed {rest[0]}: {rest[1]}")
            if not verdict:
                return
            counts[verdict] += 1
            failures.append(f"seed {int(shared[0])}: {verdict}")
            first = int(shared[0]) + 1


def _watch(child: int, out: int, shared: np.ndarray) -> tuple[str, str]:
    """How the child ended ('' if well), and what it wrote."""
    pieces: list[bytes] = []
    seed, since = int(shared[0]), time.monotonic()
    while True:
        ready, _, _ = select.select([out], [], [], 1)
        if ready:
            piece = os.read(out, 1 << 16)
            if not piece:
                break
            pieces.append(piece)
        if int(shared[0]) != seed:
            seed, since = int(shared[0]), time.monotonic()
        elif time.monotonic() - since > HANG:
            os.kill(child, 9)
            os.waitpid(child, 0)
            os.close(out)
            return "HANG", b"".join(pieces).decode()
    os.close(out)
    _, status = os.waitpid(child, 0)
    return ("" if not status else f"CRASH-{status}"), b"".join(pieces).decode()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--minutes", type=float, default=1)
    options.add_argument("--first", type=int, default=int(time.time()) * 1000)
    options.add_argument("--seed", type=int)
    chosen = options.parse_args()
    pa.set_cpu_count(1)
    binlog.warm()
    if chosen.seed is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(check(chosen.seed, Path(folder) / FILE))
        return 0
    counts: Counter[str] = Counter()
    failures: list[str] = []
    end, seed = time.monotonic() + 60 * chosen.minutes, chosen.first
    while time.monotonic() < end and len(failures) < 20:
        run_children(range(seed, seed + _BATCH), counts, failures)
        seed += _BATCH
    print(f"{seed - chosen.first} cases from seed {chosen.first}: {dict(counts)}")
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
