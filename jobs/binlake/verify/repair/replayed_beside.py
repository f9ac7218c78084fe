"""Tables beside mirrors, written again from the staging that is kept: no other table has the rows that they lost.

    base     a version of the table that can be read: see beside_bases.py; of a log also none at all
    batches  each one behind it, from its staging, which is kept for maintain.staging_hours
    proof    the result is checked as a verification checks the table, with all that was noted of it

The steps are planned and done as the merge did them, on a copy of the base at a path of its own. Then one commit gives
the table the files of the result, so that a reader sees the table before or behind it, and no row comes twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from binlake.config import LakeConfig, PipelineConfig
from binlake.delta import data_rows, deletion_vectors, delta_commits, log_files, opened_tables, plain_tables
from binlake.delta.delta_actions import Add, DeltaAction
from binlake.delta.delta_log import LakeLog
from binlake.delta.plain_tables import OwnCommit
from binlake.errors import BinlakeError, LeftToSpark, SparkNeeded
from binlake.faults import fault
from binlake.lease.lease import Lease, OpenBatch
from binlake.merge.beside import BatchTimes, BesideWork, outcome_beside, with_mirrors
from binlake.merge.engine.engine_choice import Engines
from binlake.merge.history.history_state import is_in_step
from binlake.merge.merge import as_staged, inputs_of, manifest_of
from binlake.merge.shared_reads import SharedReads
from binlake.planner import epochs
from binlake.planner.steps import BesideSteps, EventBeside, Life, PreparedXa, RowsBeside, rebased
from binlake.records import replayable, table_versions
from binlake.staging.staged_files import check_file
from binlake.storage import files
from binlake.store.conditions import literal
from binlake.store.metadata import now_us
from binlake.store.rows import BatchRow, ShapeRow, VersionRow
from binlake.verify.beside_check import BesideTable
from binlake.verify.repair.beside_bases import NOTHING, BesideBase, ReadableFiles, bases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_ANOTHER_TABLE = frozenset({"create", "drop", "rename", "anew"})
"""Events after which rows of the name are of another life."""
Proof = Callable[[LakeLog], str]
"""Returns why the rows of a table aren't what they have to be; empty where they are."""


class NotReplayed(Exception):
    """A table can't be written again from the staging; the text says why."""


