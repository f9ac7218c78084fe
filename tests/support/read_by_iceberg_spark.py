"""A program that Spark with Iceberg runs, in an environment of its own: reads tables, and writes what it read as Arrow.

    read_by_iceberg_spark.py < JOBS

JOBS, as JSON: jar, Iceberg's; settings, of the session; snapshots, a list of a metadata file, a snapshot's id and the
file to write; queries, a list of a query and the file to write.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


def write(read: DataFrame, path: str) -> None:
    table = read.toArrow()
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


if __name__ == "__main__":
    jobs = json.load(sys.stdin)
    builder = SparkSession.builder.master("local[1]").config("spark.jars", jobs["jar"])
    fixed = {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    for key, value in {**fixed, **jobs["settings"]}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    for file, snapshot, path in jobs["snapshots"]:
        write(session.read.format("iceberg").option("versionAsOf", str(snapshot)).load(file), path)
    for query, path in jobs["queries"]:
        write(session.sql(query), path)
    session.stop()
