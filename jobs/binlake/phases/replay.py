"""Replay: tables as they stood after some batch, built once more from a snapshot and what is staged, without a server.

    base     the oldest version of the table that the lake still has whole: its snapshot, as a rule
    batches  each one behind it, up to the one that is asked for: from its staging, kept for maintain.staging_hours,
             else staged again from a folder of binlog files
    steps    worked out and carried out as the merge did, at a path of their own

What a batch means for a table is worked out by the code of the merge, from the same manifest; the versions of the
table that is there already are its base alone. A replay begins anew when it is repeated: nothing of it is followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from binlake import names
from binlake.batch import epochs
from binlake.batch.manifest import Manifest
from binlake.batch.steps import BatchSteps, Life, MergeStep, PreparedXa, rebased
from binlake.config import LakeConfig, PipelineConfig
from binlake.delta.delta_log import LakeLog, overtaking
from binlake.errors import UNMATCHED_REMEDY, BinlakeError, TableError, UsageError
from binlake.faults import fault
from binlake.merge.merge import apply_steps, as_staged, inputs_of, manifest_of
from binlake.metadata import decisions, lease, replayable, watermarks
from binlake.metadata.decisions import Reason
from binlake.metadata.lease import OpenBatch, RecordedState
from binlake.metadata.metadata import Metadata, literal
from binlake.metadata.replayable import Base
from binlake.report import Report
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import loads
from binlake.source.folder import Folder
from binlake.source.lineage import check_position
from binlake.source.log import opened, readers
from binlake.spark.starting import SessionFactory, no_session
from binlake.staging.stage import stage_batch
from binlake.staging.staged_files import check_file
from binlake.storage import files, storage_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.merge.lake_table import LakeTable

_NAMED = 5
"""Missing batches that are named."""


@dataclass(frozen=True)
class ReplayRequest:
    """tables: patterns. batch, as_of: both None for the newest batch; a time stands for the batch recorded last then.

    archive: binlog files of the source, for batches that aren't staged any more. prove: compare with time travel of
    the table that is there, row by row. in_place: put the newest batch's rows into the table that is there, as somebody
    decided: it is recorded.
    """

    tables: Sequence[str]
    batch: int | None = None
    as_of: datetime | None = None
    archive: Folder | None = None
    prove: bool = False
    in_place: Reason | None = None


@dataclass(frozen=True)
class ReplayedTable:
    """path: where it stands. from_version: of the table that is there, which was the base, with what batch
    ``from_batch`` left. batches: that were carried out behind it. equals_version: of the table that is there, proved to
    be equal; None where nobody asked, or its files are gone."""

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
        return asdict(self)

    def to_text(self) -> str:
        proved = f"; equal to Delta version {self.equals_version}" if self.equals_version is not None else ""
        return (
            f"{self.table} as of batch {self.batch}: {self.path}, {self.rows:,} rows, by {self.batches} batches behind "
            f"Delta version {self.from_version}{proved}"
        )


def replay(
    config: PipelineConfig, session: SessionFactory, metadata: Metadata, report: Report, request: ReplayRequest
) -> list[ReplayedTable]:
    """Build the tables below ``{lake}/{source}/_replayed/{batch}``. Raises UsageError that names what is lacking,
    TableError where a table can't be carried through its batches again; in place LeaseHeld, too."""
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
    """What a replay refuses before it builds anything, without the lease and without Spark. Raises UsageError."""
    tables = _ready(config, no_session, metadata, Report(quiet=True), request)
    if request.in_place:
        _refuse_another_batch(lease.read(metadata).recorded_state, tables)


def _refuse_another_batch(recorded_state: RecordedState | None, tables: Sequence[_Replay]) -> RecordedState:
    """Raises UsageError."""
    if recorded_state is None or tables[0].batch != recorded_state.batch:
        raise UsageError(
            "a table in place follows the log, so it must be what the newest batch left",
            remedy="name no other batch and no time, or leave --in-place out",
        )
    return recorded_state


