"""Lake versions, read table by table and compared with what the server had at their batches."""

from __future__ import annotations

import pytest

from binlake.errors import UsageError
from binlake.lake.lake_versions import LakeVersion, lake_versions
from binlake.store.metadata import query
from mirror import Mirror

BRIEF = {"history_hours": 0, "log_hours": 0, "metadata_hours": 0}
"""The shortest retention."""
Content = dict[str, list[str]]
"""Rows as text, by ``database.table``."""


def rows_at(mirror: Mirror, version: LakeVersion, name: str) -> list[str]:
    table = version.table(name)
    return sorted(map(str, query(mirror.config.table_path(table.name), version=table.delta_version).to_pylist()))


def rows_by_spark(mirror: Mirror, version: LakeVersion, name: str) -> list[str]:
    table = version.table(name)
    reader = mirror.spark.read.format("delta").option("versionAsOf", table.delta_version)
    rows = reader.load(mirror.config.table_path(table.name)).collect()
    return sorted(str(row.asDict()) for row in rows)


def server_rows(mirror: Mirror, *tables: str) -> Content:
    def rows(table: str) -> list[str]:
        pairs = mirror.server.execute(f"SELECT id, v FROM {table}", database=mirror.database)
        return sorted(str({"id": id_, "v": text}) for id_, text in pairs)

    return {f"{mirror.database}.{table}": rows(table) for table in tables}


def assert_true(mirror: Mirror, known: dict[int, Content]) -> list[LakeVersion]:
    """Each version that is readable has the server's rows at its position; the others are refused by name."""
    versions = lake_versions(mirror.metadata, 0)
    for version in versions:
        names = known[version.batch]
        assert version.tables.keys() == names.keys()
        for name in names:
            if version.readable:
                assert rows_at(mirror, version, name) == names[name], f"{name} at batch {version.batch}"
            else:
                with pytest.raises(UsageError, match=f"batch {version.batch} can't be read"):
                    version.table(name)
    return versions


def change(mirror: Mirror, number: int) -> None:
    mirror.execute(
        f"INSERT INTO marked VALUES ({100 + number}, 'new')",
        f"UPDATE marked SET v = 'batch {number}' WHERE id IN ({number % 7}, {20 + number})",
        f"UPDATE plain SET v = 'batch {number}' WHERE id % 5 = {number % 5}",
    )
