"""The history of a table: a row for every version of a row, beside its mirror.

It follows the log by the table's name, as the log of a table does, whatever becomes of the mirror. If the log doesn't
have each row's change, the history falls out of step: nothing comes to it until it is compared with a mirror that
equals the server's table at a known position. It is compared

- at the start of the batch with which the mode begins,
- where RENAME TABLE gives its name to a mirrored table,
- where ALTER TABLE gives rows other values: they come to the current versions in place,
- at a batch's stop, where it is out of step, or the table was snapshotted since the start.

A comparison closes and opens the versions that differ, at its position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlake.delta import plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.errors import LakeError, LeftToSpark, SchemaMismatch
from binlake.merge.arrow_mutations import StagedMutations
from binlake.merge.beside_commit import BesideCommit
from binlake.merge.history.history_changes import staged_changes
from binlake.merge.history.history_comparison import Compared, compare
from binlake.merge.history.history_rows import (
    FROM,
    HistoryChanges,
    TwoOpenRows,
    VersionRules,
    changed_versions,
    closed_rows,
)
from binlake.merge.history.history_state import HistoryState
from binlake.merge.lake_images import LakeImages, check_shape
from binlake.merge.position_texts import boundary_text, mutation_texts
from binlake.merge.reshape import lake_columns_after
from binlake.planner.manifest import StagedFile
from binlake.planner.steps import BesideStep, EventBeside, Life, MergeStep, ReshapeStep, RowsBeside
from binlake.schema.lake_columns import LakeColumn, lake_columns
from binlake.schema.table import TableSchema

_PART_BYTES = 64_000_000
"""Bytes of staged files whose rows are held at once."""
_MOST_BYTES = 4_000_000_000
"""Bytes of memory that the staged rows of a part may take."""


def write(step: BesideStep, commit: BesideCommit) -> None:
    """Do a step in a table's history; repeating it changes nothing."""
    mode = commit.config.history(commit.name)
    assert mode is not None  # or nobody would ask
    history = HistoryState(commit, mode)
    if history.is_done:
        return
    try:
        plain_tables.check_store(commit.table.path)
        if isinstance(step, EventBeside):
            _EventStep(step, history).write()
        elif history.is_in_step:
            _RowsStep(step, history).write()
    except LeftToSpark as left:  # a history has no other engine than this process
        raise LakeError(
            f"the history {commit.table.path} can't be written: {left}",
            remedy="take history out of tables.modes, or move that folder away: it is begun again",
        ) from None
    except TwoOpenRows:
        raise LakeError(
            f"{commit.table.path} has two current versions of one row: somebody else wrote it",
            remedy="move that folder away; it is begun again",
        ) from None


@dataclass(frozen=True)
class _RowsStep:
    """Mutations that come to a history which is in step with the log."""

    step: RowsBeside
    history: HistoryState

    def write(self) -> None:
        """Write the versions that the mutations end and begin; where they don't fit, the history is out of step."""
        history, merge, schema = self.history, self.step.merge, self.step.merge.schema
        commit = history.step
        if any(file.path in commit.lost for file, _ in merge.xa) or not self._fits():
            history.fall_out()
            return
        mark = history.mark()
        columns = lake_columns(schema, commit.config.invalid)
        images, names = LakeImages.of(schema, columns), [column.name for column in columns]
        rules = VersionRules(schema.key, names, history.mode.tracked(names))
        parts = list(_parts(merge))
        for number, part in enumerate(parts, start=1):
            if number <= history.parts_done:
                continue
            changes = self._changes(part, images, mark)
            at = history.open_rows(columns, schema, changes.select(schema.key))
            changed = changed_versions(at.rows, changes, rules)
            history.put(at, changed, part=None if number == len(parts) else number)

    def _fits(self) -> bool:
        """Return whether rows have the shape that the mirror's table has there, and a key."""
        merge = self.step.merge
        try:
            for file in merge.staged:
                check_shape(self.history.step.name, merge.schema, file)
        except SchemaMismatch:
            return False
        return bool(merge.schema.key)

    def _changes(self, part: MergeStep, images: LakeImages, mark: str) -> pa.Table:
        """Return the changes of rows in a part of the step. mark: what positions begin with."""
        commit = self.history.step
        mutations = StagedMutations(self.step.life, part, commit.config.invalid, _MOST_BYTES, commit.reads)
        changes = staged_changes(mutations, images, by_mutation=self.history.mode.per == "mutation")
        if not mark:
            return changes
        positions = pc.binary_join_element_wise(mark, changes[FROM], "")
        return changes.set_column(changes.column_names.index(FROM), FROM, positions)


