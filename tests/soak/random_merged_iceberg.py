"""A table that shows others, which come, go and change at random as random_iceberg.py says: each of its snapshots reads
as its Delta version does, by each reader of Iceberg. Seeds take formats 3 and 2 in turn.

    python tests/soak/random_merged_iceberg.py [--seed 1] [--changes 600]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

from random_iceberg import RandomTable  # noqa: E402

from binlake.iceberg import published_table, table_metadata  # noqa: E402
from iceberg_readers import READERS, assert_same, by_delta, by_delta_extension  # noqa: E402
from merged_table import SOURCE_COLUMN, MergedTable  # noqa: E402

MOST = 6


class RandomShards:
    """A table that shows shards under random changes."""

    def __init__(self, path: Path | str, drawn: random.Random) -> None:
        self.drawn, self.merged = drawn, MergedTable(path)
        self._shards: dict[str, RandomTable] = {}
        self._made = 0
        self._add()
        self._add()

    def change(self) -> None:
        """Change a shard, or let one come or go."""
        chance = self.drawn.random()
        if chance < 0.05 and len(self._shards) < MOST:
            self._add()
        elif chance < 0.08 and len(self._shards) > 1:
            name = self.drawn.choice([*self._shards])
            del self._shards[name], self.merged.shards[name]
        else:
            self._shards[self.drawn.choice([*self._shards])].change()

    def _add(self) -> None:
        """Make a shard, often with the columns of another, perhaps in another order, so that it has other ids."""
        self._made += 1
        name = f"s{self._made}"
        shard = RandomTable(f"{self.merged.path}/{SOURCE_COLUMN}={name}", random.Random(self.drawn.random()))
        if self._shards and self.drawn.random() < 0.7:
            columns = list(self.drawn.choice([*self._shards.values()]).table.columns)
            if self.drawn.random() < 0.5:
                self.drawn.shuffle(columns)
            there = dict(shard.table.columns)
            shard.table.reshape([(each, kind, each if there.get(each) == kind else None) for each, kind in columns])
        self._shards[name] = shard
        self.merged.shards[name] = shard.table


def walk(folder: Path, seed: int, changes: int) -> int:
    """Return how many snapshots were compared."""
    drawn = random.Random(seed)
    shards = RandomShards(folder / f"merged {seed}", drawn)
    merged, version = shards.merged, 2 + seed % 2
    for _ in range(changes):
        shards.change()
        if drawn.random() < 0.4:
            if drawn.random() < 0.2:
                published_table.forget(merged.path)
            merged.publish(version)
            if drawn.random() < 0.2:
                assert_same(merged.path)
    merged.publish(version)
    assert_same(merged.path)
    assert by_delta_extension(merged.path) == by_delta(merged.path)
    metadata = table_metadata.newest(merged.path)
    assert metadata is not None
    for snapshot in metadata.snapshots:
        number = snapshot["snapshot-id"]
        wanted = by_delta(merged.path, number - 1)
        for name, read in READERS.items():
            assert read(merged.path, number) == wanted, f"seed {seed}, {name}, snapshot {number}"
    return len(metadata.snapshots)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--changes", type=int, default=600)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done, compared, seed = 0, 0, asked.seed
        while done < asked.changes:
            compared += walk(Path(folder), seed, 60)
            done, seed = done + 60, seed + 1
            print(f"{done} changes, {compared} snapshots, {', '.join(READERS)}", flush=True)
