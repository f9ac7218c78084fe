"""From staged slices to each table's steps: DDL statements split a table's mutations into epochs.

Pure: the same manifest and catalog give the same steps with the same numbers, so that a retry repeats exactly what
the first attempt began. Statements are followed in the order of the log; a table is identified by its life, not its
name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from binlake.planner.cascading import CascadedBatch, declares_cascade, drops_key
from binlake.planner.manifest import Manifest, StagedSlice
from binlake.planner.noted_statements import IGNORED, NOT_APPLIED
from binlake.planner.statement_follower import StatementFollower
from binlake.planner.steps import BatchSteps, CreateStep, LeaveStep, Life, MergeStep, MoveStep, Standstill, TableSteps
from binlake.planner.tool_tables import was_tools
from binlake.planner.walk import BatchInputs, Walk
from binlake.position import Position, file_number
from binlake.schema.cascades import CASCADE_REMEDY, Cascade, acts, cascading, touched
from binlake.schema.table import TableName


def _walk_slice(walk: Walk, follower: StatementFollower, created: int, part: StagedSlice) -> None:
    """Walk through one slice. created: timestamp of the format description event of its binlog file."""
    files = sorted(part.files, key=lambda file: (file.statements_before, file.first))
    stopped = sorted(part.stopped, key=lambda item: item.offset)
    xa = sorted(part.xa, key=lambda event: event.offset)  # stable: a commit in one phase comes behind its prepare
    walk.prepared.enter(part)
    follower.temporary.forget()
    for ordinal in range(len(part.statements) + 1):
        for file in files:
            if file.statements_before == ordinal:
                walk.file(file)
        bound = part.statements[ordinal].offset if ordinal < len(part.statements) else None
        count = sum(bound is None or event.offset < bound for event in xa)
        if count:
            walk.xa(xa[:count])
            xa = xa[count:]
        while stopped and (bound is None or stopped[0].offset < bound):
            item = stopped.pop(0)
            walk.beside.gap(item.name, (file_number(item.file), item.offset), item.reason, walk.turn)
            table = walk.at(item.name)
            if table is not None and (file_number(item.file), item.offset) >= table.life.low.order:
                if table.life.status == "following":
                    table.forget_mutations()
                walk.stop_table(table, Standstill.at(item.file, item.offset, item.reason, item.remedy, item.raw))
        if ordinal < len(part.statements):
            follower.follow(part.statements[ordinal], created)


def _follow_cascades(walk: Walk, cascades: Sequence[Cascade], manifest: Manifest, start: Position) -> None:
    """Stop, snapshot again or derive tables whose rows foreign keys may have changed without an event in the log."""
    lost = _follow_dropped_keys(walk)
    deleted, updated = (_changed_tables(walk, manifest, which) | lost for which in (2, 1))
    deleted |= {name for name in updated if (table := walk.at(name)) and table.was_versioned}
    acted = touched(cascades, deleted, updated)
    at_stop = partial(Standstill.at, walk.stop.file, walk.stop.offset)
    for child, cascade in acted.items():
        walk.beside.gap(child, walk.stop.order, cascading(cascade), walk.turn)
    for cascade in cascades:
        table = walk.at(cascade.child)
        if table is None or table.life.low.order >= walk.stop.order:
            continue
        policy = walk.rules.policy(cascade.child).on_unlogged_cascade
        if policy == "stop" or not walk.rules.has_all_rows(cascade.parent):
            walk.stop_table(table, at_stop(cascading(cascade), CASCADE_REMEDY))
        elif cascade.child in acted and policy == "resnapshot":
            walk.ask_snapshot(table, at_stop(cascading(acted[cascade.child])))
    acting = tuple(cascade for cascade in cascades if acts(cascade, {*acted}, deleted, updated))
    altered = {row.name for row in walk.history}
    unchecked = {name for part in manifest.slices for name in part.unchecked}
    tables = {name: walk.tables[life] for name, life in walk.current.items()}
    _derive(walk, CascadedBatch(acting, tables, start, altered, unchecked))


def _changed_tables(walk: Walk, manifest: Manifest, which: int) -> set[TableName]:
    """Return tables with rows updated (``which`` = 1) or deleted (2), also in XA transactions that end here."""
    plain = {file.name for file in manifest.files if (file.inserted, file.updated, file.deleted)[which]}
    held = {file.name for file in manifest.files if any(counts[which] for counts in file.xids.values())}
    merges = [(table, step) for table in walk.tables.values() for step in table.steps if isinstance(step, MergeStep)]
    return plain | held | {table.life.name for table, step in merges if step.counts[which]}


def _derive(walk: Walk, batch: CascadedBatch) -> None:
    """Add what cascaded to the tables' merges, parents first; a table where it can't be derived needs a snapshot."""
    for child in batch.in_order():
        table = walk.at(child)
        if table is None or table.life.status != "following" or table.life.low.order >= walk.stop.order:
            continue
        if why := batch.refusal(child):
            why = f"{cascading(batch.of(child)[0])}; not derived: {why}"
            walk.ask_snapshot(table, Standstill.at(walk.stop.file, walk.stop.offset, why))
        elif parents := batch.parents(child):
            table.add_parents(parents)


def _follow_dropped_keys(walk: Walk) -> set[TableName]:
    """Stop tables, or ask for snapshots, where a foreign key was dropped in this batch. Returns these tables.

    It may have changed rows until then, and the server can't be asked about it.
    """
    lost: set[TableName] = set()
    for row in walk.history:
        table = walk.tables.get(row.table_id or "")  # the table may have another name by now
        if table is None or row.action in (IGNORED, NOT_APPLIED):
            continue
        if not drops_key(row.statement, row.sql_mode or 0, row.database, walk.stop.flavour):
            continue
        lost.add(table.life.name)
        why = "a foreign key went that may have changed rows below the log"
        standstill = Standstill.at(row.file, row.offset, why, CASCADE_REMEDY)
        if walk.rules.policy(table.life.name).on_unlogged_cascade != "stop":
            walk.ask_snapshot(table, standstill)
        elif _declares_cascade(walk, table.life.id):
            walk.stop_table(table, standstill)  # a key from before its snapshot has stopped the table already
    return lost


def _declares_cascade(walk: Walk, life_id: str) -> bool:
    """Return whether a statement of this batch, or of an earlier one, gave the table a foreign key that cascades."""
    rows = (row for row in walk.history if row.table_id == life_id)
    return life_id in walk.declaring or any(
        declares_cascade(row.statement, row.sql_mode or 0, row.database, walk.stop.flavour) for row in rows
    )


def _goes(walk: Walk, life: Life) -> bool:
    """Return whether a dropped table's folder is removed: by policy, or as what it did in this batch was a tool's."""
    by_policy = walk.rules.goes_when_dropped(life.name)
    return by_policy or was_tools(life.name, life.id, walk.history, walk.stop.flavour)


def split(manifest: Manifest, inputs: BatchInputs) -> BatchSteps:
    """Return each table's steps in one batch."""
    walk = Walk(manifest.batch, inputs)
    follower = StatementFollower(manifest.batch, walk, inputs, manifest.ghosts)
    walk.compare_settings()
    for staged, part in zip(manifest.slices, inputs.range.slices, strict=True):
        for name, offset in staged.left_out:
            walk.left_out.setdefault(name, (file_number(part.file), offset))
        _walk_slice(walk, follower, part.created, staged)
    walk.stop_unlogged(inputs)
    if inputs.cascades is not None:
        _follow_cascades(walk, inputs.cascades, manifest, inputs.range.start)
    for table in walk.tables.values():
        table.add_comments(walk.turn + 1)
    skip_unseen(walk.tables.values(), partial(_goes, walk))
    return BatchSteps(
        tuple(walk.tables.values()),
        tuple(walk.history),
        tuple(sorted(walk.missing)),
        tuple(sorted(walk.asked.items())),
        walk.prepared.waiting,
        tuple(sorted(walk.gone)),
        follower.charsets if follower.charsets != inputs.charsets else None,
        walk.beside.steps,
    )


