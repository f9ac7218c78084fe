"""What masks cost the stage step: CPU of decoding and staging a log with them, beside the same log without.

bench_masks.py [PASSES]    the logs of bench_logs.py, plain and masked in turns; the figures go to .binlake/bench.json
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import bench_logs
from bench_figures import Figure, keep, show
from binlake.binlog.border import Withheld
from binlake.binlog.reader import read
from binlake.binlog.transport import FileTransport
from binlake.schema import hash_key
from binlake.schema.hash_key import HashKey
from binlake.schema.invalid import FAIL
from binlake.schema.mask import Mask
from binlake.staging.staged_files import stage_slice

_KEY = HashKey.of("a key of the bench")
_HASH = Mask("hash", 64, _KEY.fingerprint)
_OTHERS = {
    "code": Mask("keep", first=1, last=2, fill="*"),
    "born": Mask("truncate", unit="year"),
    "note": Mask("nothing"),
}
MASKS: Mapping[tuple[str, str], Mapping[str, Mask]] = {
    ("wide", "a hash of 64 digits"): {"name": _HASH},
    ("wide", "three other masks"): _OTHERS,
    ("wide", "these four"): {**_OTHERS, "name": _HASH},
    ("narrow", "a hash of 64 digits"): {"pad": _HASH},
}
"""By the log, and what they are called."""


def staged(log: bench_logs.Log, masks: Mapping[str, Mask]) -> float:
    """Stage a log, and return the CPU seconds."""
    withheld = Withheld(masks=masks)
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        transport = FileTransport(Path(log.datadir))
        items = read(
            transport,
            log.slice(),
            lambda database, table: database == log.name,
            masking=(lambda name, columns: withheld) if masks else None,
        )
        stage_slice(items, log.slice(), 0, folder, FAIL)
    return time.process_time() - began


def figures(passes: int) -> list[Figure]:
    """Return the ratio of each to the log without masks."""
    hash_key.use([_KEY])
    ratios: list[Figure] = []
    for (name, what), masks in MASKS.items():
        log = bench_logs.kept(name)
        staged(log, masks)
        pairs = [(staged(log, {}), staged(log, masks)) for _ in range(passes)]
        plain, masked = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
        ratios.append((f"staging {name} rows with {what} : without masks", masked / plain, "times"))
    return ratios


if __name__ == "__main__":
    measured = figures(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
    show("masks", measured)
    keep(measured)
