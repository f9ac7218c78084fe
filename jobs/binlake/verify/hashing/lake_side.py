"""Row hashes computed by Spark on a Delta table; the same as the server's (hashes.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from binlake.delta import layout, opened_tables
from binlake.delta.delta_schema import FEATURES
from binlake.names import spark_string
from binlake.schema.invalid import FAIL, KEEP_ALL
from binlake.schema.lake_columns import DELETED, LakeColumn, mirror_columns, side_columns
from binlake.schema.table import TableSchema
from binlake.verify.hashing.hashes import Chunks, ChunkSum, TableHashes, lake_shown
from binlake.verify.hashing.server_side import KeyedHash

_FILES = 16
"""The most data files that are read directly: Delta takes a second to load a log, reading them takes a tenth."""
_FEATURES = FEATURES - {"columnMapping"}
"""Protocol features with which data files may be read directly; deleted rows are checked for separately."""
_PATH = re.compile(r"[a-z0-9][\w.-]*(?:/[a-z0-9][\w.-]*)*", re.ASCII | re.IGNORECASE)
"""Paths of data files that need no URL decoding and that Spark takes for no pattern, partition or hidden file."""
_PATTERN = frozenset("*?[]{}\\=%")


class LakeSide:
    """A Delta table at a version, the newest without one. Raises what deltalake and Spark raise if it can't be read."""

    def __init__(self, session: SparkSession, path: str, schema: TableSchema, version: int | None = None) -> None:
        log = opened_tables.opened(path, version)
        self.version = int(log.version())
        self._rows: DataFrame = _read_data_files(session, path, log) or (
            session.read.format("delta").option("versionAsOf", self.version).load(path)
        )
        if schema.soft_delete and DELETED in self._rows.columns:
            self._rows = self._rows.where(f"NOT {DELETED}")
        self._types = {field.name: field.dataType.simpleString().upper() for field in self._rows.schema.fields}

    def side_columns(self, schema: TableSchema) -> tuple[LakeColumn, ...]:
        """Return the side columns that the Delta table has, whatever the YAML's policies say."""
        others = {column.name for column in schema.mirrored}
        in_lake = self._types.keys() - others
        return tuple(side for side in side_columns(schema.mirrored, KEEP_ALL) if side.name in in_lake)

    def structure(self, schema: TableSchema) -> str:
        """Return how columns and types differ from the expected ones; empty if they don't. Kept columns are ignored."""
        columns = (*mirror_columns(schema, FAIL), *self.side_columns(schema))
        expected = {column.name: column.delta for column in columns}
        wrong = [
            f"{name} is {self._types.get(name, 'missing')}, should be {expected.get(name, 'absent')}"
            for name in [*expected, *(self._types.keys() - expected.keys() - {column.name for column in schema.kept})]
            if self._types.get(name) != expected.get(name)
        ]
        return "; ".join(wrong)

    def aggregate(self, hashes: TableHashes) -> Chunks:
        """Return the rows and the sum of hashes of each chunk."""
        part = f"CAST(CONV(LEFT({hashes.lake_hash}, 16), 16, 10) AS DECIMAL(20,0))"
        rows = (
            self._rows.selectExpr(f"{hashes.lake_chunk} AS chunk", f"{part} AS part")
            .groupBy("chunk")
            .agg({"*": "count", "part": "sum"})
            .select("chunk", "count(1)", "sum(part)")
            .collect()
        )
        return {int(chunk): ChunkSum(int(count), int(total)) for chunk, count, total in rows}

    def keyed_hashes(self, hashes: TableHashes, chunks: Collection[int]) -> list[KeyedHash]:
        """Return every row of the given chunks."""
        key = hashes.lake_key if hashes.key_columns else "''"
        shown = [f"{lake_shown(column)} AS k{index}" for index, column in enumerate(hashes.key_columns)]
        rows = self._in(hashes, chunks).selectExpr(f"{key} AS key", f"{hashes.lake_hash} AS hash", *shown).collect()
        return [KeyedHash(row[0], row[1], tuple(map(str, row[2:]))) for row in rows]

    def values(
        self, hashes: TableHashes, chunks: Collection[int], keys: Collection[str]
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield (the key's text, the canonical text of every column) of the rows with these keys."""
        listed = ", ".join(spark_string(key) for key in keys)
        columns = [f"{hashes.lake_value(column)} AS c{index}" for index, column in enumerate(hashes.schema.mirrored)]
        rows = self._in(hashes, chunks).where(f"{hashes.lake_key} IN ({listed})")
        for row in rows.selectExpr(f"{hashes.lake_key} AS key", *columns).collect():
            yield row[0], list(row[1:])

    def _in(self, hashes: TableHashes, chunks: Collection[int]) -> DataFrame:
        return self._rows.where(hashes.lake_where(chunks))


def _read_data_files(session: SparkSession, path: str, table: DeltaTable) -> DataFrame | None:
    """Return the rows read from the table's data files directly; None if they are many or only Delta can read them."""
    protocol, metadata = table.protocol(), table.metadata()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    is_mapped = metadata.configuration.get("delta.columnMapping.mode", "none") != "none"
    if features - _FEATURES or is_mapped or metadata.partition_columns or _PATTERN & set(path):
        return None
    added = pa.table(table.get_add_actions())
    names = added["path"].to_pylist()
    if not 0 < len(names) <= _FILES or not all(map(_PATH.fullmatch, names)) or layout.deleted_rows(table, path):
        return None
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    return session.read.schema(schema).parquet(*(f"{path}/{name}" for name in names))
