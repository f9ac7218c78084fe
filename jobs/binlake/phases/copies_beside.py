"""Tables that are copied while batches are carried, and follow once they have gone through the batches behind the copy.

They are copied without the lease. Between two batches their Delta tables are committed, and their lives begin. A table
whose copy the lake hasn't passed yet follows at once. One that it has passed begins as a paused table, which no batch
merges and no version of the lake contains. It goes through the batches that it missed (resume.py), by turns with new
ones, and follows then. The next process that finds such a life after a kill continues with it.

So it is with tables that no batch writes. Those that follow are copied under the lease, and so are those that can't
catch up: with rows that cascades change below the log, with a history or a log beside the mirror, or, as nothing is
followed yet, at the first bootstrap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from binlake.config import PipelineConfig
from binlake.errors import TableError, TablesCopied, UsageError, snapshot_command
from binlake.faults import fault
from binlake.lease import copier, lease
from binlake.lease.copier import Copier
from binlake.lease.lease import Control, Lease
from binlake.phases import resume
from binlake.phases.bootstrap import BeforeSnapshots, begin_lives, names_awaited, note_bootstrap
from binlake.phases.resume import PATIENCE
from binlake.planner.steps import Life, Standstill
from binlake.position import Position
from binlake.records import watermarks
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.snapshot.snapshot import SnapshotResult
from binlake.source.endpoint import Endpoint
from binlake.source.lineage import is_lost
from binlake.source.log import Origin
from binlake.source.server import Source
from binlake.source.unlogged_cascades import unlogged_cascades
from binlake.spark.starting import SessionAsked, SessionFactory
from binlake.store.metadata import Metadata, metadata_of, now_us
from binlake.store.rows import BatchRow, WatermarkRow

_FIRST_LOOK, _GROWS = 64, 8
"""Batches among which the one before a position is looked for at first, and how many times as many at each next look.
"""
_BEGINS = ("dropped", "resnapshot")
"""Statuses of lives in whose place another may begin beside the batches."""


def names_beside(
    config: PipelineConfig, source: Source, metadata: Metadata, names: Sequence[TableName]
) -> list[TableName]:
    """Return those of the tables that can be copied beside the batches."""
    control = lease.read(metadata)
    if not _reads_on(source, control):
        return []
    rows = [row for row in WatermarkRow.read(metadata) if row.has_life]
    known, living = {row.name for row in rows}, {row.name for row in rows if _lives(row)}

    def can_be(name: TableName) -> bool:
        modes = config.mirror_modes(name)
        keeps_deleted = modes.soft_delete and name in known  # they are read when it is committed
        return modes.mirror and not (name in living or config.beside(name) or keeps_deleted)

    if not (chosen := [name for name in names if can_be(name)]):
        return []
    cascades = unlogged_cascades(source, sorted({name.database for name in chosen})) or ()
    children = {cascade.child for cascade in cascades}
    return [name for name in chosen if name not in children]


def _reads_on(source: Source, control: Control) -> bool:
    """Return whether batches are carried, and the next one can read on."""
    position = control.position
    is_at_work = control.token is not None and not control.holder_died
    return (
        position is not None
        and (control.open is None or is_at_work)
        and position.server == source.server_identity
        and not is_lost(source, source.transport(), position)
    )


def _lives(row: WatermarkRow) -> bool:
    return row.has_life and row.status not in _BEGINS


@dataclass
class CopiesBeside:
    """Tables that one process copies beside the batches.

    copying: its row. run: the caller's id of the run. began_us: before the first copy. server_us: the server's clock
    then.
    """

    config: PipelineConfig
    endpoint: Endpoint
    session: SessionAsked
    report: Report
    copying: Copier
    run: str
    began_us: int
    server_us: int
    _held: Lease | None = None

    @property
    def metadata(self) -> Metadata:
        """Return metadata for what is written while tables are copied."""
        return metadata_of(self.config).guarded(self._check)

    def _check(self) -> None:
        """Raise LeaseHeld when another process copies by now, or has the lease that a commit needs."""
        self.copying.check()
        if self._held is not None:
            self._held.check()

    def can_begin(self, low: Position) -> bool:
        """Return whether a table copied at ``low`` can catch up: whether all batches since then are known."""
        control = lease.read(metadata_of(self.config))
        return _batch_before(metadata_of(self.config), control, low) is not None

    @contextmanager
    def turn(self) -> Iterator[Callable[[TableName, Position], int]]:
        """Hold the lease between two batches.

        Yield a function that returns the newest batch before a copy's position. Raises TablesCopied where a batch is
        open, LeaseHeld; the function raises TableError where the copy can't be used.
        """
        self.copying.check()
        with lease.held(metadata_of(self.config), by_turns=True, patience=PATIENCE) as held:
            control = held.control()
            if control.open is not None:
                raise TablesCopied(
                    f"batch {control.open.batch} is open, and tables that were copied wait for its end",
                    remedy="run binlake sync to finish it; the next snapshot continues with what was copied",
                )

            def batch_before(name: TableName, low: Position) -> int:
                self._refuse_begun(held.metadata, name)
                batch = _batch_before(held.metadata, control, low)
                if batch is None:
                    raise TableError(
                        f"{name} was copied at {low.short}, and not all batches since then are known",
                        remedy=snapshot_command(name),
                    )
                return batch

            self._held = held
            try:
                yield batch_before
                held.check()  # while this process slept, others may have copied its tables again
            finally:
                self._held = None

    @staticmethod
    def _refuse_begun(metadata: Metadata, name: TableName) -> None:
        """Raise TableError where a life of that name began while the table was copied."""
        if any(row.name == name and _lives(row) for row in WatermarkRow.read(metadata)):
            raise TableError(
                f"{name} was made again while it was copied, and its copy isn't used",
                remedy="binlake status shows how the new one follows",
            )

    def begin(self, results: Sequence[SnapshotResult]) -> None:
        """Record the lives of tables that were committed within this turn.

        A table that the lake hasn't passed follows at once.
        """
        if not results:
            return
        held = self._held
        assert held is not None  # it is called within a turn
        control, metadata = held.control(), held.metadata
        noted = [replace(result, why_spark=self.session.why) for result in results]
        note_bootstrap(metadata, self.run, control.batch, self.began_us, noted)
        fault("bootstrap noted")
        held.read_under(self.config.reading)
        passed = [result for result in results if not result.low.reaches(control.position)]
        for batch, group in _by_batch(metadata, control, passed).items():
            lives = [_catching_up(result) for result in group]
            versions = {result.table_id: result.delta_version for result in group}
            watermarks.started(
                metadata, lives, batch=batch, versions=versions, first=control.batch + 1, began_us=self.began_us
            )
        ahead = [result for result in results if result not in passed]
        if ahead:
            with Source.open(self.endpoint) as source:
                awaited = names_awaited(self.config, source, ())
                before = BeforeSnapshots(self.began_us, self.server_us)
                begin_lives(held, metadata, source, ahead, control.batch, awaited, before)

    def let_follow(self, name: TableName) -> None:
        """Carry a copied table through the batches that it missed, if it is catching up.

        Raises as ``catch_up`` does.
        """
        if name in watermarks.catching_up(metadata_of(self.config)):
            catch_up(self.config, self.endpoint, self.session, self.report, name)


def _by_batch(
    metadata: Metadata, control: Control, results: Sequence[SnapshotResult]
) -> dict[int, list[SnapshotResult]]:
    groups: dict[int, list[SnapshotResult]] = defaultdict(list)
    for result in results:
        batch = _batch_before(metadata, control, result.low)
        assert batch is not None  # it was asked for before the commit, in the same turn
        groups[batch].append(result)
    return groups


def _catching_up(result: SnapshotResult) -> Life:
    """Return the life of a table that was copied before the lake's position."""
    why = "it was copied beside the batches, and goes through those that it missed"
    waits = Standstill(why, "nothing to do: the snapshot, or the next sync, continues with it")
    return Life(result.table_id, result.name, result.schema, result.low, result.high, "catching up", waits)


