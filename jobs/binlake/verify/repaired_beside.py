"""What a repair brings to the tables that modes keep beside the mirror.

A history is compared with the mirror that was put right, which equals the server's table at the position: versions
that differ are closed and opened there. It is out of step meanwhile, so that the table's next batch makes good what a
repair left that was cut off. A log gets a row for each row that was put right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from binlake.batch.steps import EventBeside, Life
from binlake.config import PipelineConfig
from binlake.config.table_modes import BesideMode
from binlake.delta.delta_log import overtaking
from binlake.merge import history_table, log_table
from binlake.merge.beside import beside_log, outcome_beside
from binlake.merge.beside_commit import BesideCommit
from binlake.merge.history_state import newest_version
from binlake.merge.shared_reads import SharedReads
from binlake.metadata import table_versions
from binlake.metadata.lease import Lease
from binlake.metadata.metadata import literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_ROWS = 1_000_000
"""The most rows of a repair that are told apart by their numbers in the log."""


@dataclass(frozen=True)
class RepairedRows:
    """Rows that were put right. before: the lake's; after: the server's, in the same places; all NULL where there was
    none."""

    before: pa.Table
    after: pa.Table


@dataclass(frozen=True)
class RepairedBeside:
    """The tables beside one life's mirror, while a repair puts the mirror right. repair: its id. spark: called with a
    reason. The lake stands at the position of ``held``."""

    held: Lease
    config: PipelineConfig
    life: Life
    repair: str
    spark: Callable[[str], SparkSession]

    @property
    def modes(self) -> list[BesideMode]:
        """Return the modes that have a table of this source by now."""
        name = self.life.name
        return [mode for mode in self.config.beside(name) if beside_log(self.config, name, mode).recorded() >= 0]

    def begin(self) -> None:
        """Let a history fall out of step, before the mirror is put right. Raises LakeError."""
        if "history" in self.modes:
            history_table.write(EventBeside("gap", *self._place), self._commit("history"))

    def end(self, version: int, rows: RepairedRows, began_us: int) -> None:
        """Bring what was put right to the tables. version: the mirror's since. began_us: before their commits.

        Raises LakeError, and what the session's start raises.
        """
        modes, state = self.modes, self.held.control().recorded_state
        assert state is not None  # the lake stands at a position
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
        outcomes = [outcome_beside(name, mode, beside_log(self.config, name, mode), "following") for mode in modes]
        table_versions.note_upkeep_beside(self.held.metadata, outcomes, began_us=began_us)

    @property
    def _place(self) -> tuple[int, int]:
        position = self.held.control().position
        assert position is not None
        return position.order

    def _first_number(self) -> int:
        """Return a number for the first row, such that those of other repairs at the position have others."""
        position = str(self.held.control().position)
        where = f"table_id = {literal(self.life.id)} AND position = {literal(position)}"
        repairs = {row["repair"] for row in self.held.metadata.read("repairs", ["repair"], where=where)}
        return _MOST_ROWS * len(repairs - {self.repair})

    def _commit(self, mode: BesideMode) -> BesideCommit:
        control = self.held.control()
        table = beside_log(self.config, self.life.name, mode)
        recorded = newest_version(table) if mode == "history" else table.recorded()
        origin = {"source": self.config.source.name, "batch": control.batch, "position": str(control.position)}
        note = {"binlake": {**origin, "beside": mode, "of": str(self.life.name), "repair": self.repair}}
        return BesideCommit(
            table, self.life.name, self.config, control.batch, max(recorded, overtaking(control.batch)) + 1, note,
            self.spark, frozenset(), self._place, lambda life, at_stop: None, SharedReads(),
        )  # fmt: skip
