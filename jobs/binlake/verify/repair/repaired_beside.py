"""The changes of a repair to the tables that modes keep beside the mirror.

A history is compared with the mirror that was put right, which equals the server's table at the position: versions
that differ are closed and opened there. It is out of step meanwhile, so that the table's next batch completes a repair
that was interrupted. A log gets a row for each row that was put right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from binlake.config import PipelineConfig
from binlake.config.table_modes import BesideMode
from binlake.delta import plain_tables
from binlake.delta.claimed_statistics import WrongFiles
from binlake.delta.delta_log import COMPUTED_STATISTICS, LakeLog, overtaking
from binlake.delta.plain_files import with_true_statistics
from binlake.delta.plain_tables import OwnCommit
from binlake.lease.lease import Lease
from binlake.merge import log_table
from binlake.merge.beside import outcome_beside
from binlake.merge.beside_commit import BesideCommit
from binlake.merge.engine.engine_choice import Engines
from binlake.merge.history import history_table
from binlake.merge.history.history_state import newest_version
from binlake.merge.shared_reads import SharedReads
from binlake.planner.steps import EventBeside, Life
from binlake.records import table_versions
from binlake.store.conditions import literal
from binlake.store.metadata import now_us
from binlake.store.run_rows import RepairRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_ROWS = 1_000_000
"""The most rows of a repair that have numbers of their own in the log."""


@dataclass(frozen=True)
class RepairedRows:
    """Rows that were put right. before: the lake's; after: the server's, in the same places; all NULL where there was
    none."""

    before: pa.Table
    after: pa.Table


@dataclass(frozen=True)
class RepairedBeside:
    """The tables beside one life's mirror, while a repair puts the mirror right. repair: its id. spark: called with a
    reason. The lake is at the position of ``held``."""

    held: Lease
    config: PipelineConfig
    life: Life
    repair: str
    spark: Callable[[str], SparkSession]

    @property
    def modes(self) -> list[BesideMode]:
        """Return the modes that have a table of this source by now."""
        name = self.life.name
        return [mode for mode in self.config.beside(name) if LakeLog.beside(self.config, name, mode).recorded() >= 0]

    def begin(self) -> None:
        """Let a history fall out of step, before the mirror is put right. Raises LakeError."""
        if "history" in self.modes:
            history_table.write(EventBeside("gap", *self._place), self._commit("history"))

    def end(self, version: int, rows: RepairedRows, began_us: int) -> None:
        """Write the repaired rows to the tables. version: the mirror's since. began_us: before their commits.

        Raises LakeError, and what the session's start raises.
        """
        modes, state = self.modes, self.held.control().recorded_state
        assert state is not None  # the lake is at a position
        committed_us = state.committed_us or None
        if "history" in modes:
            life = replace(self.life, delta_version=version)
            compared = EventBeside("begin", *self._place, committed_us=committed_us, life=life)
            history_table.write(compared, self._commit("history"))
        if "log" in modes:
            event = EventBeside(
                "repair", *self._place, number=self._first_number(), committed_us=committed_us, detail=self.repair
            )
            log_table.write_repaired(event, self.life.schema, rows.before, rows.after, self._commit("log"))
        name = self.life.name
        outcomes = [outcome_beside(name, mode, LakeLog.beside(self.config, name, mode), "following") for mode in modes]
        table_versions.note_upkeep_beside(self.held.metadata, outcomes, began_us=began_us)

    def go_on(self, mode: BesideMode, wrong: WrongFiles, *, why: str, compares: bool) -> int:
        """Let a table that is stopped, or has other rows than the mirror, continue from the mirror's rows, and return
        its Delta version then.

        wrong: files whose statistics are written again. why: the reason that stopped it; a log notes that as a gap.
        compares: whether a history is compared with the mirror. Raises LakeError, LeftToSpark.
        """
        began_us, log = now_us(), LakeLog.beside(self.config, self.life.name, mode)
        state = self.held.control().recorded_state
        assert state is not None  # the lake is at a position
        if why:
            table_versions.note_lost(self.held.metadata, str(log.opened().metadata().id), log.version())
        if wrong:
            self._restate(mode, log, wrong)
        if mode == "history" and compares:
            history_table.write(EventBeside("gap", *self._place), self._commit(mode))
            life = replace(self.life, delta_version=LakeLog.of(self.config, self.life.name, self.life.id).version())
            compared = EventBeside("begin", *self._place, committed_us=state.committed_us or None, life=life)
            history_table.write(compared, self._commit(mode))
        if mode == "log" and why:
            number = self._first_number() + _MOST_ROWS - 1
            log_table.write(EventBeside("gap", *self._place, number=number, detail=why), self._commit(mode))
        outcome = outcome_beside(self.life.name, mode, log, "following")
        table_versions.note_going_on(self.held.metadata, outcome, began_us=began_us)
        return log.version()

    def _restate(self, mode: BesideMode, log: LakeLog, wrong: WrongFiles) -> None:
        """Write the statistics of files again, in one commit."""
        opened, commit = log.opened(), self._commit(mode)
        plain_tables.check_is_plain(opened, widened=True)
        adds = plain_tables.actions_of(opened, log.path, list(wrong))
        restated = [{"add": with_true_statistics(log.path, add)} for add in adds]
        own = OwnCommit(COMPUTED_STATISTICS, commit.version, commit.note, {}, {"numFiles": len(adds)})
        # Statistics are no step: the table's own transaction version stays what it is.
        plain_tables.commit_recording(log.path, opened, own, {}, restated)

    @property
    def _place(self) -> tuple[int, int]:
        position = self.held.control().position
        assert position is not None
        return position.order

    def _first_number(self) -> int:
        """Return a number for the first row that no other repair at the position uses."""
        position = str(self.held.control().position)
        where = f"table_id = {literal(self.life.id)} AND position = {literal(position)}"
        repairs = {row.repair for row in RepairRow.read(self.held.metadata, "repair", where=where)}
        return _MOST_ROWS * len(repairs - {self.repair})

    def _commit(self, mode: BesideMode) -> BesideCommit:
        control = self.held.control()
        table = LakeLog.beside(self.config, self.life.name, mode)
        recorded = newest_version(table) if mode == "history" else table.recorded()
        origin = {"source": self.config.source.name, "batch": control.batch, "position": str(control.position)}
        note = {"binlake": {**origin, "beside": mode, "of": str(self.life.name), "repair": self.repair}}
        return BesideCommit(
            table, self.life.name, self.config, control.batch, max(recorded, overtaking(control.batch)) + 1, note,
            Engines(self.config, self.spark), frozenset(), self._place, lambda life, at_stop: None, SharedReads(),
        )  # fmt: skip