def _parts(step: MergeStep) -> Iterator[MergeStep]:
    """Cut a step that is too large to be done at once: between binlog files, over which no transaction goes."""
    part: list[StagedFile] = []
    for file in sorted(step.files, key=lambda file: file.first):
        begins = bool(part) and file.first[0] != part[-1].last[0] and not step.xa
        if begins and sum(staged.bytes for staged in (*part, file)) > _PART_BYTES:
            yield replace(step, files=tuple(part))
            part = []
        part.append(file)
    yield replace(step, files=tuple(part))


@dataclass(frozen=True)
class _EventStep:
    """A statement, a gap or a batch's end that comes to a history."""

    event: EventBeside
    history: HistoryState

    def write(self) -> None:
        """Do what the event asks of the history."""
        event, history = self.event, self.history
        match event:
            case EventBeside(what="begin", life=Life(delta_version=int(version)) as life):
                self._compare(life.schema, history.step.config.table_path(life.name), version)
            case EventBeside(what="end"):
                is_new = event.life is not None and event.life.low.order >= history.step.start
                if is_new or not history.is_in_step:
                    self._compare_here()
            case EventBeside(what="create", life=Life(schema=schema)):
                columns = lake_columns(schema, history.step.config.invalid)
                if history.log is None:
                    history.create(columns, None)
                else:
                    self._close_all(columns, stays_in_step=True)
            case EventBeside(what="rename", life=Life()):
                if not self._compare_here():
                    self._close_all(stays_in_step=False)
            case EventBeside(what="alter"):
                self._alter()
            case EventBeside(what="truncate"):
                self._close_all(stays_in_step=history.is_in_step)
            case EventBeside(what="drop") | EventBeside(what="rename", is_replaced=False):
                self._close_all(stays_in_step=False)
            case EventBeside(what="gap" | "anew"):
                history.fall_out()

    def _alter(self) -> None:
        event, history = self.event, self.history
        if not history.is_in_step:
            return
        if event.life is None:
            history.fall_out()
            return
        invalid = history.step.config.invalid
        columns = lake_columns(event.life.schema, invalid)
        after = lake_columns_after(event.reshape, invalid) if event.reshape is not None else ()
        written = any(column.is_written for column in after)
        if written or (event.renamed and any(column.is_side for column in columns)):
            if not self._compare_here(in_place=True):
                history.fall_out()
        elif event.reshape or event.renamed:
            history.reshape(columns, event.renamed, _begun(event.reshape, columns))

    def _close_all(self, columns: Sequence[LakeColumn] = (), *, stays_in_step: bool) -> None:
        """Close all versions, because a statement took all rows away. columns: the mirror's behind it."""
        history = self.history
        if history.log is None:
            return
        position = history.mark() + _position_of(self.event)
        at = history.open_rows(columns, TableSchema(()), None)
        closed = closed_rows(at.rows, position, self.event.committed_us)
        gone = HistoryChanges(np.ones(at.rows.num_rows, np.bool_), closed)
        history.put(at, gone, in_step=stays_in_step)

    def _compare_here(self, *, in_place: bool = False) -> bool:
        """Compare with the mirror as it is behind the event; return whether there is one that equals the server's
        table."""
        life = self.event.life
        mirror: LakeLog | None = self.history.step.mirror(life, self.event.what == "end") if life else None
        if life is None or mirror is None:
            return False
        self._compare(life.schema, mirror.path, mirror.version(), in_place=in_place)
        return True

    def _compare(self, schema: TableSchema, path: str, version: int, *, in_place: bool = False) -> None:
        event, history = self.event, self.history
        position = history.mark() + _position_of(event)
        compare(history, Compared(path, version, schema, position, event.committed_us, event.renamed, in_place))


def _begun(reshape: ReshapeStep | None, columns: Sequence[LakeColumn]) -> list[str]:
    """Return the columns that a statement added, of those that the mirror has behind it."""
    added = zip(reshape.after.columns, reshape.origins, strict=True) if reshape else ()
    names = {column.name for column, origin in added if origin is None}
    return [column.name for column in columns if column.source.name in names]


def _position_of(event: EventBeside) -> str:
    """Return the text of an event's place; the ends of a batch are boundaries."""
    if event.what in ("begin", "end"):
        return boundary_text(event.file, event.offset)
    place = (np.array([number], np.int64) for number in (event.file, event.offset, event.number))
    (text,) = mutation_texts(*place).to_pylist()
    return str(text)
