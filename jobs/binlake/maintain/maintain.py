"""Maintain: the upkeep of a lake that lives for years, beside the syncs that carry it on.

    look      which tables may be touched, and that nobody else changed their rows
    layout    small files are put together, overlapping ones sorted by the key (delta/layout.py)
    vacuum    files that no promised version needs go, and of Delta's log what is older than promised
    metadata  our own tables: few files, rows as long as promised; what dead runs left in staging goes

A table with nothing to do costs no Spark. Why all this is safe beside a sync, and when it is killed:

1.  Whatever is committed is committed under the lease, and while no batch is open (``_hold``): so no MERGE has read
    what we replace, no snapshot stands between its fence and its rows, no table is dropped or moved under us, and
    nobody who looks at the newest commit of his own table finds ours there. It is held for moments: others wait for it.
2.  The long part, writing rows into new files, happens without the lease; nobody reads these before the commit. Delta
    refuses the commit if one of the old files was taken away meanwhile: the table's files are chosen anew.
3.  The commit changes no data (``dataChange = false``), carries no application id, and as many rows as it took away:
    what is recorded of a life in the table, ``recorded()``, stays. It names no life, so it belongs to whichever was
    there before it, and to upkeep (``delta_log.last_change``).
4.  After it the table's watermark knows the Delta version; before that it is proved that nobody else changed rows since
    the version known before. Killed in between, the next sync finds an OPTIMIZE there, which changes no rows.
5.  Ranges of keys that a MERGE has worked out by the files before (delta/key_ranges.py) are true of the same rows in
    any files; and by 1 no MERGE is under way.
6.  A zombie, who lost the lease before we took it, may have read old files: its MERGE conflicts and begins again under
    its own transaction version, which is recorded by then. If we wake as one, our commit meets Delta's rules alone:
    it is refused, or whom it precedes begins again; a snapshot ends with an error, and is taken up by the next run.
7.  The vacuum keeps all that was needed since the look, whatever the promise: at the look no batch was open and the
    watermarks knew the newest versions, so no batch needs a file that was replaced by then, and files of those who
    began to write since are younger. It commits nothing, so it may run beside anybody.
8.  Tables whose snapshot isn't finished, and those that stand still (stopped, to be snapshotted), are left alone:
    uncommitted files may be needed there. Of dropped ones, whose rows are kept as they are, replaced files go.
9.  Our own tables are only rewritten under the lease, which all their writers hold. Files that were replaced stay for
    as long as a writer may sleep.
10. Each act is whole by itself and finds its work anew: killed anywhere, the next run goes on.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from binlake import names
from binlake.batch.steps import Life
from binlake.config import PipelineConfig
from binlake.config.units import HOUR_SECONDS
from binlake.delta import attempts, key_ranges, layout
from binlake.delta.delta_log import LakeLog
from binlake.delta.layout import Rewrite
from binlake.errors import BinlakeError, TableError, UsageError
from binlake.faults import fault
from binlake.metadata import expiry, lease, leftovers, watermarks
from binlake.metadata.expiry import MetadataUpkeep
from binlake.metadata.lease import Lease
from binlake.metadata.leftovers import Unneeded
from binlake.metadata.metadata import Metadata, now_us
from binlake.report import Report
from binlake.schema.table import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.spark.starting import SessionFactory

PATIENCE = 900.0
"""Seconds that are waited for a sync at work."""
_LOOK_AGAIN = 1.0
_NO_TABLE = "it has no Delta table yet"
_SIDE_BY_SIDE = 4
_TOUCHED = ("following", "paused", "excluded", "dropped")
_TRIES = 3
"""Of a table whose files are replaced by others while they are rewritten."""
_COMMIT_BYTES = 8 << 30
"""Of data files that one commit replaces, about: what a conflict throws away."""
_OLD_VECTORS = 16
"""Files of deletion vectors that may be unneeded: Delta's vacuum starts Spark for them."""


