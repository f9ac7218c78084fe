"""The history of a table: a row for every version of a row, beside its mirror.

It follows the log by the table's name, as the log of a table does, whatever becomes of the mirror. Where the log can't
tell row by row, the history falls out of step: nothing comes to it until it is compared with a mirror that equals the
server's table at a known position. It is compared

- at the start of the batch with which the mode begins,
- where RENAME TABLE gives its name to a mirrored table,
- where ALTER TABLE gives rows other values: they come to the current versions in place,
- at a batch's stop, where it is out of step, or the table was snapshotted since the start.

A comparison closes and opens the versions that differ, at its position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlake.batch.manifest import StagedFile
from binlake.batch.steps import BesideStep, EventBeside, Life, MergeStep, ReshapeStep, RowsBeside
from binlake.delta import plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.errors import LakeError, LeftToSpark, SchemaMismatch
from binlake.merge.beside_commit import BesideCommit
from binlake.merge.epoch import check_shape
from binlake.merge.history_changes import staged_changes
from binlake.merge.history_comparison import Compared, compare
from binlake.merge.history_rows import FROM, HistoryChanges, TwoOpenRows, VersionRules, changed_versions, closed_rows
from binlake.merge.history_state import HistoryState
from binlake.merge.position_texts import boundary_text, mutation_texts
from binlake.merge.reshape import lake_columns_after
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
        _do(step, history)
    except LeftToSpark as left:
        raise LakeError(
            f"the history {commit.table.path} can't be written: {left}",
            remedy="take history out of tables.modes, or move that folder away: it is begun anew",
        ) from None
    except TwoOpenRows:
        raise LakeError(
            f"{commit.table.path} has two current versions of one row: somebody else wrote it",
            remedy="move that folder away; it is begun anew",
        ) from None


def _do(step: BesideStep, history: HistoryState) -> None:
    match step:
        case RowsBeside():
            _write_rows(step, history)
        case EventBeside(what="begin"):
            if step.life and step.life.delta_version is not None:
                path = history.step.config.table_path(step.life.name)
                _compare(step, history, step.life.schema, path, step.life.delta_version)
        case EventBeside(what="end"):
            is_new = step.life is not None and step.life.low.order >= history.step.start
            if is_new or not history.is_in_step:
                _compare_here(step, history)
        case EventBeside(what="create", life=Life(schema=schema)):
            columns = lake_columns(schema, history.step.config.invalid)
            if history.log is None:
                history.create(columns, None)
            else:
                _close_all(step, history, columns, stays_in_step=True)
        case EventBeside(what="rename", life=Life()):
            if not _compare_here(step, history):
                _close_all(step, history, stays_in_step=False)
        case EventBeside(what="alter"):
            _alter(step, history)
        case EventBeside(what="truncate"):
            _close_all(step, history, stays_in_step=history.is_in_step)
        case EventBeside(what="drop") | EventBeside(what="rename", is_replaced=False):
            _close_all(step, history, stays_in_step=False)
        case EventBeside(what="gap" | "anew"):
            _fall_out(history)


def _write_rows(step: RowsBeside, history: HistoryState) -> None:
    if not history.is_in_step:
        return
    commit, schema = history.step, step.merge.schema
    if any(file.path in commit.lost for file, _ in step.merge.xa) or not _fits(commit, step.merge):
        _fall_out(history)
        return
    mark = history.mark()
    columns = lake_columns(schema, commit.config.invalid)
    names = [column.name for column in columns]
    rules = VersionRules(schema.key, names, history.mode.tracked(names))
    parts = list(_parts(step.merge))
    for number, part in enumerate(parts, start=1):
        if number <= history.parts_done:
            continue
        changes = _changes(replace(step, merge=part), columns, history, mark)
        at = history.open_rows(columns, schema, changes.select(schema.key))
        changed = changed_versions(at.rows, changes, rules)
        history.put(at, changed, part=None if number == len(parts) else number)


def _changes(step: RowsBeside, columns: tuple[LakeColumn, ...], history: HistoryState, mark: str) -> pa.Table:
    invalid, by_mutation = history.step.config.invalid, history.mode.per == "mutation"
    changes = staged_changes(
        step.life, step.merge, columns, invalid, history.step.reads, by_mutation=by_mutation, most=_MOST_BYTES
    )
    if not mark:
        return changes
    positions = pc.binary_join_element_wise(mark, changes[FROM], "")
    return changes.set_column(changes.column_names.index(FROM), FROM, positions)


def _fits(commit: BesideCommit, merge: MergeStep) -> bool:
    """Tell whether rows have the shape that the mirror's table has there, and a key."""
    try:
        for file in merge.staged:
            check_shape(commit.name, merge.schema, file)
    except SchemaMismatch:
        return False
    return bool(merge.schema.key)


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


def _alter(step: EventBeside, history: HistoryState) -> None:
    if not history.is_in_step:
        return
    if step.life is None:
        _fall_out(history)
        return
    invalid = history.step.config.invalid
    columns = lake_columns(step.life.schema, invalid)
    after = lake_columns_after(step.reshape, invalid) if step.reshape is not None else ()
    written = any(column.is_written for column in after)
    if written or (step.renamed and any(column.is_side for column in columns)):
        if not _compare_here(step, history, in_place=True):
            _fall_out(history)
    elif step.reshape or step.renamed:
        history.reshape(columns, step.renamed, _begun(step.reshape, columns))


def _begun(reshape: ReshapeStep | None, columns: Sequence[LakeColumn]) -> list[str]:
    """Return the columns that a statement added, of those that the mirror has behind it."""
    added = zip(reshape.after.columns, reshape.origins, strict=True) if reshape else ()
    names = {column.name for column, origin in added if origin is None}
    return [column.name for column in columns if column.source.name in names]


def _close_all(
    event: EventBeside, history: HistoryState, columns: Sequence[LakeColumn] = (), *, stays_in_step: bool
) -> None:
    """Close all versions, because a statement took all rows away. columns: the mirror's behind it."""
    if history.log is None:
        return
    position = history.mark() + _position_of(event)
    at = history.open_rows(columns, TableSchema(()), None)
    closed = closed_rows(at.rows, position, event.committed_us)
    gone = HistoryChanges(np.ones(at.rows.num_rows, np.bool_), closed)
    history.put(at, gone, in_step=stays_in_step)


def _fall_out(history: HistoryState) -> None:
    """Note that the history is out of step from here on."""
    if history.is_in_step:
        history.commit([], in_step=False)


def _compare_here(event: EventBeside, history: HistoryState, *, in_place: bool = False) -> bool:
    """Compare with the mirror as it is behind an event; tell whether there is one that equals the server's table."""
    mirror: LakeLog | None = history.step.mirror(event.life, event.what == "end") if event.life else None
    if event.life is None or mirror is None:
        return False
    _compare(event, history, event.life.schema, mirror.path, mirror.version(), in_place=in_place)
    return True


def _compare(
    event: EventBeside, history: HistoryState, schema: TableSchema, path: str, version: int, *, in_place: bool = False
) -> None:
    position = history.mark() + _position_of(event)
    compare(history, Compared(path, version, schema, position, event.committed_us, event.renamed, in_place))


def _position_of(event: EventBeside) -> str:
    """Return the text of an event's place; the ends of a batch are boundaries."""
    if event.what in ("begin", "end"):
        return boundary_text(event.file, event.offset)
    place = (np.array([number], np.int64) for number in (event.file, event.offset, event.number))
    (text,) = mutation_texts(*place).to_pylist()
    return str(text)
