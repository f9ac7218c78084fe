"""Tables of the lake that are published as Iceberg tables, where the YAML asks for it (``iceberg``).

A table that can't be published holds nothing back: it is said, and its readers of Iceberg see an older version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from binlake.caches import Cache
from binlake.config import PipelineConfig
from binlake.config.table_modes import beside_table, mirror_of
from binlake.delta import opened_tables
from binlake.errors import BinlakeError
from binlake.planner.outcome import BatchOutcome
from binlake.report import Report
from binlake.schema.table import TableName

SIDE_BY_SIDE = 4
_said: Cache[str, str] = Cache("tables that weren't published")
_looked: Cache[str, float] = Cache("sources whose tables were published")
"""When it was last looked which tables are due, by ``time.monotonic``, by the source's folder."""


def publish_changed(
    config: PipelineConfig,
    outcome: BatchOutcome,
    batch: int,
    report: Report,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Publish the tables that a batch changed, or those for which it is time, before its end is recorded: killed before
    that, it is done again.

    check: raises where the run lost its lease: newer versions of the tables are other batches' by then.
    """
    if config.iceberg is None or config.iceberg.every == "upkeep":
        return
    seconds = config.iceberg.every_seconds
    if seconds is not None and time.monotonic() - (_looked.get(config.root) or -seconds) < seconds:
        return
    check()
    lives = (life for life in outcome.lives if life.status != "dropped" and (life.changed or seconds is not None))
    names = [life.name for life in lives if config.is_read(life.name)]
    if seconds is None:
        names += [table.name for table in outcome.beside if table.delta_version is not None]
    else:
        names = [name for name in with_beside(config, names) if is_published(config, name)]
        names = [name for name in names if _is_due(path_of(config, name), seconds)]
        _looked.put(config.root, time.monotonic())
    _publish(config, names, report, f"batch-{batch}")


def _is_due(path: str, seconds: float) -> bool:
    """Return whether a table was published so many seconds ago, or never; one that can't be read is due, too, as its
    publication says why. A table that didn't change is published for nothing."""
    from binlake.iceberg import table_metadata  # it imports fastavro

    try:
        metadata = table_metadata.newest(path)
    except (OSError, ValueError, KeyError, BinlakeError):
        return True
    return metadata is None or time.time() - metadata.content["last-updated-ms"] / 1000 >= seconds


def publish_now(config: PipelineConfig, names: Iterable[TableName], report: Report) -> None:
    """Publish mirrors, and the tables beside them, that were changed beside the log. Where the upkeep publishes
    tables, it is left to it."""
    if config.iceberg is not None and config.iceberg.every == "batch":
        _publish(config, with_beside(config, names), report, None)


def is_published(config: PipelineConfig, name: TableName) -> bool:
    """Return whether the YAML asks for a table of the lake to be published. name: its own, also beside a mirror."""
    return config.iceberg is not None and config.iceberg.includes(name.database, name.table)


def path_of(config: PipelineConfig, name: TableName) -> str:
    """Return the path of a table of the lake. name: its own, also beside a mirror."""
    mirror = mirror_of(name.table)
    if mirror and mirror[1] in config.tables.beside(name.database, mirror[0]):
        return config.beside_path(TableName(name.database, mirror[0]), mirror[1])
    return config.table_path(name)


def with_beside(config: PipelineConfig, names: Iterable[TableName]) -> Iterator[TableName]:
    """Yield mirrors that are read, and the tables beside mirrors. names: of mirrors."""
    for name in names:
        if config.is_read(name):
            yield name
        yield from (TableName(name.database, beside_table(name.table, mode)) for mode in config.beside(name))


def _publish(config: PipelineConfig, names: Iterable[TableName], report: Report, tag: str | None) -> None:
    asked = [name for name in dict.fromkeys(names) if is_published(config, name)]
    if len(asked) < 2:
        for name in asked:
            publish_table(config, name, report, tag)
    else:
        with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="publish") as pool:
            list(pool.map(lambda name: publish_table(config, name, report, tag), asked))
    if asked and config.iceberg_catalogs:
        from binlake.merge import iceberg_catalogs  # most sources have none

        iceberg_catalogs.point(config, {name: path_of(config, name) for name in asked}, report)


def publish_table(config: PipelineConfig, name: TableName, report: Report, tag: str | None = None) -> None:
    """Publish a table; where it can't be, say so once. tag: a name that a new snapshot gets."""
    from binlake.iceberg.publication import publish  # it imports fastavro

    path = path_of(config, name)
    try:
        if opened_tables.is_table(path):
            publish(path, tag)
        _said.drop([path])
    except BinlakeError as error:
        if _said.get(path) != str(error):
            report.warn(f"{name}: {error}")
            _said.put(path, str(error))