@dataclass(frozen=True)
class TableUpkeep:
    """What was done to one table. files, bytes: of its newest version. removed: by the vacuum; log_files: of
    Delta's log. left: why not (all)."""

    table: str
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rewritten_files: int = 0
    written_files: int = 0
    removed_files: int = 0
    removed_bytes: int = 0
    removed_log_files: int = 0
    delta_version: int | None = None
    seconds: float = 0.0
    left: str = ""


@dataclass(frozen=True)
class MaintainReport:
    """One run. folders_removed: of tables that died before their first commit."""

    tables: tuple[TableUpkeep, ...]
    metadata: tuple[MetadataUpkeep, ...]
    staging_removed: tuple[str, ...]
    folders_removed: tuple[str, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def headline(self) -> str:
        rewritten, written, removed = (
            sum(getattr(table, name) for table in self.tables)
            for name in ("rewritten_files", "written_files", "removed_files")
        )
        log = sum(table.removed_log_files for table in self.tables)
        ours = sum(one.removed_files for one in self.metadata)
        return (
            f"{len(self.tables)} tables: {rewritten} data files became {written}, {removed} that nobody needs went, "
            f"{log} of Delta's logs; "
            f"{ours} files of metadata and {len(self.staging_removed)} folders of staging went"
            + (f", {len(self.folders_removed)} of tables that nobody committed" if self.folders_removed else "")
        )


@dataclass(frozen=True)
class _Table:
    """A table when it was looked at. version: up to which nobody else changed its rows. left: why it is left alone."""

    life: Life
    log: LakeLog
    version: int = -1
    left: str = ""

    @property
    def name(self) -> TableName:
        return self.life.name


@dataclass(frozen=True)
class _Needs:
    """What is to be done to a table, by its log and its folder."""

    files: int
    bytes: int
    version: int
    rewrites: tuple[Rewrite, ...]
    properties: dict[str, str]
    unneeded: Unneeded

    @property
    def vectors(self) -> bool:
        return self.unneeded.vectors >= _OLD_VECTORS

    @property
    def spark(self) -> bool:
        return bool(self.rewrites or self.properties or self.vectors)


def maintain(
    config: PipelineConfig,
    session: SessionFactory,
    metadata: Metadata,
    report: Report,
    *,
    tables: list[str] | None = None,
    run: str | None = None,
    patience: float = PATIENCE,
) -> MaintainReport:
    """Look after the tables that patterns name, else after all, and after our own.

    run: what the runs in metadata call it. patience: seconds to wait for a sync at work. Raises UsageError where a
    batch stays open, LeaseHeld where another run goes on for longer, and what a table failed with, once the others are
    done.
    """
    began, began_us = time.monotonic(), now_us()
    work = _Work(config, session, metadata, report, patience)
    done = work.tables(tables)
    with _hold(metadata, patience) as held:
        ours = expiry.keep_metadata(held.metadata, config.maintain)
        fault("metadata compacted")
        removed = _remove_leftovers(config, held)
        unborn = _remove_unborn(config, held)
        fault("leftovers removed")
        seconds = round(time.monotonic() - began, 2)
        found = MaintainReport(tuple(done), tuple(ours), tuple(removed), tuple(unborn), seconds)
        _note(held, found, run, began_us)
    report.say(found.headline)
    for error in work.failed:
        raise error
    return found


def wants_spark(config: PipelineConfig, metadata: Metadata) -> bool:
    """Whether a table has anything to do, as it stands now. Needs neither server nor Spark."""
    looked = time.time()
    lives = [life for life in watermarks.read_lives(metadata) if life.status in _TOUCHED]
    logs = [(life, LakeLog.of(config, life.name, life.id)) for life in lives]
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        return any(pool.map(lambda one: one[1].exists() and _needs(config, _Table(*one), looked).spark, logs))


@contextmanager
def _hold(metadata: Metadata, patience: float) -> Iterator[Lease]:
    """The lease, for a moment, once no batch is open: a sync in Airflow gives it back between its steps."""
    until = time.monotonic() + patience
    while True:
        with lease.held(metadata, patience=max(0.0, until - time.monotonic()), brief=True) as held:
            opened = held.control().open
            if opened is None:
                yield held
                return
        if time.monotonic() >= until:
            raise UsageError(
                f"batch {opened.batch} is open ({opened.state}) and nobody carries it on",
                remedy="run binlake sync to finish it, then maintain",
            )
        time.sleep(_LOOK_AGAIN)


class _Work:
    """One run's work on tables, side by side."""

    def __init__(
        self,
        config: PipelineConfig,
        session: SessionFactory,
        metadata: Metadata,
        report: Report,
        patience: float,
    ) -> None:
        self._config, self._session, self._metadata, self._report = config, session, metadata, report
        self._patience = patience
        self._alone = threading.Lock()  # one lease of this process at a time
        self._looked = 0.0
        self.failed: list[BinlakeError] = []

    def tables(self, patterns: list[str] | None) -> list[TableUpkeep]:
        self._looked = time.time()
        with self._held() as held:
            found = self._look(held, patterns)
        fault("versions known")
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="maintain") as pool:
            return list(pool.map(self._kept, found))

    @contextmanager
    def _held(self) -> Iterator[Lease]:
        with self._alone, _hold(self._metadata, self._patience) as held:
            yield held

    def _look(self, held: Lease, patterns: list[str] | None) -> list[_Table]:
        """The tables that may be touched, whose watermarks know their newest versions from here on."""
        lives = [life for life in watermarks.read_lives(held.metadata) if _asked(life.name, patterns)]
        lives.sort(key=lambda life: (life.name.database, life.name.table))
        if patterns and not lives:
            raise UsageError(
                f"no table of the lake matches {', '.join(patterns)}",
                remedy="patterns are database.table; binlake status lists the tables",
            )
        busy = _busy(held.metadata)
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            seen = pool.map(lambda life: self._seen(life, busy), lives)
            looked = [one for one in seen if one.life.status != "dropped" or one.left != _NO_TABLE]
        self._know(held, [one for one in looked if not one.left])
        return looked

    def _seen(self, life: Life, busy: set[TableName]) -> _Table:
        log = LakeLog.of(self._config, life.name, life.id)
        if life.status not in _TOUCHED:
            return _Table(life, log, left=f"it is {life.status}")
        if life.name in busy:
            return _Table(life, log, left="a snapshot of it isn't finished")
        if life.delta_version is None or not log.exists():
            return _Table(life, log, left=_NO_TABLE)
        try:
            return _Table(life, log, log.refuse_others({life.id}, life.delta_version))
        except TableError as error:
            return _Table(life, log, left=error.message)

    @staticmethod
    def _know(held: Lease, tables: list[_Table]) -> None:
        """Their Delta versions stand in their watermarks: a batch begins from them, and looks no further back."""
        newest = {one.life.id: one.version for one in tables if one.version != one.life.delta_version}
        rows = [
            {**row, "delta_version": newest[row["table_id"]]}
            for row in held.metadata.read("watermarks")
            if row["table_id"] in newest
        ]
        watermarks.write(held.metadata, rows)

    def _kept(self, table: _Table) -> TableUpkeep:
        began = time.monotonic()
        if table.left:
            return TableUpkeep(str(table.name), left=table.left)
        try:
            done = self._keep(table)
        except BinlakeError as error:
            self._report.say(f"{table.name}: {error}")
            self.failed.append(error)
            done = TableUpkeep(str(table.name), left=error.message)
        return replace(done, seconds=round(time.monotonic() - began, 2))

    def _keep(self, table: _Table) -> TableUpkeep:
        needs = _needs(self._config, table, self._looked)
        done = TableUpkeep(
            str(table.name), needs.files, needs.files, needs.bytes, needs.bytes, delta_version=needs.version
        )
        if needs.rewrites:
            why = f"{sum(len(one.files) for one in needs.rewrites)} of its data files are put together"
            done = self._arrange(self._own_session(table, why), table, needs, done)
        if needs.properties:
            self._set(self._own_session(table, "its retention is set"), table, needs.properties)
        if needs.rewrites or needs.properties:
            needs = _needs(self._config, table, self._looked)  # of the same time: what was rewritten since isn't old
        done = self._shortened(table, self._vacuumed(table, needs, done))
        return replace(done, delta_version=table.log.version() if table.log.exists() else None)

    def _arrange(self, session: SparkSession, table: _Table, needs: _Needs, done: TableUpkeep) -> TableUpkeep:
        for _ in range(_TRIES):
            chosen = needs.rewrites
            for part in _parts(chosen):
                written = self._rewrite(session, table, part)
                if written is None:
                    break
                done = _added(done, part, *written)
            else:
                return done
            needs = _needs(self._config, table, self._looked)
        return replace(done, left="others replace its files: they are put together by the next run")

    def _rewrite(self, session: SparkSession, table: _Table, part: list[Rewrite]) -> tuple[int, int] | None:
        """Files and bytes written; None where others were quicker."""
        from binlake.maintain.upkeep_by_spark import Rewriting

        made = Rewriting(session, table.log)
        for one in part:
            made.write(one, key_ranges.sort_order(table.life.schema) if self._config.maintain.sort else ())
        fault("rows rewritten")
        with self._held() as held:
            self._seen_again(held, table)
            held.check()
            if not made.commit({"binlake": {"source": self._config.source.name, "maintain": "layout"}}):
                return None
            fault("layout committed")
            self._know(held, [self._seen_again(held, table)])
        return made.written_files, made.written_bytes

    def _set(self, session: SparkSession, table: _Table, properties: dict[str, str]) -> None:
        from binlake.maintain.upkeep_by_spark import set_properties

        with self._held() as held:
            self._seen_again(held, table)
            set_properties(session, table.log, properties)
            self._know(held, [self._seen_again(held, table)])

    def _seen_again(self, held: Lease, table: _Table) -> _Table:
        """Raises TableError where it isn't the table at the look any more, or others changed its rows."""
        for life in watermarks.read_lives(held.metadata):
            if (life.id, life.name) == (table.life.id, table.name):
                now = self._seen(life, _busy(held.metadata))
                if not now.left:
                    return now
                raise TableError(f"{table.name}: {now.left}", remedy="run maintain again")
        raise TableError(f"{table.name} was renamed or copied anew meanwhile", remedy="run maintain again")

    def _vacuumed(self, table: _Table, needs: _Needs, done: TableUpkeep) -> TableUpkeep:
        """Files that no promised version needs go; deletion vectors' by Delta's own vacuum, once many are old."""
        if not table.log.exists() or table.name in _busy(self._metadata):
            return done
        leftovers.remove_data(table.log, needs.unneeded.data)
        if needs.vectors:
            from binlake.maintain.upkeep_by_spark import vacuum

            since_look = (time.time() - self._looked) / HOUR_SECONDS
            session = self._own_session(table, f"{needs.unneeded.vectors} files of deletion vectors may be unneeded")
            vacuum(session, table.log, max(self._config.maintain.history_hours, since_look))
        fault("vacuumed")
        gone = needs.unneeded.data
        return replace(done, removed_files=len(gone), removed_bytes=sum(file.bytes for file in gone))

    def _shortened(self, table: _Table, done: TableUpkeep) -> TableUpkeep:
        """Of Delta's log what is older than promised goes: Spark does so by itself, a sync without Spark doesn't."""
        expired = leftovers.expired_log(table.log, self._looked - self._config.maintain.log_hours * HOUR_SECONDS)
        if not expired:
            return done
        with self._held() as held:
            self._seen_again(held, table)
            leftovers.remove_log(table.log, expired)
        fault("log shortened")
        return replace(done, removed_log_files=len(expired))

    def _own_session(self, table: _Table, why: str) -> SparkSession:
        """Return a session of this thread, which works on one table."""
        from binlake.spark.session import of_this_thread

        return of_this_thread(self._session(f"{table.name}: {why}"))


