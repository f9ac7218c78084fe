"""Spark with Iceberg reads what is published as Delta's readers read it: each snapshot of tables under random changes,
in both formats, and two batches in one query by the catalog.

    python tests/soak/iceberg_by_spark.py [--changes 60] [--spark .binlake/iceberg-spark]

The Spark of this project has no release of Iceberg's; docker/local/setup.sh iceberg brings one that has.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUPPORT = HERE.parent / "support"
sys.path[:0] = [str(HERE), str(SUPPORT), str(HERE.parents[1] / "docker" / "local")]

import pyarrow as pa  # noqa: E402
from random_iceberg import RandomTable  # noqa: E402
from random_merged_iceberg import RandomShards  # noqa: E402

from binlake.iceberg.publication import publish  # noqa: E402
from binlake.iceberg.table_metadata import newest  # noqa: E402
from binlake.schema.table import TableName  # noqa: E402
from iceberg_readers import Rows, by_delta, ordered  # noqa: E402
from own_catalog import running  # noqa: E402
from plain_table import PlainTable  # noqa: E402
from published_lake import PublishedLake, appending  # noqa: E402
from servers import PRIVATE  # noqa: E402
from type_ends import KINDS  # noqa: E402

ORDERS = TableName("shop", "orders")


@dataclass
class Readings:
    """What Spark is to read, and the rows that are wanted."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    snapshots: list[tuple[str, int, str]] = field(default_factory=list)
    queries: list[tuple[str, str]] = field(default_factory=list)
    wanted: dict[str, tuple[str, Rows]] = field(default_factory=dict)

    def place(self, what: str, rows: Rows) -> str:
        path = str(self.folder / f"{len(self.wanted)}.arrow")
        self.wanted[path] = what, rows
        return path

    def add_table(self, path: str) -> None:
        """Each snapshot of a table is to be read."""
        metadata = newest(path)
        assert metadata is not None
        for snapshot in metadata.snapshots:
            number = snapshot["snapshot-id"]
            what = f"{path}, format {metadata.format_version}, snapshot {number}"
            self.snapshots.append((metadata.path, number, self.place(what, by_delta(path, number - 1))))

    def compare(self, spark: Path) -> None:
        """Read, and compare. Raises AssertionError."""
        jobs = {
            "jar": str((spark / "iceberg.jar").resolve()),
            "settings": self.settings,
            "snapshots": self.snapshots,
            "queries": self.queries,
        }
        program = [str(spark / "bin" / "python"), str(SUPPORT / "read_by_iceberg_spark.py")]
        subprocess.run(program, input=json.dumps(jobs), text=True, check=True, cwd=self.folder)
        for path, (what, rows) in self.wanted.items():
            with pa.memory_map(path) as source:
                assert ordered(pa.ipc.open_file(source).read_all()) == rows, what


def random_table(folder: Path, version: int, changes: int) -> str:
    """A table after random changes, published in a format after most of them; its path."""
    drawn = random.Random(version)
    table = RandomTable(folder / f"t {version}", drawn)
    for _ in range(changes):
        table.change()
        if drawn.random() < 0.6:
            publish(table.table.path, None, version)
    publish(table.table.path, None, version)
    return table.table.path


def merged_table(folder: Path, version: int, changes: int) -> str:
    """A table that shows others after random changes, published in a format after most of them; its path."""
    drawn = random.Random(version + 10)
    shards = RandomShards(folder / f"merged {version}", drawn)
    for _ in range(changes):
        shards.change()
        if drawn.random() < 0.4:
            shards.merged.publish(version)
    shards.merged.publish(version)
    return shards.merged.path


def table_of_types(folder: Path, version: int) -> str:
    """A table of values at the ends of each type, one row hidden; its path."""
    named = {kind: f"c{number}" for number, kind in enumerate(KINDS)}
    table = PlainTable(folder / f"types {version}", [(name, kind) for kind, name in named.items()])
    table.append([{named[kind]: values[place % len(values)] for kind, values in KINDS.items()} for place in range(5)])
    table.hide({table.files[0]["path"]: [1]})
    publish(table.path, None, version)
    return table.path


def lake_of_batches(folder: Path) -> PublishedLake:
    """A lake of three batches: rows come, rows go, a column gets another name and another comes."""

    def moved(table: PlainTable) -> None:
        table.reshape([("v", "STRING", "v"), ("number", "INT", "id"), ("note", "STRING", None)])
        table.append([{"v": "d", "number": 9, "note": "n"}])

    lake = PublishedLake(folder, {ORDERS: [("id", "INT"), ("v", "STRING")]})
    lake.batch({ORDERS: appending(*({"id": number, "v": f"v{number}"} for number in range(5)))})
    lake.batch({ORDERS: lambda table: table.hide({table.files[0]["path"]: [0, 2]})})
    lake.batch({ORDERS: moved})
    return lake


def ask_the_catalog(readings: Readings, lake: PublishedLake, address: str) -> None:
    """Each batch of a lake is to be read by the catalog at an address, and two of them in one query."""
    path = lake.tables[ORDERS].path
    for batch, versions in lake.versions.items():
        of_catalog = f"spark.sql.catalog.b{batch}"
        readings.settings |= {
            of_catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{of_catalog}.type": "rest",
            f"{of_catalog}.uri": address,
            f"{of_catalog}.warehouse": f"shop@{batch}",
        }
        rows = by_delta(path, versions[ORDERS])
        readings.queries.append((f"SELECT * FROM b{batch}.shop.orders", readings.place(f"batch {batch}", rows)))
    query = "SELECT b.id FROM b1.shop.orders b LEFT ANTI JOIN b3.shop.orders a ON a.number = b.id"
    readings.queries.append((query, readings.place("what went since batch 1", [{"id": 0}, {"id": 2}])))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=60)
    parser.add_argument("--spark", type=Path, default=PRIVATE / "iceberg-spark")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        readings = Readings(Path(folder))
        for version in (2, 3):
            readings.add_table(random_table(Path(folder), version, asked.changes))
            readings.add_table(table_of_types(Path(folder), version))
            readings.add_table(merged_table(Path(folder), version, asked.changes))
        lake = lake_of_batches(Path(folder) / "lake")
        with running("--config", lake.write_yaml()) as address:
            ask_the_catalog(readings, lake, address)
            readings.compare(asked.spark)
        print(f"Spark reads {len(readings.snapshots)} snapshots, {len(readings.queries)} queries as Delta's readers do")


if __name__ == "__main__":
    main()