def skip_unseen(tables: Collection[TableSteps], goes_when_dropped: Callable[[Life], bool]) -> None:
    """Remove the steps of lives that ended and of which nothing is left at any path; all others keep theirs.

    A path holds what the last table to take it made of it: a CREATE or a move there replaces whatever lay before. The
    last rows of a dropped table stay visible at its path (``on_drop_table: keep``), unless another table took the path
    in the same batch, or the folder is removed when the batch is recorded.

    A life's steps are all removed or none, so that the numbers of the rest don't change. goes_when_dropped: returns
    whether a dropped table's folder is removed.
    """
    ended = [table for table in tables if table.life.status == "dropped" and table.steps]
    # A living table of the name has taken the path since: the folder stays, and shows that table.
    going = {table.life.name for table in ended if goes_when_dropped(table.life)}
    taken: dict[TableName, int] = {}
    for table in tables:
        for name, turn, takes in _places(table):
            if takes:
                taken[name] = max(turn, taken.get(name, turn))
    for table in ended:
        last = {name: turn for name, turn, _ in _places(table)}
        if not any(turn >= taken.get(name, turn) for name, turn in last.items() if name not in going):
            table.steps, table.turns = [], []


def _places(table: TableSteps) -> Iterator[tuple[TableName, int, bool]]:
    """Yield for each step: the name at whose path it works, its turn, and whether it takes the path from others."""
    name = table.begins
    for step, turn in zip(table.steps, table.turns, strict=True):
        match step:
            case MoveStep(_, new):
                name = new
                yield name, turn, True
            case LeaveStep(old, _):
                yield old, turn, False
            case _:
                yield name, turn, isinstance(step, CreateStep)