def _busy(metadata: Metadata) -> set[TableName]:
    """Tables of which a snapshot isn't finished."""
    return {TableName(*name) for name in expiry.unfinished_snapshots(metadata).values()}


def _asked(name: TableName, patterns: list[str] | None) -> bool:
    return not patterns or any(names.matches(pattern, name.database, name.table) for pattern in patterns)


def _needs(config: PipelineConfig, table: _Table, looked: float) -> _Needs:
    promised, log, schema = config.maintain, table.log.log(), table.life.schema
    found = layout.data_files(log, schema)
    needs = _Needs(
        files=len(found),
        bytes=sum(file.bytes for file in found),
        version=int(log.version()),
        rewrites=(),
        properties={},
        unneeded=leftovers.unneeded(
            table.log, looked - promised.history_hours * HOUR_SECONDS, sum(file.deleted > 0 for file in found)
        ),
    )
    if table.life.status == "dropped":
        return needs  # its rows stay where they are
    overlap = promised.overlap if promised.sort and key_ranges.is_of_numbers(schema) else None
    return replace(
        needs,
        rewrites=tuple(layout.rewrites(found, target=promised.file_bytes, overlap=overlap)),
        properties=expiry.retention(
            log.metadata().configuration, history_hours=promised.history_hours, log_hours=promised.log_hours
        ),
    )


