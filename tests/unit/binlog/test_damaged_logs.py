"""A real log, damaged: an error with its place, never a crash, a hang or another exception."""

from __future__ import annotations

import itertools
import zlib
from importlib import resources
from pathlib import Path

import numpy as np

from binlake import binlog
from binlake.binlog.border import Mutations
from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.events import HEADER
from binlake.binlog.reader import read
from binlake.binlog.transport import FileTransport
from binlake.errors import BinlogError, PositionLost
from binlake.position import Slice
from binlake.schema.invalid import KEEP_DATES

LOG = (resources.files("binlake.binlog") / "warm.000001").read_bytes()


def test_warm_reads_its_log() -> None:
    assert binlog.warm() == 6


def _events() -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    at = 4
    while at < len(LOG):
        size = HEADER.unpack_from(LOG, at)[3]
        spans.append((at, size))
        at += size
    return spans


def _outcome(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    part = Slice(path.name, 4, len(data), 0, True)
    try:
        rows = sum(
            item.batch.num_rows
            for item in read(FileTransport(path), part, lambda database, table: True)
            if isinstance(item, Mutations) and item.batch.validate(full=True) is None
        )
    except (BinlogError, PositionLost) as error:
        return type(error).__name__ if path.name in str(error) else "an error without its place"
    return f"{rows} rows"


def test_any_flipped_byte_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "b.000001"
    random = np.random.default_rng(3)
    for place in random.integers(4, len(LOG), 300):
        damaged = bytearray(LOG)
        damaged[place] ^= 1 << int(random.integers(0, 8))
        assert not _outcome(path, bytes(damaged)).endswith("rows")


def test_any_cut_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "b.000001"
    ends = {at + size for at, size in _events()}
    for size in range(4, len(LOG), 7):
        outcome = _outcome(path, LOG[:size])
        assert outcome.endswith("rows") == (size in ends)


def test_wrong_bytes_with_right_checksums(tmp_path: Path) -> None:
    """Bytes inside an event change and its checksum is made again: what checks lengths is then alone."""
    path = tmp_path / "b.000001"
    random = np.random.default_rng(4)
    spans = _events()[1:]
    outcomes: set[str] = set()
    for _ in range(500):
        damaged = bytearray(LOG)
        at, size = spans[int(random.integers(0, len(spans)))]
        for _ in range(int(random.integers(1, 4))):
            place = at + int(random.integers(19, size - 4))
            damaged[place] = int(random.integers(0, 256))
        damaged[at + size - 4 : at + size] = zlib.crc32(bytes(damaged[at : at + size - 4])).to_bytes(4, "little")
        outcomes.add(_outcome(path, bytes(damaged)))
    assert "CorruptEvent" in outcomes
    assert "an error without its place" not in outcomes


def test_any_split_gives_the_same_mutations(tmp_path: Path) -> None:
    path = tmp_path / "b.000001"
    path.write_bytes(LOG)
    transport = FileTransport(path)
    whole = Slice(path.name, 4, len(LOG), 0, True)
    limits = list(transaction_boundaries(transport, whole))
    assert len(limits) == 5
    cuts = [4, *(limit.end_offset for limit in limits), len(LOG)]

    def rows(start: int, stop: int) -> list[dict[str, object]]:
        part = Slice(path.name, start, stop, 0, stop == len(LOG))
        emitted = read(transport, part, lambda database, table: True, invalid=KEEP_DATES)
        return [row for item in emitted if isinstance(item, Mutations) for row in item.batch.to_pylist()]

    everything = rows(4, len(LOG))
    assert everything == rows(4, len(LOG))
    assert [row for start, stop in itertools.pairwise(cuts) for row in rows(start, stop)] == everything
    for cut in cuts[1:-1]:
        assert rows(4, cut) + rows(cut, len(LOG)) == everything
