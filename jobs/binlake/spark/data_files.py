"""Data files that lie in a table's folder before any commit of the table knows them.

Delta's own transaction writes them, and returns the AddFile actions: it is that of a new table in a folder below the
table's, never committed, so that the table itself isn't looked at. A VACUUM removes what no commit knows once it is
older than its retention (7 days by default).

Their statistics are those of the files' footers. Delta would gather the same row by row beside Parquet's writer, in a
fifth of the processor time of all that a task does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from binlake.delta.delta_actions import DataFile
from binlake.delta.delta_schema import DeltaSchema
from binlake.delta.file_statistics import Statistics
from binlake.delta.key_ranges import PHYSICAL_NAME
from binlake.spark import settings
from binlake.spark.java import changed, open_transaction, to_java_list, to_scala_map
from binlake.storage import files

_STATISTICS = "spark.databricks.delta.stats.collect"


def write(
    session: SparkSession, table: str, folder: str, schema: DeltaSchema, rows: DataFrame, *, rows_per_file: int
) -> tuple[DataFile, ...]:
    """Write ``rows``, which are read once, to new files below ``table``/``folder``.

    rows: with the schema's columns. rows_per_file: at most. session: with the thread's active session, of this thread
    alone. Raises OSError where a file can't be read again.
    """
    jvm: Any = session.sparkContext._jvm
    transaction = open_transaction(session, f"{table}/{folder}")
    properties = schema.properties
    transaction.updateMetadataForNewTable(
        changed(transaction.metadata(), session, schema=schema.text(properties), properties=properties)
    )
    options = to_scala_map(session, {"maxRecordsPerFile": str(rows_per_file)})
    options = jvm.org.apache.spark.sql.delta.DeltaOptions(options, session._jsparkSession.sessionState().conf())
    session.conf.set(_STATISTICS, "false")
    try:
        written = transaction.writeFiles(rows._jdf, jvm.scala.Some(options))
    finally:
        session.conf.set(_STATISTICS, settings.FIXED[_STATISTICS])
    return tuple(_data_file(table, folder, str(file.json())) for file in to_java_list(session, written))


def read(session: SparkSession, table: str, schema: DeltaSchema, written: Sequence[DataFile]) -> DataFrame:
    """Read the rows of such files, with the schema's columns."""
    fields = [StructField.fromJson(field) for field in json.loads(schema.text(schema.properties))["fields"]]
    physical = [field.metadata.get(PHYSICAL_NAME, field.name) for field in fields]
    there = StructType([StructField(name, field.dataType) for name, field in zip(physical, fields, strict=True)])
    if not written:
        return session.createDataFrame([], StructType([StructField(field.name, field.dataType) for field in fields]))
    rows = session.read.schema(there).parquet(*(_literally(f"{table}/{file.path}") for file in written))
    return rows.toDF(*(field.name for field in fields))


def _literally(path: str) -> str:
    """Escape a path, because Spark's readers take paths for patterns."""
    return re.sub(r"[\\*?{}\[\]]", r"\\\g<0>", path)


def _data_file(table: str, folder: str, action: str) -> DataFile:
    parsed = json.loads(action)
    added = parsed["add"]
    added["path"] = f"{folder}/{added['path']}"
    path = unquote(added["path"])
    with files.opened(f"{table}/{path}") as source:
        footer = pq.read_metadata(source)
    added["stats"] = Statistics.of_footer(footer).text()
    return DataFile(path, int(added["size"]), footer.num_rows, json.dumps(parsed))