def _parts(chosen: tuple[Rewrite, ...]) -> list[list[Rewrite]]:
    """What one commit replaces."""
    parts: list[list[Rewrite]] = []
    room = 0
    for one in chosen:
        if not parts or one.bytes > room:
            parts.append([])
            room = _COMMIT_BYTES
        parts[-1].append(one)
        room -= one.bytes
    return parts


def _added(done: TableUpkeep, part: list[Rewrite], files: int, size: int) -> TableUpkeep:
    old = sum(len(one.files) for one in part)
    return replace(
        done,
        files_after=done.files_after - old + files,
        bytes_after=done.bytes_after - sum(one.bytes for one in part) + size,
        rewritten_files=done.rewritten_files + old,
        written_files=done.written_files + files,
    )


def _remove_leftovers(config: PipelineConfig, held: Lease) -> list[str]:
    standing = held.control().standing
    removed = leftovers.remove_recorded(config, standing) if standing else []
    return removed + attempts.remove_dead(config, lambda: expiry.unfinished_snapshots(held.metadata))


def _remove_unborn(config: PipelineConfig, held: Lease) -> list[str]:
    """But for what may be taken up again, and what should be a table."""
    lives = {life.name for life in watermarks.read_lives(held.metadata)}
    before = time.time() - config.maintain.history_hours * HOUR_SECONDS
    return leftovers.remove_unborn(config, lives | _busy(held.metadata), before)


def _note(held: Lease, found: MaintainReport, run: str | None, began_us: int) -> None:
    control = held.control()
    row = {
        "run": run or uuid.uuid4().hex,
        "kind": "maintain",
        "batch": control.batch,
        "started_us": began_us,
        "ended_us": now_us(),
        "outcome": "recorded",
        "position": str(control.position) if control.position else None,
        "tables": json.dumps([asdict(table) for table in found.tables], ensure_ascii=False),
        "phases": json.dumps({"maintain": found.seconds}),
        "bytes": sum(table.removed_bytes for table in found.tables),
        "mutations": 0,
        "message": found.headline,
    }
    held.metadata.append("runs", [row])