def _ready(
    config: PipelineConfig, session: SessionFactory, metadata: Metadata, report: Report, request: ReplayRequest
) -> list[_Replay]:
    """Each with all that it needs. Raises UsageError."""
    sought = _Sought(config, metadata, request)
    tables = [_Replay(sought, row, session, report) for row in sought.rows()]
    for table in tables:
        table.refuse_lacking()
    return tables


class _Sought:
    """What is asked for, and what metadata tell of it."""

    def __init__(self, config: PipelineConfig, metadata: Metadata, request: ReplayRequest) -> None:
        self.config = config
        self.metadata = metadata
        self.request = request
        self.recorded = replayable.recorded(metadata)
        self.batch = self._batch()
        beside = LakeConfig(path=f"{config.root}/_replayed/{self.batch}")
        self.beside = config.model_copy(update={"lake": beside})

    def _batch(self) -> int:
        asked = self.request
        if asked.batch is not None and asked.as_of is not None:
            raise UsageError("a batch and a time were given", remedy="give one of them")
        if asked.as_of is not None:
            return replayable.newest_at(self.recorded.values(), asked.as_of)
        batch = max(self.recorded, default=0) if asked.batch is None else asked.batch
        if batch not in self.recorded:
            known = f"{min(self.recorded)} to {max(self.recorded)}" if self.recorded else "none"
            raise UsageError(f"batch {batch} isn't recorded in metadata", remedy=f"name one that is: {known}")
        return batch

    def rows(self) -> list[dict[str, Any]]:
        """Watermarks of the tables. Raises UsageError where a pattern matches none."""
        living = [row for row in self.metadata.read("watermarks") if row["low"] and row["status"] != "dropped"]
        known = [(row["database"], row["table"]) for row in living]
        if unknown := names.unmatched(self.request.tables, known):
            raise UsageError(f"the lake has no table that matches {', '.join(unknown)}", remedy=UNMATCHED_REMEDY)
        if not self.request.tables:
            raise UsageError("no table was named", remedy="name tables, such as shop.orders or shop.*")
        wanted = self.request.tables
        return [
            row
            for row, name in zip(living, known, strict=True)
            if any(names.matches(pattern, *name) for pattern in wanted)
        ]


