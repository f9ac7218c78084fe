"""All Spark settings, in one place. Imports no pyspark: who submits a job reads them too."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from binlake import stores
from binlake.errors import UsageError
from binlake.versions import HADOOP, STORE_JARS

SHARE = Path(sys.prefix) / "share" / "binlake"
JARS = SHARE / "jars"
SHARED_ARCHIVE = SHARE / "spark.jsa"
LOG_STORE = Path(__file__).with_name("ConditionalLogStore.scala")
LOG_STORE_JAR = "binlake-log-store"


LOGGERS_THAT_QUOTE_ROWS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.util.Utils",
    "org.apache.spark.sql.execution.datasources.FileFormatWriter",
    "org.apache.spark.sql.delta",
    "SQLQueryContextLogger",
)
"""Of a task that failed they log the exception, which may hold a row's values; the job raises it all the same."""


def jvm_options(*, short_lived: bool = False) -> str:
    """Options of the driver's JVM: UTC, and the class-data-sharing archive when set-up made one.

    short_lived: its code is compiled quickly, and never optimised.
    """
    # Without the second compiler the JVM reserves 48 MB for compiled code, which a hundred merged tables fill; then it
    # compiles no more. This is what it reserves with both.
    options = ["-Duser.timezone=UTC", "-XX:+UseParallelGC", "-XX:ReservedCodeCacheSize=240m"]
    if short_lived:
        # Nearly half of the CPU time of a merge of up to a minute is the optimising compiler's.
        options.append("-XX:TieredStopAtLevel=1")
    if SHARED_ARCHIVE.exists():
        # Nearly all of a session's start is class loading: the archive halves it.
        options += [
            f"-XX:SharedArchiveFile={SHARED_ARCHIVE}",
            "-Xshare:auto",
            "-Xlog:cds=off",
            "-Xlog:class+path=off",
        ]
    return " ".join(options)


def launch_settings(*, short_lived: bool = False) -> dict[str, str]:
    """What must be known before the JVM starts, and whether it ends soon (see jvm_options)."""
    return {
        "spark.driver.extraClassPath": f"{JARS}/*",
        "spark.executor.extraClassPath": f"{JARS}/*",
        "spark.driver.extraJavaOptions": jvm_options(short_lived=short_lived),
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.driver.memory": os.environ.get("BINLAKE_DRIVER_MEMORY", "2g"),
    }


def session_settings(cores: int) -> dict[str, str]:
    """What a session is built with; ``cores`` of the whole application size the shuffles."""
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.pyspark.python": sys.executable,
        "spark.driver.host": "127.0.0.1" if _is_local() else os.environ.get("SPARK_LOCAL_IP", ""),
        # Merge runs the tables side by side: a table's small stages mustn't wait for a big one's.
        "spark.scheduler.mode": "FAIR",
        # A snapshot's retried partition would open a later view under an old position.
        "spark.task.maxFailures": "1",
        "spark.speculation": "false",
        # Instants and wall-clock times as the server gives them, dates before 1582 too.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.ansi.enabled": "true",
        # Names and defaults of the source may read like ${env:…}, which Spark would put its environment into.
        "spark.sql.variable.substitute": "false",
        # Names that differ only by case are two columns for nobody: MySQL agrees.
        "spark.sql.caseSensitive": "false",
        # Defaults are made for clusters: 200 and 50 make a small merge several times slower.
        "spark.sql.shuffle.partitions": str(max(2, cores)),
        "spark.databricks.delta.snapshotPartitions": str(max(1, cores // 2)),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": str(64 << 20),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.databricks.delta.schema.autoMerge.enabled": "false",
        # The key ranges of files are asked for, and their rows counted before they are committed.
        "spark.databricks.delta.stats.collect": "true",
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
        **stores.S3.of().spark_settings(),
    }


def log_store_jar() -> Path:
    """LOG_STORE as set-up compiles it; another text is another file."""
    return JARS / f"{LOG_STORE_JAR}-{hashlib.sha256(LOG_STORE.read_bytes()).hexdigest()[:12]}.jar"


def refuse_missing_jars(lake: str) -> None:
    """Raises UsageError where Spark lacks what the lake's address asks for."""
    match stores.store_of(lake):
        case "s3":
            there = log_store_jar().is_file() and all((JARS / jar.file).is_file() for jar in STORE_JARS["s3"])
            remedy = "run binlake setup --stores s3"
        case "abfss":
            there = any(JARS.glob("hadoop-azure-*.jar"))
            remedy = f"put hadoop-azure {HADOOP} and what its pom names into {JARS}"
        case "gs":
            there = any(JARS.glob("gcs-connector-*.jar")) or any(JARS.glob("hadoop-gcp-*.jar"))
            remedy = f"put hadoop-gcp {HADOOP} (or gcs-connector) and what its pom names into {JARS}"
        case _:
            return
    if not there:
        raise UsageError(f"Spark has no file system for {lake}: its jars aren't in {JARS}", remedy=remedy)


def _is_local() -> bool:
    return os.environ.get("SPARK_MASTER", "local").startswith("local")
