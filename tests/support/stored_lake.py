"""What the tests of every object store do with a lake there: changes of its tables, and writers that race."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake
from py4j.protocol import Py4JJavaError

from binlake.delta import opened_tables
from binlake.lake import Lake
from binlake.storage import files, stores
from mirror import SHORT_LIVED, Mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("a", "b")


def make_tables(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20), u VARCHAR(20))",
        "CREATE TABLE b (v VARCHAR(20))",
        "CREATE TABLE plain (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20))",
        "INSERT INTO plain (v) VALUES ('one'), ('two'), ('three'), ('four'), ('five'), ('six')",
        "INSERT INTO a (v) VALUES ('one'), ('two'), ('three')",
        "INSERT INTO b VALUES ('same'), ('same')",
    )


def work(mirror: Mirror) -> None:
    """Change tables in several steps each; a swap of names that is done twice would be undone."""
    column = f"c{mirror.version('a')}"
    mirror.execute(
        "UPDATE a SET v = CONCAT(LEFT(v, 9), '!') WHERE id % 2",
        f"ALTER TABLE a ADD COLUMN {column} INT DEFAULT 7, RENAME COLUMN u TO v, RENAME COLUMN v TO u",
        f"INSERT INTO a (v, {column}) VALUES ('new', 1)",
        "DELETE FROM a ORDER BY id LIMIT 1",
        "DELETE FROM b LIMIT 1",
        "INSERT INTO b VALUES ('same'), ('more')",
    )


def plain_work(mirror: Mirror, value: str) -> None:
    mirror.execute(f"UPDATE plain SET v = '{value}' WHERE id % 2", f"INSERT INTO plain (v) VALUES ('{value}')")


def assert_read(lake: Lake, mirror: Mirror, *tables: str) -> None:
    """The tables have the server's rows, in Python and by SQL."""
    for table in tables:
        rows = mirror.server.execute(f"SELECT v FROM `{table}`", database=mirror.database)
        wanted = Counter(value for (value,) in rows)
        assert Counter(lake.arrow(f"{mirror.database}.{table}", columns=["v"])["v"].to_pylist()) == wanted
        counted = lake.sql(f"SELECT count(*) AS n, count(v) AS v FROM {mirror.database}.`{table}`").to_pylist()
        assert counted == [{"n": wanted.total(), "v": wanted.total() - wanted[None]}]


def assert_asked(mirror: Mirror, yaml: Path, table: str) -> None:
    """``binlake sql``, as a process with this configuration, counts the server's rows."""
    query = f"SELECT count(*) AS n, count(v) AS v FROM {mirror.database}.`{table}`"
    command = [sys.executable, "-m", "binlake.cli.command_line", "sql", "--config", str(yaml)]
    done = subprocess.run([*command, "--format", "json", query], capture_output=True, text=True, timeout=120)
    ((rows, known),) = mirror.server.execute(f"SELECT COUNT(*), COUNT(v) FROM `{table}`", database=mirror.database)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"n": rows, "v": known}


def race_with_spark(spark: SparkSession, path: str, commits: int) -> None:
    """Spark and deltalake append to one table; they know nothing of each other but what the store tells."""
    options = stores.storage_options(path)
    write_deltalake(path, pa.table({"n": pa.array([], pa.int64())}), storage_options=options)
    errors: list[BaseException] = []

    def append() -> None:
        try:
            for number in range(commits):
                write_deltalake(path, pa.table({"n": [number]}), mode="append", storage_options=options)
        except BaseException as error:
            errors.append(error)

    other = threading.Thread(target=append)
    other.start()
    for number in range(commits):
        rows = spark.range(100 + number, 101 + number).toDF("n")
        rows.coalesce(1).write.format("delta").mode("append").save(path)
    other.join()
    assert not errors
    numbers = spark.read.format("delta").load(path).toArrow()["n"].to_pylist()
    assert sorted(numbers) == [*range(commits), *range(100, 100 + commits)]
    assert opened_tables.opened(path).version() == 2 * commits


def race_for_versions(spark: SparkSession, log_store: Any, folder: str, versions: int) -> list[tuple[int, int]]:
    """Four who commit one version at once, of whom one wins. log_store: Delta's of this store. Gives who won what."""
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    jvm: Any = spark.sparkContext._jvm
    won: list[tuple[int, int]] = []
    refused: list[str] = []

    def commit(version: int, who: int) -> None:
        lines = jvm.java.util.ArrayList()
        lines.add(f"{who} at {version}")
        place = jvm.org.apache.hadoop.fs.Path(f"{folder}/{version}")
        try:
            log_store.write(place, lines.iterator(), False, hadoop)
        except Py4JJavaError as error:
            refused.append(str(error.java_exception.getClass().getName()))
        else:
            won.append((version, who))

    for version in range(versions):
        threads = [threading.Thread(target=commit, args=(version, who)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [version for version, _ in won] == list(range(versions))
    assert refused == ["java.nio.file.FileAlreadyExistsException"] * (3 * versions)
    assert [files.read_text(f"{folder}/{version}") for version, _ in won] == [f"{who} at {n}\n" for n, who in won]
    return won


def doctor_in_a_process(mirror: Mirror, lake: dict[str, Any], environment: dict[str, str], folder: Path) -> str:
    """All that the command line says of a lake that it reaches by each library, with this environment in the place of
    ours for stores. folder: for its YAML, and for the events that Spark logs."""
    yaml = folder / "source.yaml"
    yaml.write_text(json.dumps({**mirror.config.model_dump(), "lake": lake}))
    logged = {"enabled": "true", "dir": folder.as_uri(), "compress": "false", "rolling.enabled": "false"}
    defaults = "".join(f"spark.eventLog.{key} {value}\n" for key, value in logged.items())
    (folder / "spark-defaults.conf").write_text(defaults)
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "AZURE_"))}
    done = subprocess.run(
        [sys.executable, "-m", "binlake.cli.command_line", "doctor", "--config", str(yaml)],
        env={**ours, **SHORT_LIVED, **environment, "SPARK_MASTER": "local[2]", "SPARK_CONF_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    for library in ("pyarrow", "deltalake", "Spark"):
        assert f"ok    lake by {library}" in done.stdout, done.stdout + done.stderr
    return done.stdout + done.stderr