def _batch_before(metadata: Metadata, control: Control, low: Position) -> int | None:
    """Return the newest batch all of which is before a position; None where not all batches after it are known."""
    recorded = control.recorded_state
    if recorded is None or (low.server, low.series) != (recorded.position.server, recorded.position.series):
        return None
    if low >= recorded.position:
        return control.batch
    count = _FIRST_LOOK
    while True:
        first = recorded.batch - count
        rows = BatchRow.read(metadata, "batch", "start", "stop", where=f"batch > {first} AND state = 'recorded'")
        place = recorded.position
        for row in sorted(rows, key=lambda row: -row.batch):
            start, stop = Position.parse(row.start), Position.parse(row.stop)
            if (stop.server, stop.order, stop.created) != (place.server, place.order, place.created):
                return None
            if start.server == low.server and start <= low:
                return row.batch - 1
            place = start
        if first <= 0:
            return None
        count *= _GROWS


def catch_up(config: PipelineConfig, origin: Origin, session: SessionFactory, report: Report, name: TableName) -> None:
    """Let a table follow that was copied beside the batches. Raises TableError where it can't continue by itself,
    TablesCopied where it can later."""
    try:
        report.say(resume.follow_again(config, origin, session, report, name))
    except UsageError as error:
        with lease.held(metadata_of(config), by_turns=True, patience=PATIENCE) as held:
            if name not in watermarks.catching_up(held.metadata):
                return  # somebody resumed it, or decided otherwise
            if held.control().open is not None:
                raise TablesCopied(
                    error.message, remedy="run binlake sync: it continues with the table, too"
                ) from error
            (row,) = (row for row in WatermarkRow.read(held.metadata) if row.name == name and _lives(row))
            stopped = row.standing("stopped", Standstill(error.message, error.remedy))
            watermarks.write(held.metadata, [replace(stopped, updated_us=now_us())])
        raise TableError(error.message, remedy=error.remedy) from error


def go_on(config: PipelineConfig, origin: Origin, session: SessionFactory, report: Report) -> None:
    """Continue with tables that an ended process copied beside the batches; where another process copies, leave them to
    it. A table that can't continue is reported, and stopped."""
    metadata = metadata_of(config)
    if not watermarks.catching_up(metadata):
        return
    try:
        with copier.held(metadata):
            for name in watermarks.catching_up(metadata):
                try:
                    catch_up(config, origin, session, report, name)
                except TableError as error:
                    report.say(str(error))
    except TablesCopied as held:
        report.say(held.message)