@dataclass(frozen=True)
class ReplayedBeside:
    """A table beside a mirror that is written again. repair: the repair's id. spark: called with a reason. The lake is
    at the position of ``held``."""

    held: Lease
    config: PipelineConfig
    table: BesideTable
    repair: str
    spark: Callable[[str], SparkSession]
    _looked: dict[int, OpenBatch | None] = field(default_factory=dict)

    @property
    def _log(self) -> LakeLog:
        return LakeLog.beside(self.config, self.table.life.name, self.table.mode)

    @property
    def _folder(self) -> str:
        """Return the replay's own folder, which is there while it works."""
        return f"{self.config.root}/_replayed/beside/{self.table.table_id}"

    @property
    def _beside(self) -> PipelineConfig:
        """Return settings under which the tables beside mirrors are in that folder."""
        return self.config.model_copy(update={"lake": LakeConfig(path=self._folder)})

    def check(self) -> None:
        """Raise NotReplayed where no version serves as a base, or staging is gone; nothing is written."""
        next(self._serving())

    def run(self, proof: Proof) -> int:
        """Write the table again, and return its Delta version then. Raises NotReplayed, LakeError, LeaseHeld, and
        CommitFailedError where somebody else wrote it meanwhile."""
        why = ""
        for base in self._serving():
            scratch = LakeLog.beside(self._beside, self.table.life.name, self.table.mode)
            with _emptied(self._folder):
                why = self._built(base, scratch, proof)
                if not why:
                    return self._put(base, scratch)
        raise NotReplayed(why)

    def _built(self, base: BesideBase, scratch: LakeLog, proof: Proof) -> str:
        """Build the table from a base; return why the result isn't what it has to be, empty where it is."""
        try:
            self._copy(base, scratch)
            self._replay(base, scratch)
            return proof(scratch) if scratch.exists() else "what is staged has no rows of it"
        except (LeftToSpark, DeltaError, OSError, pa.ArrowException) as error:
            return (str(error).strip() or type(error).__name__).splitlines()[0]

    def _serving(self) -> Iterator[BesideBase]:
        """Yield the bases that serve, the newest first. Raises NotReplayed where there is none."""
        where = f"table_id = {literal(self.table.table_id)}"
        rows = VersionRow.read(self.held.metadata, "delta_version", where=where)
        noted = {row.delta_version for row in rows if row.delta_version is not None}
        readable, serves, why = ReadableFiles(self.table.path), False, "no version of it serves as a beginning"
        for base in bases(self._log.history(), self.table.mode, str(self.table.life.name), noted):
            if lacking := self._lacking(base):
                why = lacking  # the older ones lack it, too
                break
            if base.version == NOTHING or readable.have_all(base.version):
                serves = True
                yield base
            else:
                why = "no version that serves as a beginning can be read any more"
        if not serves:
            raise NotReplayed(why)

    def _lacking(self, base: BesideBase) -> str:
        """Return what a replay from a base lacks; empty where it lacks nothing."""
        gone = [number for number in self._numbers(base) if self._kept(number) is None]
        if gone:
            more = f" and {len(gone) - 1:,} more" if len(gone) > 1 else ""
            return f"the staging of batch {gone[0]}{more} is gone (maintain.staging_hours of the YAML keeps it)"
        before = self._before(base)
        if before and self._kept(before) is None:
            return f"the staging of batch {before} is gone, which has XA transactions that were prepared"
        if self._life_at(base) is None:
            return f"its mirror was copied again behind batch {before}"
        return ""

    def _kept(self, batch: int) -> OpenBatch | None:
        """Return a recorded batch; None where its staging is gone."""
        if batch not in self._looked:
            self._looked[batch] = replayable.kept(self.config, batch)
        return self._looked[batch]

    @cached_property
    def _newest(self) -> int:
        return self.held.control().batch

    @cached_property
    def _never_recorded(self) -> set[int]:
        return {row.batch for row in BatchRow.read(self.held.metadata, "batch", where="state <> 'recorded'")}

    @cached_property
    def _shapes(self) -> list[ShapeRow]:
        """Return the rows of ``schemas`` of the mirror's life, oldest first."""
        rows = ShapeRow.read(self.held.metadata, where=f"table_id = {literal(self.table.life.id)}")
        return sorted(rows, key=lambda row: row.order)

    def _numbers(self, base: BesideBase) -> list[int]:
        """Return the batches behind a base, without those never recorded, which changed nothing."""
        every = range(base.first, self._newest + 1)
        return [number for number in every if number not in self._never_recorded]

    def _before(self, base: BesideBase) -> int:
        """Return the last batch that was recorded before those behind a base; 0 for none."""
        return next((number for number in range(base.first - 1, 0, -1) if number not in self._never_recorded), 0)

    def _life_at(self, base: BesideBase) -> Life | None:
        """Return the mirror's life as it was at a base; None where it began behind it."""
        shapes = [row for row in self._shapes if row.batch < base.first]
        if not shapes:
            return None
        schema = shapes[-1].shape
        return replace(self.table.life, schema=schema, standstill=None, status="following")

    def _copy(self, base: BesideBase, scratch: LakeLog) -> None:
        """Copy a base, with its data files."""
        if base.version == NOTHING:
            return
        path = self.table.path
        log = opened_tables.opened(path, base.version)
        adds, recorded = _adds(log, path), log_files.recorded(path, base.version)
        if recorded is None:
            raise LeftToSpark("its log is in a form that isn't read here")
        files.make_readers_folder(f"{scratch.path}/_delta_log")
        for name in _names(adds):
            files.copy(f"{path}/{name}", f"{scratch.path}/{name}")
        info = plain_tables.commit_info("CLONE", {}, self._note({}), {}, None)
        transactions = [{"txn": {"appId": app, "version": number}} for app, number in recorded.items()]
        same = [*_protocol(log), plain_tables.metadata_with(log, log.schema().to_json(), log.metadata().configuration)]
        added = [{"add": add} for add in adds]
        delta_commits.create(scratch.path, [{"commitInfo": info}, *transactions, *same, *added])

    def _replay(self, base: BesideBase, scratch: LakeLog) -> None:
        """Do the steps of the batches behind a base in its copy."""
        life = self._life_at(base)
        before = self._kept(self._before(base))
        prepared: Sequence[PreparedXa] = before.outcome.prepared if before else ()
        assert life is not None  # or it would be lacking
        for number in self._numbers(base):
            plan = self._kept(number)
            assert plan is not None
            try:
                life, prepared = self._batch(plan, life, prepared)
            except SparkNeeded:
                raise
            except BinlakeError as error:
                raise NotReplayed(f"batch {number}: {error.message}") from error
        if self.table.mode == "history" and not is_in_step(scratch):
            raise NotReplayed("what changed isn't known row by row: it was compared with the mirror as that was then")

    def _batch(self, plan: OpenBatch, life: Life, prepared: Sequence[PreparedXa]) -> tuple[Life, Sequence[PreparedXa]]:
        """Do a batch's steps; return the mirror's life behind them, and the transactions that are prepared then."""
        manifest = manifest_of(self.config, plan)
        config = as_staged(self.config, manifest)
        state = self.held.control().recorded_state
        inputs = inputs_of(config, plan, [rebased(life, life.high, plan.range.start)], state.answers if state else ())
        inputs = replace(inputs, prepared=prepared, charsets=(state and state.charsets) or {})
        steps = epochs.split(manifest, inputs)
        steps = with_mirrors(config, steps, plan.range, BatchTimes(None, manifest.committed_us or None))
        (mirror,) = [table for table in steps.tables if table.life.id == life.id]
        if mirror.life.status != "following":
            raise NotReplayed(f"batch {plan.batch}: its mirror doesn't follow the log there: {mirror.life.reason}")
        for ours in steps.beside:
            if ours.name == life.name:
                self._do(as_staged(self._beside, manifest), plan, ours)
        return mirror.life, steps.prepared

    def _do(self, config: PipelineConfig, plan: OpenBatch, ours: BesideSteps) -> None:
        _refuse_another_life(plan, ours)
        for file in {file.path: file for file in _staged(ours)}.values():
            check_file(file)
        others = tuple(mode for mode in config.beside(ours.name) if mode != self.table.mode)
        work = BesideWork(
            config, plan.batch, plan.range.stop.short, replace(ours, begins=(), standing=others),
            Engines(config, self._session), frozenset(), _no_mirror, SharedReads(),
        )  # fmt: skip
        for number in range(len(ours.steps)):
            work.do(number)

    def _session(self, why: str) -> SparkSession:
        from binlake.spark.session import of_this_thread

        return of_this_thread(self.spark(why))

    def _put(self, base: BesideBase, scratch: LakeLog) -> int:
        """Give the table the files of the result, in one commit; return its Delta version then."""
        began_us, log, built, path = now_us(), self._log.opened(), scratch.opened(), self.table.path
        here, there = ({Add(add).key: add for add in _adds(table, at)}
                       for table, at in ((log, path), (built, scratch.path)))  # fmt: skip
        known = set() if base.version == NOTHING else _names(_adds(opened_tables.opened(path, base.version), path))
        for name in _names(list(there.values())) - known:
            files.copy(f"{scratch.path}/{name}", f"{path}/{name}")
        fault("data file written")
        recorded = log_files.recorded(scratch.path, int(built.version()))
        if recorded is None:
            raise LeftToSpark("its log is in a form that isn't read here")
        shape = plain_tables.metadata_with(log, built.schema().to_json(), built.metadata().configuration)
        actions = [
            *_protocol(built), shape,
            *(plain_tables.removed(add) for key, add in here.items() if key not in there),
            *({"add": {**add, "dataChange": True}} for key, add in there.items() if key not in here),
        ]  # fmt: skip
        note = self._note({"replayed": {"first": base.first, "rows": self._rows_by_batch(base, scratch)}})
        own = OwnCommit("RESTORE", 0, note, {}, {"numFiles": len(there)})
        self.held.check()
        if self.table.standing:
            table_versions.note_lost(self.held.metadata, self.table.table_id, int(log.version()))
        plain_tables.commit_recording(path, log, own, recorded, actions)
        fault("rows committed")
        outcome = outcome_beside(self.table.life.name, self.table.mode, self._log, "following")
        table_versions.note_going_on(self.held.metadata, outcome, began_us=began_us)
        return self._log.version()

    def _rows_by_batch(self, base: BesideBase, scratch: LakeLog) -> dict[str, int]:
        """Return how many rows of a log are of each batch behind the base."""
        if self.table.mode != "log":
            return {}
        log, counts = scratch.opened(), Counter[int]()
        paths = sorted(add["path"] for add in _adds(log, scratch.path))
        for file in data_rows.of_files(log, scratch.path, [pa.field("batch", pa.int64())], paths):
            for rows, _ in file.numbered():
                batches, numbers = np.unique(rows.column("batch").to_numpy(), return_counts=True)
                counts.update(dict(zip(batches.tolist(), numbers.tolist(), strict=True)))
        return {str(batch): count for batch, count in sorted(counts.items()) if batch >= base.first}

    def _note(self, more: dict[str, Any]) -> dict[str, Any]:
        control = self.held.control()
        origin = {"source": self.config.source.name, "batch": control.batch, "position": str(control.position)}
        own = {"beside": self.table.mode, "of": str(self.table.life.name), "repair": self.repair}
        return {"binlake": {**origin, **own, **more}}


