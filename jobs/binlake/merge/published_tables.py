"""Tables of the lake that are published as Iceberg tables, where the YAML asks for it (``iceberg``).

A table that can't be published holds nothing back: it is said, and its readers of Iceberg see an older version.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from binlake.caches import Cache
from binlake.config import PipelineConfig
from binlake.config.catalogs_config import is_of_published
from binlake.config.table_modes import beside_table, mirror_of
from binlake.delta import opened_tables
from binlake.errors import BinlakeError
from binlake.lake.merged_tables import merged_names
from binlake.planner.outcome import BatchOutcome
from binlake.report import Report
from binlake.schema.table import TableName

SIDE_BY_SIDE = 4


@dataclass(frozen=True)
class _Waiting:
    """Tables of the lake that may have changed since they were published. batch: the newest that is among the changes.
    looked: when the first of them was published last, by ``time.monotonic``."""

    batch: int
    looked: float
    names: frozenset[TableName]


_said: Cache[str, str] = Cache("tables that weren't published")
_waiting: Cache[str, _Waiting] = Cache("sources whose tables were published")
"""By the source's folder. A process that begins doesn't know them: it looks when each table was published."""


def publish_changed(
    config: PipelineConfig,
    outcome: BatchOutcome,
    batch: int,
    report: Report,
    check: Callable[[], None] = lambda: None,
    mirrors: Iterable[TableName] = (),
) -> None:
    """Publish the tables that a batch changed, or those for which it is time, before its end is recorded: killed before
    that, it is done again.

    check: raises where the run lost its lease: newer versions of the tables are other batches' by then. mirrors: all
    that are there behind the batch.
    """
    lives = (life.name for life in outcome.lives if life.changed and life.status != "dropped")
    names = [name for name in lives if config.is_read(name)]
    names += [table.name for table in outcome.beside if table.delta_version is not None]
    _point_delta(config, names, report, check)
    if config.iceberg is None or config.iceberg.every == "upkeep":
        return
    seconds = config.iceberg.every_seconds
    if seconds is None:
        check()
        _publish(config, names, report, f"batch-{batch}")
        return
    now, known = time.monotonic(), _waiting.get(config.root)
    if known is None or batch not in (known.batch, known.batch + 1):  # another process carried batches meanwhile
        check()
        asked = _asked(config, mirrors, names)
        _waiting.put(config.root, _publish_old(config, asked, batch, now, seconds, report))
        return
    changed = known.names.union(names)
    _waiting.put(config.root, _Waiting(batch, known.looked, changed))
    if now - known.looked >= seconds:
        check()
        _publish(config, [name for name in _asked(config, mirrors, names) if name in changed], report, f"batch-{batch}")
        _waiting.put(config.root, _Waiting(batch, now, frozenset()))


def _asked(config: PipelineConfig, mirrors: Iterable[TableName], names: Iterable[TableName]) -> list[TableName]:
    """Return mirrors, the tables beside them, and other tables of the lake, as far as the YAML publishes them."""
    return [name for name in dict.fromkeys([*with_beside(config, mirrors), *names]) if is_published(config, name)]


def _publish_old(
    config: PipelineConfig, asked: Sequence[TableName], batch: int, now: float, seconds: float, report: Report
) -> _Waiting:
    """Publish the tables that were published so many seconds ago, or never; return the others, which wait."""
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="published") as pool:
        ages = dict(zip(asked, pool.map(lambda name: _age(path_of(config, name)), asked), strict=True))
    due = [name for name, age in ages.items() if age >= seconds]
    _publish(config, due, report, f"batch-{batch}")
    looked = now - max((age for age in ages.values() if age < seconds), default=0)
    return _Waiting(batch, looked, frozenset(asked).difference(due))


def _age(path: str) -> float:
    """Return how many seconds ago a table was published; infinity for never, or where that can't be read, as its
    publication says why."""
    from binlake.iceberg import table_metadata  # it imports fastavro

    try:
        metadata = table_metadata.newest(path)
    except (OSError, ValueError, KeyError, BinlakeError):
        return math.inf
    return math.inf if metadata is None else max(0, time.time() - metadata.content["last-updated-ms"] / 1000)


def _point_delta(
    config: PipelineConfig, names: Iterable[TableName], report: Report, check: Callable[[], None] = lambda: None
) -> None:
    """Let catalogs of Delta tables have the columns of some; the upkeep looks at all. check: see publish_changed."""
    if any(not is_of_published(entry) for entry in config.reached_catalogs):
        from binlake.registered import published_names  # most sources have no catalog

        check()
        tables = {name: path_of(config, name) for name in names if config.shard_of(name) is None}
        published_names.point_delta(
            config, {n: path for n, path in tables.items() if opened_tables.is_table(path)}, report
        )


def publish_now(config: PipelineConfig, names: Iterable[TableName], report: Report) -> None:
    """Publish mirrors, and the tables beside them, that were changed beside the log. Where the upkeep publishes
    tables, it is left to it."""
    names = [*names]
    _point_delta(config, with_beside(config, names), report)
    if config.iceberg is not None and config.iceberg.every != "upkeep":
        _publish(config, with_beside(config, names), report, None)


def is_published(config: PipelineConfig, name: TableName) -> bool:
    """Return whether the YAML asks for a table of the lake to be published. name: its own, also beside a mirror. A
    shard isn't, but the table that shows it."""
    is_asked = config.iceberg is not None and config.iceberg.includes(name.database, name.table)
    return is_asked and config.shard_of(name) is None


def path_of(config: PipelineConfig, name: TableName) -> str:
    """Return the path of a table of the lake. name: its own, also beside a mirror."""
    mirror = mirror_of(name.table)
    if mirror and mirror[1] in config.tables.beside(name.database, mirror[0]):
        return config.beside_path(TableName(name.database, mirror[0]), mirror[1])
    return config.table_path(name)


def with_beside(config: PipelineConfig, names: Iterable[TableName]) -> Iterator[TableName]:
    """Yield mirrors that are read, the tables beside mirrors, and tables that show mirrors. names: of mirrors."""
    names = [*names]
    yield from merged_names(config, names)
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
    if asked and config.reached_catalogs:
        from binlake.registered import published_names  # most sources have no catalog

        published_names.point(config, {name: path_of(config, name) for name in asked}, report)


def publish_table(config: PipelineConfig, name: TableName, report: Report, tag: str | None = None) -> None:
    """Publish a table; where it can't be, say so once. tag: a name that a new snapshot gets."""
    from binlake.iceberg.publication import publish  # it imports fastavro

    path = path_of(config, name)
    try:
        if config.iceberg is not None and opened_tables.is_table(path):
            publish(path, tag, config.iceberg.version)
        _said.drop([path])
    except BinlakeError as error:
        if _said.get(path) != str(error):
            report.warn(f"{name}: {error}")
            _said.put(path, str(error))


def expire_table(
    config: PipelineConfig, name: TableName, gone: Collection[str], pins: Mapping[str, int], *, look: bool = False
) -> None:
    """Let snapshots of a table go that need files which go, if the YAML publishes it. gone, pins, look: see ``expire``.
    Raises LakeError."""
    if is_published(config, name):
        from binlake.iceberg.upkeep import expire  # it imports fastavro

        expire(path_of(config, name), gone, pins, look=look)
