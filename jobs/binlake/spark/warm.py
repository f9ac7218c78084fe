"""A short Spark session that does once what every job does, so that its classes land in the archive."""

from __future__ import annotations

import tempfile
from pathlib import Path

from binlake.spark import session


def main() -> None:
    """Write, merge and read a small Delta table in a session of its own."""
    from delta.tables import DeltaTable

    spark = session.build("warm", master="local[2]")
    with tempfile.TemporaryDirectory(prefix="binlake-warm-") as folder:
        table = str(Path(folder) / "table")
        staged = str(Path(folder) / "staged.parquet")
        rows = spark.range(1000).selectExpr("id", "string(id) AS name", "current_timestamp() AS at")
        rows.write.format("delta").save(table)
        spark.range(900, 1100).selectExpr("id", "'x' AS name", "current_timestamp() AS at").write.parquet(staged)
        changes = spark.read.parquet(staged).selectExpr("*", "id % 3 = 0 AS gone").alias("s")
        (
            DeltaTable.forPath(spark, table)
            .alias("t")
            .merge(changes, "t.id = s.id AND t.id BETWEEN 900 AND 1899")
            .whenMatchedDelete("s.gone")
            .whenMatchedUpdate(set={"name": "s.name", "at": "s.at"})
            .whenNotMatchedInsert(values={"id": "s.id", "name": "s.name", "at": "s.at"})
            .execute()
        )
        # The work of an executor in Python, and a collect, load classes of their own.
        copied = spark.read.format("delta").load(table).select("id", "name")
        copied = copied.mapInArrow(lambda batches: batches, "id long, name string")
        copied.groupBy("name").count().orderBy("name").toArrow()
        spark.sql(f"DESCRIBE HISTORY delta.`{table}`").collect()
    spark.stop()


if __name__ == "__main__":
    main()
