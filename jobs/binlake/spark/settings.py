"""All Spark settings, in one place. Imports no pyspark: a process that submits a job reads them too."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from binlake import versions
from binlake.config import SparkConfig
from binlake.errors import ConfigurationError, UsageError
from binlake.spark import java_program, trust
from binlake.storage import stores

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
"""Loggers that would log the exception of a failed task, which may hold a row's values; the job raises it anyway."""

FIXED = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Debugging logs quote rows.
    "spark.log.level": "ERROR",
    # The password must not leave the machine but to executors.
    "spark.submit.deployMode": "client",
    # A snapshot's retried partition would open a later view under an old position.
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    # Instants and wall-clock times as the server gives them, dates before 1582 too.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A value that doesn't fit is an error.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    # Names and defaults of the source may read like ${env:…}, which Spark would put its environment into.
    "spark.sql.variable.substitute": "false",
    # Names that differ only by case are two columns for nobody: MySQL agrees.
    "spark.sql.caseSensitive": "false",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # The key ranges of files are asked for, and their rows counted before they are committed.
    "spark.databricks.delta.stats.collect": "true",
}
"""Settings that keep the mirror exact, and rows and passwords where they belong: a user can't change them."""

_FIXED_FAMILIES = (
    "spark.sql.legacy.", "spark.sql.ansi.", "spark.sql.files.ignore", "spark.files.ignore", "spark.redaction.",
    "spark.sql.redaction.", "spark.sql.parquet.binaryAsString", "spark.sql.parquet.int96AsTimestamp",
    "spark.sql.decimalOperations.", "spark.databricks.delta.schema.", "spark.delta.logStore.",
    "spark.hadoop.fs.s3a.create.conditional.", "spark.hadoop.fs.azure.fns.", "spark.hadoop.fs.azure.account.hns.",
)  # fmt: skip
_OTHER_ZONE = re.compile(r"-Duser\.timezone=(?!UTC(\s|$))")
_ADDED_TO = {
    "spark.driver.extraClassPath": ":", "spark.driver.extraJavaOptions": " ", "spark.executor.extraJavaOptions": " ",
}  # fmt: skip
"""Settings in which the user's value is added to ours, each with the separator between the two."""


PINNED_VERSIONS = {"spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false"}
"""Without it Delta refuses versions older than a table's delta.deletedFileRetentionDuration, whether or not their files
are there."""


def is_local(master: str) -> bool:
    """Return whether the driver's process does all the work."""
    return master == "local" or master.startswith("local[")


def works_here(spark: SparkConfig) -> bool:
    """Return whether Spark would be started by this process, and do all its work in it."""
    return "PYSPARK_GATEWAY_PORT" not in os.environ and is_local(master_given(spark) or "local[*]")


def master_given(spark: SparkConfig | None) -> str | None:
    """Return the master that the variable SPARK_MASTER or the YAML names."""
    return os.environ.get("SPARK_MASTER") or (spark.master if spark else None)


def check(given: Mapping[str, str]) -> None:
    """Raise ConfigurationError for a Spark setting that isn't for others to choose."""
    for key, value in given.items():
        fixed = FIXED.get(key)
        if (fixed is not None and value.lower() != fixed.lower()) or (
            fixed is None and key.startswith(_FIXED_FAMILIES)
        ):
            raise ConfigurationError(
                f"spark.conf: {key} can't be set to {value!r}"
                + (f": binlake needs {fixed!r}" if fixed else ": a mirror wouldn't be exact, or show what it mustn't"),
                remedy="take it out of spark.conf of the YAML (in Airflow also of the operator's conf)",
            )
        if key.endswith(".extraJavaOptions") and _OTHER_ZONE.search(value):
            raise ConfigurationError(
                f"spark.conf: {key} sets user.timezone: binlake needs UTC", remedy=f"take user.timezone out of {key}"
            )


_OPTIMISED_LATE = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=100000",
    "-XX:Tier4BackEdgeThreshold=100000",
)
"""At the JVM's own thresholds most of what its second compiler optimises is code of Spark's start, which runs no more:
a quarter of the CPU time of a snapshot of two million rows. Code that rows pass through reaches these within a
second."""


def jvm_options(*, short_lived: bool = False) -> str:
    """Return the options of the driver's JVM: UTC, and the class-data-sharing archive where set-up made one.

    short_lived: its code is compiled quickly, and never optimised.
    """
    # Without the second compiler the JVM reserves 48 MB for compiled code, which a hundred merged tables fill; then it
    # compiles no more. This is what it reserves with both.
    options = ["-Duser.timezone=UTC", "-XX:+UseParallelGC", "-XX:ReservedCodeCacheSize=240m"]
    if short_lived:
        # Nearly half of the CPU time of a merge of up to a minute is the optimising compiler's.
        options.append("-XX:TieredStopAtLevel=1")
    else:
        options += _OPTIMISED_LATE
    if SHARED_ARCHIVE.exists():
        # Nearly all of a session's start is class loading: the archive halves it.
        options += [
            f"-XX:SharedArchiveFile={SHARED_ARCHIVE}",
            "-Xshare:auto",
            "-Xlog:cds=off",
            "-Xlog:cds+dynamic=off",
            "-Xlog:class+path=off",
        ]
    return " ".join(options)


