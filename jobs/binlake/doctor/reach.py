"""Checks that the lake can be used. In an object store each library is tried: it writes, reads, and must not overwrite.

A later failure of a lake that passes here isn't caused by the address, the account, a missing bucket or a missing jar.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binlake.config import PipelineConfig
from binlake.delta import opened_tables
from binlake.doctor.check import Check
from binlake.errors import BinlakeError, LakeError
from binlake.spark.settings import is_local
from binlake.storage import files, storage_errors, stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.spark.starting import SessionFactory

_CONTENT = "binlake was here"
_PROBE_TIMES = (1 << 20) // len(_CONTENT)
"""Repetitions that make a megabyte: a disk with less space than that can't take a batch."""
_BOUNDED = {
    "fs.s3a.impl.disable.cache": "true",
    "fs.s3a.attempts.maximum": "2",
    "fs.s3a.retry.limit": "1",
    "fs.s3a.retry.interval": "100ms",
    "fs.s3a.connection.establish.timeout": "5s",
    "fs.abfss.impl.disable.cache": "true",
    "fs.azure.io.retry.max.retries": "1",
    "fs.azure.io.retry.backoff.interval": "100",
}
"""Settings that bound retries: by default, S3A and ABFS try for minutes to reach a store that isn't there."""


def lake_checks(config: PipelineConfig, session: SessionFactory | None) -> Iterator[Check]:
    """Yield the checks of the lake. session: makes a Spark session that tries it, too; None to skip that.

    A lake in a folder is tried by Spark only if executors run on other hosts.
    """
    if stores.store_of(config.root) is None:
        yield _folder(config)
        if session and not is_local(os.environ.get("SPARK_MASTER") or config.spark.master or "local"):
            yield _executors(config, session)
    else:
        yield from _store(config, session)
    yield from _other_sources(config)


def _other_sources(config: PipelineConfig) -> Iterator[Check]:
    """Yield a check of each merged table that several sources fill: whether all of them are in this lake."""
    for entry in config.tables.merge_tables:
        roots = {name: config.beside_root(name) for name in entry.sources}
        missing = [name for name, root in roots.items() if not opened_tables.is_table(f"{root}/_binlake/lease")]
        said, name = f"{entry.into} is filled by {', '.join(entry.sources)}", f"lake: {entry.into}"
        if others := [source for source in missing if source != config.source.name]:
            remedy = "snapshot them too; their YAMLs need the same lake.path and the same entry of merge_tables"
            yield Check(name, "warn", f"{said}; nothing of {', '.join(others)} is in this lake yet", remedy)
        elif entry.sources:
            yield Check(name, True, said)


def lake_unwritten(config: PipelineConfig) -> Iterator[Check]:
    """Yield the checks of the lake that need no write."""
    if stores.store_of(config.root) is not None:
        yield Check("lake", "warn", f"{config.root} isn't tried before the source is there", "run binlake doctor then")
        return
    there = next(path for path in (Path(config.root), *Path(config.root).parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        yield Check("lake", True, f"{there} may be written")
    else:
        remedy = f"make {there} writable for this account, or change lake.path"
        yield Check("lake", False, f"{there} may not be written", remedy)


def _store(config: PipelineConfig, session: SessionFactory | None) -> Iterator[Check]:
    """Check a lake in an object store with each library that works on it."""
    folder = f"{config.root}/_binlake"
    ways: list[tuple[str, Callable[[], None]]] = [
        ("pyarrow", lambda: by_arrow(folder)),
        ("deltalake", lambda: by_deltalake(folder)),
    ]
    if session:
        ways.append(("Spark", lambda: by_spark(session("the lake is tried by Spark, too"), folder)))
    for library, attempt in ways:
        name = f"lake by {library}"
        try:
            attempt()
        except BinlakeError as error:
            yield Check(name, False, error.message, error.remedy)
        else:
            yield Check(name, True, f"{config.root} is read and written, and nothing is overwritten")


def _folder(config: PipelineConfig) -> Check:
    """Check that a lake in a folder can be written."""
    folder = f"{config.root}/_binlake"
    probe = _probe(folder)
    try:
        files.make_private_folder(folder)
        files.write_text(probe, _CONTENT * _PROBE_TIMES)  # a full disk takes an empty file
        files.remove_file(probe)
    except (BinlakeError, OSError) as error:
        said = error.message if isinstance(error, BinlakeError) else str(error)
        return Check("lake", False, said, f"make {config.root} writable for this account, or change lake.path")
    return Check("lake", True, f"{config.root} is writable")


def _executors(config: PipelineConfig, session: SessionFactory) -> Check:
    """Check the executors' hosts: a cluster's session starts only if each has what it needs, and reads the lake."""
    name = "lake by Spark's executors"
    try:
        cores = session("the lake is read on all hosts of the cluster").sparkContext.defaultParallelism
    except BinlakeError as error:
        return Check(name, False, error.message, error.remedy)
    return Check(name, True, f"{config.root} is read on all hosts of {cores} cores")


def _probe(folder: str) -> str:
    return f"{folder}/probe-{uuid.uuid4().hex[:12]}"


def by_arrow(folder: str) -> None:
    """Try the lake with pyarrow, which staged files use. Raises LakeError, ConfigurationError."""
    files.make_private_folder(folder)
    path = _probe(folder)
    with files.hashing_sink(path) as sink:
        sink.write(_CONTENT.encode())
    _compare(path, files.read_text(path))
    files.remove_file(path)


def by_deltalake(folder: str) -> None:
    """Try the lake with deltalake, which the metadata use. Raises LakeError, ConfigurationError."""
    opened_tables.refuse_overwriting_store(folder)


def by_spark(session: SparkSession, folder: str) -> None:
    """Try the lake with Spark, which the tables use, through the log store of Delta. Raises LakeError."""
    probe = _probe(folder)
    path = f"{probe}/commit"
    jvm: Any = session.sparkContext._jvm
    try:
        settings = jvm.org.apache.hadoop.conf.Configuration(session._jsparkSession.sessionState().newHadoopConf())
        for key, value in _BOUNDED.items():
            settings.set(key, value)
        place = jvm.org.apache.hadoop.fs.Path(path)
        system = place.getFileSystem(settings)
        system.mkdirs(place.getParent())
        _write_twice(jvm, place, settings, stores.at(folder).log_store)
        _compare(path, files.read_text(path).strip())
        system.delete(place.getParent(), True)
    except LakeError:
        raise
    except Exception as error:  # py4j's and pyspark's have no common type
        raise storage_errors.failed(f"Spark can't write {path}", error) from error


def _write_twice(jvm: Any, place: Any, settings: Any, log_store_class: str) -> None:
    """Raise LakeError unless the second write of one path is refused."""
    log_store = attrgetter(log_store_class)(jvm)(settings)

    def write(text: str) -> None:
        lines = jvm.java.util.ArrayList()
        lines.add(text)
        log_store.write(place, lines.iterator(), False, settings)

    write(_CONTENT)
    try:
        write("another")
    except Exception as error:
        if storage_errors.is_already_there(error):
            return
        raise
    raise LakeError(
        f"{place.toString()} was written twice: the store doesn't know If-None-Match",
        remedy="use a store with conditional writes: on this one two runs would overwrite each other's commits",
    )


def _compare(path: str, content: str) -> None:
    if content != _CONTENT:
        raise LakeError(f"{path} isn't read as it was written", remedy="another process writes there: find it")
