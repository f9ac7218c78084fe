"""Temporary views of a Spark session for tables of the lake, each at one version. Spark is the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from binlake.lake.table_at import TableAt
from binlake.names import spark_quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def create_views(session: SparkSession, tables: Sequence[TableAt]) -> None:
    """Create or replace a temporary view of each table.

    Spark's temporary views have no database, so the view's name is ``database.table`` as one name, which stands in
    backquotes: ``SELECT * FROM `shop.orders` ``.
    """
    for table in tables:
        frame = session.read.format("delta").option("versionAsOf", table.version).load(table.path)
        frame.createOrReplaceTempView(spark_quote(str(table.name)))
