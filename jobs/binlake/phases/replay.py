"""Replay: build tables as they were after some batch, from a snapshot and staged mutations, without a server.

    base     the oldest version of the table that the lake still has complete: usually its snapshot
    batches  each one after the base, up to the one asked for: read from its staging, which is kept for
             maintain.staging_hours, or staged again from a folder of binlog files
    steps    planned and applied as the merge did, to a Delta table at a path of its own

The merge's own code plans the steps, from the same manifest; only the base is taken from the existing table. A repeated
replay starts from the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from binlake import names
from binlake.config import LakeConfig, PipelineConfig
from binlake.config.table_modes import beside_table
from binlake.delta.delta_log import LakeLog, overtaking
from binlake.errors import FIRST_BATCH, UNMATCHED_REMEDY, BinlakeError, TableError, UsageError
from binlake.faults import fault
from binlake.lease import lease
from binlake.lease.lease import OpenBatch, RecordedState
from binlake.merge.merge import apply_steps, as_staged, inputs_of, manifest_of
from binlake.planner import epochs
from binlake.planner.manifest import Manifest
from binlake.planner.steps import BatchSteps, Life, MergeStep, PreparedXa, rebased
from binlake.records import decisions, replayable, watermarks
from binlake.records.decisions import Reason
from binlake.records.failures import run_of_airflow
from binlake.records.record import OtherRun, note_run
from binlake.records.replayable import Base
from binlake.report import Report, counted
from binlake.source.folder import Folder
from binlake.source.lineage import check_position
from binlake.source.log import opened, readers
from binlake.spark.starting import SessionFactory, no_session
from binlake.staging.masked_tables import MaskedTables
from binlake.staging.stage import stage_batch
from binlake.staging.staged_files import check_file
from binlake.storage import files, storage_errors
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import BatchRow, ShapeRow, WatermarkRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.merge.lake_table import LakeTable

_NAMED = 5
"""The most missing batches that an error names."""


@dataclass(frozen=True)
class ReplayRequest:
    """A request to replay tables.

    tables: patterns. batch, as_of: the batch to replay to, or a time for the last batch recorded by then; both None for
    the newest batch. archive: binlog files of the source, for batches that aren't staged any more. prove: compare the
    result row by row with the existing table's version of that batch. in_place: replace the existing table's rows by
    those of the newest batch, and record this reason.
    """

    tables: Sequence[str]
    batch: int | None = None
    as_of: datetime | None = None
    archive: Folder | None = None
    prove: bool = False
    in_place: Reason | None = None


@dataclass(frozen=True)
class ReplayedTable:
    """The result for one table.

    path: of the built table. from_version: the existing table's version that was the base; it has the rows of batch
    ``from_batch``. batches: how many were applied to it. equals_version: the existing table's version that was proved
    equal; None if that wasn't asked for, or its files are gone.
    """

    table: str
    path: str
    batch: int
    position: str
    rows: int
    from_version: int
    from_batch: int
    batches: int
    equals_version: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        return asdict(self)

    def to_text(self) -> str:
        """Return the result in one line."""
        proved = f"; equal to Delta version {self.equals_version}" if self.equals_version is not None else ""
        rows, batches = counted(self.rows, "row"), counted(self.batches, "batch")
        return (
            f"{self.table} as of batch {self.batch}: {self.path}, {rows}, by {batches} behind "
            f"Delta version {self.from_version}{proved}"
        )


def replay(
    config: PipelineConfig, session: SessionFactory, metadata: Metadata, report: Report, request: ReplayRequest
) -> list[ReplayedTable]:
    """Build the tables below ``{lake}/{source}/_replayed/{batch}``, or in place if the request says so.

    Raises UsageError, which names what is lacking; TableError if a batch can't be applied to a table; in place also
    LeaseHeld.
    """
    began_us = now_us()
    tables = _built(config, session, metadata, report, request)
    took = round((now_us() - began_us) / 1e6, 3)
    named = ", ".join(table.table for table in tables[:_NAMED]) + (" …" if tables[_NAMED:] else "")
    built = f"{counted(len(tables), 'table')} built as of batch {tables[0].batch}: {named}"
    rows = [table.to_json() for table in tables]
    noted = OtherRun(
        kind="replay", run=run_of_airflow(), batch=tables[0].batch, position=None, phase=("replay", took),
        message=built, began_us=began_us, tables=rows,
    )  # fmt: skip
    note_run(metadata, noted)
    return tables


def _built(
    config: PipelineConfig, session: SessionFactory, metadata: Metadata, report: Report, request: ReplayRequest
) -> list[ReplayedTable]:
    if not request.in_place:
        return [table.run() for table in _ready(config, session, metadata, report, request)]
    with lease.held(metadata) as held:
        control = held.control()
        if control.open is not None:
            raise UsageError(f"batch {control.open.batch} is open", remedy="run binlake sync to finish it, then replay")
        tables = _ready(config, session, held.metadata, report, request)
        recorded_state = _refuse_another_batch(control.recorded_state, tables)
        return [table.put_in_place(table.run(), recorded_state, request.in_place) for table in tables]


def check(config: PipelineConfig, metadata: Metadata, request: ReplayRequest) -> None:
    """Raise UsageError if a replay would be refused before it builds anything. Needs neither lease nor Spark."""
    tables = _ready(config, no_session, metadata, Report(quiet=True), request)
    if request.in_place:
        _refuse_another_batch(lease.read(metadata).recorded_state, tables)


def _refuse_another_batch(recorded_state: RecordedState | None, tables: Sequence[_Replay]) -> RecordedState:
    """Return ``recorded_state``. Raises UsageError unless the tables are replayed to its batch."""
    if recorded_state is None or tables[0].batch != recorded_state.batch:
        raise UsageError(
            "a table in place follows the log, so it must be what the newest batch left",
            remedy="name no other batch and no time, or leave --in-place out",
        )
    return recorded_state


def _ready(
    config: PipelineConfig, session: SessionFactory, metadata: Metadata, report: Report, request: ReplayRequest
) -> list[_Replay]:
    """Return the tables to replay. Raises UsageError if one lacks something."""
    selection = _Selection(config, metadata, request)
    tables = [_Replay(selection, row, session, report) for row in selection.rows()]
    for table in tables:
        table.refuse_lacking()
    return tables


class _Selection:
    """The tables and the batch asked for, resolved by metadata."""

    def __init__(self, config: PipelineConfig, metadata: Metadata, request: ReplayRequest) -> None:
        self.config = config
        self.metadata = metadata
        self.request = request
        self.recorded = replayable.recorded(metadata)
        recorded_state = lease.read(metadata).recorded_state
        # Those of the newest batch: what they were before isn't kept.
        self.charsets = (recorded_state and recorded_state.charsets) or {}
        self.answers = recorded_state.answers if recorded_state else ()
        self.batch = self._batch()
        beside = LakeConfig(path=f"{config.root}/_replayed/{self.batch}")
        self.beside = config.model_copy(update={"lake": beside})

    def _batch(self) -> int:
        asked = self.request
        if asked.batch is not None and asked.as_of is not None:
            raise UsageError("a batch and a time were given", remedy="give one of them")
        if not self.recorded:
            raise UsageError("no batch is recorded that could be replayed", remedy=FIRST_BATCH)
        if asked.as_of is not None:
            return replayable.newest_at(self.recorded.values(), asked.as_of)
        batch = max(self.recorded) if asked.batch is None else asked.batch
        if batch not in self.recorded:
            known = f"{min(self.recorded)} to {max(self.recorded)}"
            raise UsageError(f"batch {batch} isn't recorded in metadata", remedy=f"name one that is: {known}")
        return batch

    def rows(self) -> list[WatermarkRow]:
        """Return the watermarks of the tables. Raises UsageError if a pattern matches none."""
        living = [row for row in WatermarkRow.read(self.metadata) if row.low and row.status != "dropped"]
        known = [(row.database, row.table) for row in living]
        if unknown := names.unmatched(self.request.tables, known):
            raise UsageError(f"the lake has no table that matches {', '.join(unknown)}", remedy=UNMATCHED_REMEDY)
        if not self.request.tables:
            raise UsageError("no table was named", remedy="name tables, such as shop.orders or shop.*")
        wanted = self.request.tables
        return [row for row, name in zip(living, known, strict=True) if names.matches_any(wanted, *name)]


class _Replay:
    """The replay of one table. row: its watermark."""

    def __init__(self, selection: _Selection, row: WatermarkRow, session: SessionFactory, report: Report) -> None:
        self._selection = selection
        self._row = row
        self._session = session
        self._report = report
        self._name = row.name
        self._existing = LakeLog.of(selection.config, self._name, row.table_id)
        if selection.config.policies.of(self._name).on_unlogged_cascade == "derive":
            raise UsageError(
                f"{self._name}: what its parents' foreign keys changed is derived (on_unlogged_cascade); a replay "
                "can't do that",
                remedy=f"leave it out, or read the table's own history: VERSION AS OF in {self._existing.path}",
            )
        if self._shapes[-1].shape.without_rows:
            raise UsageError(
                f"{self._name} has no mirror (tables.modes, mirror: false) that could be built again",
                remedy=f"leave it out, or read its mutations up to the batch: {beside_table(str(self._name), 'log')}"
                f" WHERE batch <= {selection.batch}",
            )
        if selection.request.in_place and row.status in ("paused", "catching up"):
            raise UsageError(
                f"{self._name} is {row.status}", remedy="let it follow again first, or leave --in-place out"
            )

    @property
    def batch(self) -> int:
        return self._selection.batch

    @cached_property
    def _shapes(self) -> list[ShapeRow]:
        """Return the rows of ``schemas`` of the table's life, oldest first."""
        rows = ShapeRow.read(self._selection.metadata, where=f"table_id = {literal(self._row.table_id)}")
        return sorted(rows, key=lambda row: row.order)

    @cached_property
    def _base(self) -> Base:
        """Return the oldest complete version, at or before the batch asked for. Raises UsageError if there is none."""
        known = replayable.bases(self._existing, self._row.table_id, self._shapes[0].batch)
        early = [base for base in known if base.batch <= self._selection.batch]
        if not early:
            raise UsageError(
                f"{self._name} began its life here behind batch {self._selection.batch}",
                remedy=f"name batch {known[0].batch} or a later one" if known else "snapshot the table again",
            )
        for base in early:
            known_whole = base.snapshot or replayable.kept(self._selection.config, base.batch)
            if known_whole and replayable.is_readable(self._existing, base.version):
                return base
        raise UsageError(
            f"{self._name}: up to batch {self._selection.batch} no version is whole, of its snapshot or of a batch "
            "that is still staged",
            remedy="how long they stay is maintain.history_hours and maintain.staging_hours of the YAML",
        )

    @property
    def _prepared(self) -> tuple[PreparedXa, ...]:
        """Return the XA transactions that were prepared at the base and had no outcome yet; none for a snapshot."""
        batch = None if self._base.snapshot else replayable.kept(self._selection.config, self._base.batch)
        return batch.outcome.prepared if batch else ()

    @cached_property
    def _numbers(self) -> list[int]:
        """Return the numbers of the batches to apply to the base, without those never recorded, which changed
        nothing."""
        rows = BatchRow.read(self._selection.metadata, "batch", "state")
        never = {row.batch for row in rows if row.state != "recorded"}
        return [number for number in range(self._base.batch + 1, self._selection.batch + 1) if number not in never]

    def refuse_lacking(self) -> None:
        """Raise UsageError, naming the batches, if the staging of some is gone."""
        if self._selection.request.archive:
            lacking = [number for number in self._numbers if number not in self._selection.recorded]
        else:
            lacking = [number for number in self._numbers if replayable.kept(self._selection.config, number) is None]
        if not lacking:
            return
        named = ", ".join(map(str, lacking[:_NAMED])) + (
            f" and {len(lacking) - _NAMED} more" if lacking[_NAMED:] else ""
        )
        raise UsageError(
            f"{self._name}: replayed from batch {self._base.batch} on it lacks the staging of batch {named}",
            remedy="give --archive file:///FOLDER with the source's binlog files, if you have them; batches that come "
            "are kept for maintain.staging_hours of the YAML",
        )

    def run(self) -> ReplayedTable:
        life = self._life_at_base()
        files.remove_folder(self._target(life).path)
        self._report.say(f"{self._name}: begun with Delta version {self._base.version}, of batch {self._base.batch}")
        life = replace(life, delta_version=self._copy_base(life))
        prepared = self._prepared
        for number in self._numbers:
            life, prepared = self._apply_batch(life, number, prepared)
        self._replayed = life
        return self._result(life)

    def put_in_place(self, built: ReplayedTable, recorded_state: RecordedState, reason: Reason) -> ReplayedTable:
        """Replace the table's rows by those that were built, in one commit; it follows the log from here.

        Killed after the commit, the table stops at the next batch as changed by somebody; it can be replayed again.
        """
        from binlake.merge.lake_table import LakeTable

        session = self._own_session("replayed rows are put in place by Delta's own writer")
        life, metadata = self._replayed, self._selection.metadata
        if life.name != self._name:
            raise UsageError(f"{self._name} was {life.name} then", remedy="leave --in-place out")
        target = LakeTable.of(self._selection.config, life.name, life.id)
        note = {"source": self._selection.config.source.name, "life": life.id, "batch": self.batch, "replayed": True}
        rows = session.read.format("delta").load(built.path)
        metadata.check()
        began_us = now_us()
        name = life.name
        decisions.note(metadata, "replay", reason, database=name.database, table=name.table, batch=self.batch)
        version = (
            max(overtaking(self.batch), target.recorded()) + 1
        )  # after any version that a process still working at the batch may write
        target.overwrite(session, rows, version, {"binlake": note})
        fault("rows committed")
        shape = watermarks.schema_row(life, batch=self.batch, where=recorded_state.position, why="followed")
        where = f"table_id = {literal(life.id)} AND batch = {self.batch} AND why = 'followed'"
        ShapeRow.replace(metadata, where, [shape])
        position = (
            max(recorded_state.position, life.low)
            if life.low.server == recorded_state.position.server
            else recorded_state.position
        )
        row = watermarks.watermark_row(life, batch=self.batch, position=position, delta_version=target.version())
        watermarks.write_beside(metadata, [row], self._selection.config.is_listed, began_us=began_us)
        files.remove_folder(built.path)
        return replace(built, path=target.path)

    def _own_session(self, why: str) -> SparkSession:
        """Return a session of this thread's own."""
        from binlake.spark.session import of_this_thread

        return of_this_thread(self._session(why))

    def _target(self, life: Life) -> LakeTable:
        from binlake.merge.lake_table import LakeTable

        return LakeTable.of(self._selection.beside, life.name, life.id)

    def _life_at_base(self) -> Life:
        """Return the table's life as it was at the base."""
        base = self._base
        shape = [row for row in self._shapes if row.batch <= base.batch][-1]
        low = base.snapshot or self._selection.recorded[base.batch].range.stop
        high = self._row.snapshot[1]
        high = high if base.snapshot and high.server == low.server else low
        return Life(self._row.table_id, self._name, shape.shape, low, high)

    def _copy_base(self, life: Life) -> int:
        """Copy the base's rows to the table's new path; return the Delta version."""
        target, base = self._target(life), self._base
        session = self._own_session(f"a replay copies Delta version {base.version} of {self._existing.path}")
        rows = session.read.format("delta").option("versionAsOf", base.version).load(self._existing.path)
        note = {"source": self._selection.config.source.name, "life": life.id, "replayed_from": base.version}
        try:
            target.overwrite(session, rows, overtaking(base.batch), {"binlake": note})
        except BinlakeError:
            raise
        except Exception as error:
            doing = f"copying Delta version {base.version} of {self._existing.path} failed"
            raise storage_errors.failed(doing, error) from error
        return target.version()

    def _apply_batch(
        self, life: Life, number: int, prepared: tuple[PreparedXa, ...]
    ) -> tuple[Life, tuple[PreparedXa, ...]]:
        plan = replayable.kept(self._selection.config, number)
        manifest = None if plan is None else manifest_of(self._selection.config, plan)
        if plan is None or manifest is None:
            plan, manifest = self._stage_again(life, number)
        life = rebased(life, life.high, plan.range.start)
        inputs = inputs_of(self._as_followed(manifest, number), plan, [life], self._selection.answers)
        inputs = replace(inputs, prepared=prepared, charsets=self._selection.charsets)
        steps = epochs.split(manifest, inputs)
        (table,) = [table for table in steps.tables if table.life.id == life.id]
        self._refuse_stop(table.life)
        for file in {
            file.path: file for step in table.steps if isinstance(step, MergeStep) for file in step.staged
        }.values():
            check_file(file)
        one_table = BatchSteps((table,), (), (), ())
        self._report.say(f"{self._name}: batch {number}, {len(table.steps)} steps")
        beside = as_staged(self._selection.beside, manifest)
        outcomes = apply_steps(beside, self._session, plan, one_table, self._report)
        life = outcomes[0].life if outcomes else table.life
        self._refuse_stop(life)
        version = outcomes[0].delta_version if outcomes else life.delta_version
        return replace(life, delta_version=version), steps.prepared

    def _as_followed(self, manifest: Manifest, number: int) -> PipelineConfig:
        """Return the settings by which the table followed a batch, whatever the YAML has by now: it followed the
        batch's schema changes, by the policy of then or by an answer, unless it stopped there."""
        config = as_staged(self._selection.config, manifest)
        followed = self._row.status == "following" or number < self._row.batch
        return config.model_copy(update={"on_schema_change": []}) if followed else config

    def _refuse_stop(self, life: Life) -> None:
        """Raise TableError unless the table follows the log."""
        if life.status != "following":
            raise TableError(f"{self._name} can't be replayed: {life.status}: {life.reason}", remedy=life.remedy)

    def _stage_again(self, life: Life, number: int) -> tuple[OpenBatch, Manifest]:
        """Stage a batch again from the archive, below the replay's own folder."""
        archive, selection = self._selection.request.archive, self._selection
        assert archive is not None  # or refuse_lacking would have said so
        plan = OpenBatch(number, selection.recorded[number].range)
        with opened(archive) as log:
            check_position(log, log.transport(), plan.range.start)
            plan = replace(plan, lower_case_names=log.lower_case_names)
            skip = decisions.skips(selection.metadata)
            transports = readers(log, selection.config.source)
            manifest = stage_batch(
                self._session,
                selection.beside,
                transports,
                plan,
                self._report,
                skip,
                tables=partial(MaskedTables.of, [life]),
            )
        return plan, manifest

    def _result(self, life: Life) -> ReplayedTable:
        target = self._target(life)
        return ReplayedTable(
            str(life.name),
            target.path,
            self._selection.batch,
            str(self._selection.recorded[self._selection.batch].range.stop),
            target.rows(),
            self._base.version,
            self._base.batch,
            len(self._numbers),
            self._prove(life) if self._selection.request.prove else None,
        )

    def _prove(self, life: Life) -> int | None:
        """Compare every row with the existing table; return its version, None if it has no such version any more.

        Raises TableError if they differ.
        """
        known = replayable.bases(self._existing, life.id, self._shapes[0].batch)
        existing = max((base for base in known if base.batch <= self._selection.batch), key=lambda base: base.batch)
        if life.name != self._name or not replayable.is_readable(self._existing, existing.version):
            return None
        read = self._own_session("a replay is compared with the table").read.format("delta")
        rows = read.load(self._target(life).path)
        original = read.option("versionAsOf", existing.version).load(self._existing.path)
        differing = f"columns {rows.columns} and {original.columns}" if rows.columns != original.columns else ""
        if not differing:
            count = original.exceptAll(rows).count() + rows.exceptAll(original).count()
            differing = counted(count, "row") if count else ""
        if differing:
            raise TableError(
                f"{self._name}: {differing} of the replay and of Delta version {existing.version} differ",
                remedy=f"the replay is {self._target(life).path}; somebody changed one of the two, or report this",
            )
        return existing.version