@contextmanager
def _emptied(folder: str) -> Iterator[None]:
    """Have a folder that isn't there before, nor behind it."""
    files.remove_folder(folder)
    try:
        yield
    finally:
        files.remove_folder(folder)


def _refuse_another_life(plan: OpenBatch, ours: BesideSteps) -> None:
    for step in ours.steps:
        if isinstance(step, EventBeside) and step.what in _OF_ANOTHER_TABLE:
            raise NotReplayed(f"batch {plan.batch}: a table was made, dropped or renamed under its name")


def _no_mirror(life: Life, at_stop: bool) -> LakeLog | None:
    raise NotReplayed(f"{life.name} was compared with its mirror, as that was then")


def _staged(ours: BesideSteps) -> Iterator[Any]:
    for step in ours.steps:
        if isinstance(step, RowsBeside):
            yield from step.merge.staged


def _adds(table: DeltaTable, path: str) -> list[DeltaAction]:
    return plain_tables.actions_of(table, path, pa.table(table.get_add_actions())["path"].to_pylist())


def _names(adds: Sequence[DeltaAction]) -> set[str]:
    """Return the names of data files and of their deletion vectors' files."""
    vectors = (deletion_vectors.file_name(add["deletionVector"]) for add in adds if add.get("deletionVector"))
    return {*(add["path"] for add in adds), *(name for name in vectors if name)}


def _protocol(table: DeltaTable) -> list[DeltaAction]:
    protocol = table.protocol()
    named = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    versions = {"minReaderVersion": protocol.min_reader_version, "minWriterVersion": protocol.min_writer_version}
    return [{"protocol": {**versions, **{name: list(value) for name, value in named.items() if value is not None}}}]