class _Replay:
    """One table."""

    def __init__(self, sought: _Sought, row: dict[str, Any], session: SessionFactory, report: Report) -> None:
        self._sought = sought
        self._row = row
        self._session = session
        self._report = report
        self._name = TableName(row["database"], row["table"])
        self._there = LakeLog.of(sought.config, self._name, row["table_id"])
        if sought.config.policies.of(self._name).on_unlogged_cascade == "derive":
            raise UsageError(
                f"{self._name}: what its parents' foreign keys changed is derived (on_unlogged_cascade); a replay "
                "can't do that",
                remedy=f"leave it out, or read the table's own history: VERSION AS OF in {self._there.path}",
            )
        if sought.request.in_place and row["status"] == "paused":
            raise UsageError(f"{self._name} is paused", remedy="resume it first, or leave --in-place out")

    @property
    def batch(self) -> int:
        return self._sought.batch

    @cached_property
    def _shapes(self) -> list[dict[str, Any]]:
        """Of the life, oldest first."""
        rows = self._sought.metadata.read("schemas", where=f"table_id = {literal(self._row['table_id'])}")
        return sorted(rows, key=lambda row: (row["batch"], row["file_number"], row["offset"]))

    @cached_property
    def _base(self) -> Base:
        """Raises UsageError."""
        known = replayable.bases(self._there, self._row["table_id"], self._shapes[0]["batch"])
        early = [base for base in known if base.batch <= self._sought.batch]
        if not early:
            raise UsageError(
                f"{self._name} began its life here behind batch {self._sought.batch}",
                remedy=f"name batch {known[0].batch} or a later one" if known else "snapshot the table again",
            )
        for base in early:
            known_whole = base.snapshot or replayable.kept(self._sought.config, base.batch)
            if known_whole and replayable.is_readable(self._there, base.version):
                return base
        raise UsageError(
            f"{self._name}: up to batch {self._sought.batch} no version is whole, of its snapshot or of a batch that "
            "is still staged",
            remedy="how long they stay is maintain.history_hours and maintain.staging_hours of the YAML",
        )

    @property
    def _prepared(self) -> tuple[PreparedXa, ...]:
        """XA transactions that wait for their outcome behind the base; a snapshot is taken where there is none."""
        batch = None if self._base.snapshot else replayable.kept(self._sought.config, self._base.batch)
        return batch.outcome.prepared if batch else ()

    @cached_property
    def _behind(self) -> list[int]:
        """Numbers of the batches behind the base; one that was begun and never recorded did nothing."""
        rows = self._sought.metadata.read("batches", ["batch", "state"])
        never = {row["batch"] for row in rows if row["state"] != "recorded"}
        return [number for number in range(self._base.batch + 1, self._sought.batch + 1) if number not in never]

    def refuse_lacking(self) -> None:
        """Raises UsageError that names the batches of which nothing is left."""
        if self._sought.request.archive:
            lacking = [number for number in self._behind if number not in self._sought.recorded]
        else:
            lacking = [number for number in self._behind if replayable.kept(self._sought.config, number) is None]
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
        life = self._life()
        files.remove_folder(self._target(life).path)
        self._report.say(f"{self._name}: begun with Delta version {self._base.version}, of batch {self._base.batch}")
        life = replace(life, delta_version=self._begin(life))
        prepared = self._prepared
        for number in self._behind:
            life, prepared = self._one_batch(life, number, prepared)
        self._replayed = life
        return self._told(life)

    def put_in_place(self, built: ReplayedTable, recorded_state: RecordedState, reason: Reason) -> ReplayedTable:
        """The rows that were built become the table's own, in one commit, and it follows on from here.

        Killed behind the commit, the table stops at the next batch: somebody changed it. Then it is replayed again.
        """
        from binlake.merge.lake_table import LakeTable

        session = self._own_session("replayed rows are put in place by Delta's own writer")
        life, metadata = self._replayed, self._sought.metadata
        if life.name != self._name:
            raise UsageError(f"{self._name} was {life.name} then", remedy="leave --in-place out")
        target = LakeTable.of(self._sought.config, life.name, life.id)
        note = {"source": self._sought.config.source.name, "life": life.id, "batch": self.batch, "replayed": True}
        rows = session.read.format("delta").load(built.path)
        metadata.check()
        name = life.name
        decisions.note(metadata, "replay", reason, database=name.database, table=name.table, batch=self.batch)
        version = max(overtaking(self.batch), target.recorded()) + 1  # behind whoever still works at the batch
        target.overwrite(session, rows, version, {"binlake": note})
        fault("rows committed")
        shape = watermarks.schema_row(life, batch=self.batch, where=recorded_state.position, why="followed")
        metadata.replace(
            "schemas", f"table_id = {literal(life.id)} AND batch = {self.batch} AND why = 'followed'", [shape]
        )
        position = (
            max(recorded_state.position, life.low)
            if life.low.server == recorded_state.position.server
            else recorded_state.position
        )
        row = watermarks.watermark_row(life, batch=self.batch, position=position, delta_version=target.version())
        watermarks.write(metadata, [row])
        files.remove_folder(built.path)
        return replace(built, path=target.path)

    def _own_session(self, why: str) -> SparkSession:
        """Return a session of this thread's own."""
        from binlake.spark.session import of_this_thread

        return of_this_thread(self._session(why))

    def _target(self, life: Life) -> LakeTable:
        from binlake.merge.lake_table import LakeTable

        return LakeTable.of(self._sought.beside, life.name, life.id)

    def _life(self) -> Life:
        """As it was at the base."""
        base = self._base
        shape = [row for row in self._shapes if row["batch"] <= base.batch][-1]
        low = base.snapshot or self._sought.recorded[base.batch].range.stop
        high = loads(type(low), self._row["high"])
        high = high if base.snapshot and high.server == low.server else low
        return Life(self._row["table_id"], self._name, loads(TableSchema, shape["schema"]), low, high)

    def _begin(self, life: Life) -> int:
        """The base's rows at the table's new path; gives the Delta version."""
        target, base = self._target(life), self._base
        session = self._own_session(f"a replay copies Delta version {base.version} of {self._there.path}")
        rows = session.read.format("delta").option("versionAsOf", base.version).load(self._there.path)
        note = {"source": self._sought.config.source.name, "life": life.id, "replayed_from": base.version}
        try:
            target.overwrite(session, rows, overtaking(base.batch), {"binlake": note})
        except BinlakeError:
            raise
        except Exception as error:
            doing = f"copying Delta version {base.version} of {self._there.path} failed"
            raise storage_errors.failed(doing, error) from error
        return target.version()

    def _one_batch(
        self, life: Life, number: int, prepared: tuple[PreparedXa, ...]
    ) -> tuple[Life, tuple[PreparedXa, ...]]:
        plan = replayable.kept(self._sought.config, number)
        manifest = None if plan is None else manifest_of(self._sought.config, plan)
        if plan is None or manifest is None:
            plan, manifest = self._staged_again(number)
        life = rebased(life, life.high, plan.range.start)
        inputs = replace(inputs_of(as_staged(self._sought.config, manifest), plan, [life]), prepared=prepared)
        steps = epochs.split(manifest, inputs)
        (table,) = [one for one in steps.tables if one.life.id == life.id]
        self._refuse_stop(table.life)
        for file in {
            file.path: file for step in table.steps if isinstance(step, MergeStep) for file in step.staged
        }.values():
            check_file(file)
        alone = BatchSteps((table,), (), (), ())
        self._report.say(f"{self._name}: batch {number}, {len(table.steps)} steps")
        beside = as_staged(self._sought.beside, manifest)
        outcomes = apply_steps(beside, self._session, plan, alone, self._report)
        life = outcomes[0].life if outcomes else table.life
        self._refuse_stop(life)
        version = outcomes[0].delta_version if outcomes else life.delta_version
        return replace(life, delta_version=version), steps.prepared

    def _refuse_stop(self, life: Life) -> None:
        """Raises TableError."""
        if life.status != "following":
            raise TableError(f"{self._name} can't be replayed: {life.status}: {life.reason}", remedy=life.remedy)

    def _staged_again(self, number: int) -> tuple[OpenBatch, Manifest]:
        """From the archive, below the replay's own folder."""
        archive, sought = self._sought.request.archive, self._sought
        assert archive is not None  # or refuse_lacking would have said so
        plan = OpenBatch(number, sought.recorded[number].range)
        with opened(archive) as log:
            check_position(log, log.transport(), plan.range.start)
            plan = replace(plan, lower_case_names=log.lower_case_names)
            skip = decisions.skips(sought.metadata)
            transports = readers(log, sought.config.source)
            manifest = stage_batch(self._session, sought.beside, transports, plan, self._report, skip)
        return plan, manifest

    def _told(self, life: Life) -> ReplayedTable:
        target = self._target(life)
        return ReplayedTable(
            str(life.name),
            target.path,
            self._sought.batch,
            str(self._sought.recorded[self._sought.batch].range.stop),
            target.rows(),
            self._base.version,
            self._base.batch,
            len(self._behind),
            self._prove(life) if self._sought.request.prove else None,
        )

    def _prove(self, life: Life) -> int | None:
        """The version of the table that is there, once every row of the two was compared. Raises TableError."""

        known = replayable.bases(self._there, life.id, self._shapes[0]["batch"])
        there = max((base for base in known if base.batch <= self._sought.batch), key=lambda base: base.batch)
        if life.name != self._name or not replayable.is_readable(self._there, there.version):
            return None
        read = self._own_session("a replay is compared with the table").read.format("delta")
        rows = read.load(self._target(life).path)
        original = read.option("versionAsOf", there.version).load(self._there.path)
        differing = f"columns {rows.columns} and {original.columns}" if rows.columns != original.columns else ""
        if not differing:
            apart = original.exceptAll(rows).count() + rows.exceptAll(original).count()
            differing = f"{apart:,} rows" if apart else ""
        if differing:
            raise TableError(
                f"{self._name}: {differing} of the replay and of Delta version {there.version} differ",
                remedy=f"the replay is {self._target(life).path}; somebody changed one of the two, or report this",
            )
        return there.version
