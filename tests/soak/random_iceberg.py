"""A Delta table is changed at random, as batches, DDL, upkeep and others change it, and published in between: each
snapshot that is there reads as the Delta version does, by each reader of Iceberg. Seeds take formats 3 and 2 in turn.

    python tests/soak/random_iceberg.py [--seed 1] [--changes 2000] [--shapes 0]

With --shapes most changes are of columns, and it ends when there were so many of these, too.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

from binlake.delta import log_files  # noqa: E402
from binlake.iceberg import published_table, table_metadata  # noqa: E402
from binlake.iceberg.publication import publish  # noqa: E402
from binlake.iceberg.table_metadata import TableMetadata  # noqa: E402
from iceberg_readers import READERS, assert_same, by_delta  # noqa: E402
from plain_table import PlainTable  # noqa: E402

KINDS = ("INT", "BIGINT", "STRING", "DOUBLE", "DECIMAL(10,2)")
NAMES = ("a", "b", "c", "d", "e e")
_VALUES = {"INT": int, "BIGINT": int, "STRING": str, "DOUBLE": float, "DECIMAL(10,2)": int}


class RandomTable:
    """A table under random changes. shaped: the version since which columns are the same. shapes: how often columns
    changed. weight: of such changes among others."""

    def __init__(self, path: Path | str, drawn: random.Random, weight: float = 2) -> None:
        self.shapes, self.weight = 0, weight
        self.drawn, self.path = drawn, path
        self.table = PlainTable(path, [("id", "INT"), ("a", "STRING"), ("b", "BIGINT")])
        self.shaped, self.next = 0, 0

    def rows(self) -> list[dict[str, object]]:
        count = self.drawn.randint(1, 6)
        self.next += count
        return [
            {
                name: None if name != "id" and self.drawn.random() < 0.2 else _VALUES[kind](number % 97)
                for name, kind in self.table.columns
            }
            for number in range(self.next - count, self.next)
        ]

    def change(self) -> str:
        """Change the table, and say how."""
        there = self.table.files
        name = self.drawn.choices(
            ("append", "hide", "replace", "restore", "truncate", "column"),
            (6, 6, 3, 2, 0.3, self.weight if there else 0.5),
        )[0]
        if name == "append" or (not there and name in ("hide", "replace")):
            self.table.append(self.rows())
        elif name == "hide":
            chosen = self.drawn.sample(there, min(len(there), self.drawn.randint(1, 3)))
            self.table.hide({add["path"]: [self.drawn.randrange(rows_of(add))] for add in chosen})
        elif name == "replace":
            self.table.replace(self.drawn.sample(there, min(len(there), self.drawn.randint(1, 4))), self.rows())
        elif name == "restore":
            self.table.restore(self.drawn.randint(max(self.shaped, self.table.version - 8), self.table.version))
        elif name == "truncate":
            self.table.replace(there, self.rows())
        else:
            self.reshape()
        return name

    def reshape(self) -> None:
        """Add, drop, rename or move a column, or give it another type, which makes a new one."""
        columns: list[tuple[str, str, str | None]] = [(name, kind, name) for name, kind in self.table.columns]
        free = [name for name in NAMES if name not in dict(self.table.columns)]
        place = self.drawn.randrange(1, len(columns)) if len(columns) > 1 else None
        what = self.drawn.choice(("add", "drop", "rename", "move", "retype", "swap"))
        if what == "add" or place is None:
            if free:
                columns.insert(self.drawn.randint(0, len(columns)), (free[0], self.drawn.choice(KINDS), None))
        elif what == "drop":
            del columns[place]
        elif what == "rename" and free:
            columns[place] = (self.drawn.choice(free), *columns[place][1:])
        elif what == "move":
            columns.append(columns.pop(place))
        elif what == "retype":
            columns[place] = (columns[place][0], self.drawn.choice(KINDS), None)
        elif what == "swap" and len(columns) > 2:
            (one, kind, origin), (other, other_kind, other_origin) = self.drawn.sample(columns[1:], 2)
            names = {one: (other, kind, origin), other: (one, other_kind, other_origin)}
            columns = [names.get(column[0], column) for column in columns]
        self.table.reshape(columns)
        self.shaped = self.table.version
        self.shapes += 1


def rows_of(add: dict[str, object]) -> int:
    rows = log_files.Add(add).rows
    assert rows
    return rows


def compare_all(table: PlainTable) -> None:
    """Compare each snapshot that is there."""
    metadata = table_metadata.newest(table.path)
    assert isinstance(metadata, TableMetadata)
    for snapshot in metadata.snapshots:
        version = int(snapshot["summary"]["delta-version"])
        wanted = by_delta(table.path, version)
        for name, read in READERS.items():
            assert read(table.path, version + 1) == wanted, f"{name} at version {version}"


def walk(folder: Path, seed: int, changes: int, weight: float = 2) -> int:
    """Return how often columns changed."""
    drawn = random.Random(seed)
    random_table = RandomTable(folder / f"t {seed}", drawn, weight)
    done: list[str] = []
    version = 2 + seed % 2
    for number in range(changes):
        done.append(random_table.change())
        if drawn.random() < 0.6:
            if drawn.random() < 0.2:
                published_table.forget(random_table.table.path)
            publish(random_table.table.path, None, version)
            if drawn.random() < 0.3:
                try:
                    assert_same(random_table.table.path)
                except AssertionError:
                    print(f"seed {seed}, change {number}, after {done[-10:]}", file=sys.stderr)
                    raise
    publish(random_table.table.path, None, version)
    compare_all(random_table.table)
    return random_table.shapes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--changes", type=int, default=2000)
    parser.add_argument("--shapes", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done, shapes, seed = 0, 0, asked.seed
        while done < asked.changes or shapes < asked.shapes:
            shapes += walk(Path(folder), seed, 100, 20 if asked.shapes else 2)
            done, seed = done + 100, seed + 1
            print(f"{done} changes, {shapes} of columns, {', '.join(READERS)}", flush=True)