def launch_settings(spark: SparkConfig | None = None, *, short_lived: bool = False, lake: str = "") -> dict[str, str]:
    """Return the settings that must be known before the JVM starts, with those of the YAML.

    short_lived: see jvm_options. lake: its root. Raises ConfigurationError, see check.
    """
    given = spark or SparkConfig()
    check(given.settings)
    store = trust.store_for(lake)
    of_driver = trust.java_options(str(store)) if store else []
    of_executors = trust.java_options(store.name) if store else []
    ours = {
        "spark.driver.extraClassPath": f"{JARS}/*",
        "spark.driver.extraJavaOptions": " ".join([jvm_options(short_lived=short_lived), *of_driver]),
        "spark.executor.extraJavaOptions": " ".join(["-Duser.timezone=UTC", *of_executors]),
        "spark.driver.memory": os.environ.get("BINLAKE_DRIVER_MEMORY") or given.driver_memory or "2g",
    }
    if given.executor_memory:
        ours["spark.executor.memory"] = given.executor_memory
    if given.jars:
        ours["spark.jars"] = ",".join(given.jars)
    added = {key: ours[key] + between + given.settings[key] for key, between in _ADDED_TO.items() if key in given.conf}
    return {**ours, **given.settings, **added}


def session_settings(cores: int, master: str, lake: str = "") -> dict[str, str]:
    """Return a session's default settings.

    cores: of this machine; they size shuffles until a cluster's are known. lake: its root.
    """
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.pyspark.python": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "spark.driver.host": "127.0.0.1" if is_local(master) else os.environ.get("SPARK_LOCAL_IP", ""),
        # Merge runs the tables side by side: a table's small stages mustn't wait for a big one's.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": str(64 << 20),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
        **PINNED_VERSIONS,
        **stores.at(lake).spark_settings(),
        **sizes(cores),
    }


def sizes(cores: int) -> dict[str, str]:
    """Return settings for few partitions: Spark's defaults, 200 and 50, make a small merge several times slower."""
    return {
        "spark.sql.shuffle.partitions": str(max(2, cores)),
        "spark.databricks.delta.snapshotPartitions": str(max(1, cores // 2)),
    }


def log_store_jar() -> Path:
    """Return the path of LOG_STORE as set-up compiles it; another text is another file."""
    return JARS / f"{LOG_STORE_JAR}-{hashlib.sha256(LOG_STORE.read_bytes()).hexdigest()[:12]}.jar"


def say_missing_jars(lake: str, say: Callable[[str], object]) -> None:
    """Say what Spark lacks: most syncs need no Spark, and one that does would be refused in its middle. Packages aren't
    compared for it, which takes a tenth of an idle sync; who starts Spark does that."""
    try:
        _refuse_missing(lake)
    except UsageError as error:
        say(f"{error.message}: a sync that needs Spark ends there\n  → {error.remedy}")


def refuse_missing_jars(lake: str) -> None:
    """Raise UsageError where Spark lacks its jars, or what the lake's address asks for, before a JVM is started; also
    where pyspark, delta-spark or Java doesn't fit."""
    versions.refuse_misfit(*versions.OF_SPARK)
    _refuse_missing(lake)


def _refuse_missing(lake: str) -> None:
    java_program.refuse_misfit()
    if mixed := versions.mixed_spark():
        spark, client = mixed
        raise UsageError(
            f"pyspark {spark} and pyspark-client {client} are installed, which write the same files",
            remedy=f"pip install --force-reinstall --no-deps pyspark=={spark} pyspark-client=={spark}",
        )
    if not (JARS / (delta := versions.delta_jar(spark := versions.installed_spark())).file).is_file():
        others = ", ".join(sorted(file.name for file in JARS.glob(delta.all_versions)))
        what = f"{others} isn't for Spark {spark}, which is installed" if others else f"no Spark jars in {JARS}"
        raise UsageError(what, remedy="run binlake setup")
    if (store := stores.store_of(lake)) is None:
        return
    refuse_store(store)
    wanted = [JARS / jar.file for jar in versions.store_jars(store)] + ([log_store_jar()] if store == "s3" else [])
    if not all(jar.is_file() for jar in wanted):
        raise UsageError(
            f"Spark has no file system for {lake}: its jars aren't in {JARS}",
            remedy=f"run binlake setup --stores {store}",
        )


def refuse_store(store: str) -> None:
    """Raise UsageError where the installed Spark has no lakes in an object store."""
    if not versions.has_store(store, spark := versions.installed_spark()):
        raise UsageError(
            f"Spark {spark} can't commit to a lake in a store ({store}): its Hadoop is too old for that",
            remedy=f"install pyspark {versions.SPARK}, then run binlake setup --stores {store}; or let lake.path name a"
            " folder or hdfs://",
        )
