"""From staged slices to each table's steps: DDL statements cut a table's mutations into epochs.

Pure: the same manifest and catalog give the same steps with the same numbers, so that a retry repeats exactly what
the first attempt began. Statements are walked in the order of the log; identity is a table's life, not its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from binlake.batch.cascading import CascadedBatch
from binlake.batch.ended import skip_unseen
from binlake.batch.manifest import Manifest, StagedSlice
from binlake.batch.steps import BatchSteps, MergeStep, Standstill
from binlake.batch.walk import APART, IGNORED, Outset, Walk
from binlake.position import Position, file_number
from binlake.schema.cascades import CASCADE_REMEDY, Cascade, acts, cascading, touched
from binlake.schema.table import TableName

_DECLARES_KEY = re.compile(r"\bREFERENCES\b.*\bON\s+(DELETE|UPDATE)\s+(CASCADE|SET)\b", re.IGNORECASE | re.DOTALL)
_DROPS_KEY = re.compile(r"\bALTER\b.*\bDROP\b.*\b(FOREIGN|CONSTRAINT)\b", re.IGNORECASE | re.DOTALL)


def _walk_slice(walk: Walk, batch: int, created: int, part: StagedSlice) -> None:
    files = sorted(part.files, key=lambda file: (file.statements_before, file.first))
    stopped = sorted(part.stopped, key=lambda item: item.offset)
    xa = sorted(part.xa, key=lambda event: event.offset)  # stable: a commit in one phase stands behind its prepare
    walk.prepared.enter(part)
    walk.temporary.forget()
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
            table = walk.at(item.name)
            if table is not None and (file_number(item.file), item.offset) >= table.life.low.order:
                if table.life.status == "following":
                    table.forget_mutations()
                walk.stop_table(table, Standstill.at(item.file, item.offset, item.reason, item.remedy, item.raw))
        if ordinal < len(part.statements):
            walk.statement(batch, created, part.statements[ordinal])


def _cascade(walk: Walk, cascades: Sequence[Cascade], manifest: Manifest, start: Position) -> None:
    """Tables whose rows may have changed without a word in the log."""
    _forgotten_keys(walk)
    deleted, updated = (_changed(walk, manifest, which) for which in (2, 1))
    deleted |= {name for name in updated if (table := walk.at(name)) and table.was_versioned}
    acted = touched(cascades, deleted, updated)
    at_stop = partial(Standstill.at, walk.stop.file, walk.stop.offset)
    for one in cascades:
        table = walk.at(one.child)
        if table is None or table.life.low.order >= walk.stop.order:
            continue
        policy = walk.rules.policy(one.child).on_unlogged_cascade
        if policy == "stop" or not walk.rules.included(one.parent):
            walk.stop_table(table, at_stop(cascading(one), CASCADE_REMEDY))
        elif one.child in acted and policy == "resnapshot":
            walk.ask(table, at_stop(cascading(acted[one.child])))
    acting = tuple(one for one in cascades if acts(one, {*acted}, deleted, updated))
    altered = {TableName(row["database"], row["table"]) for row in walk.history}
    unchecked = {name for part in manifest.slices for name in part.unchecked}
    tables = {name: walk.tables[life] for name, life in walk.current.items()}
    _derive(walk, CascadedBatch(acting, tables, start, altered, unchecked))


def _changed(walk: Walk, manifest: Manifest, which: int) -> set[TableName]:
    """Tables of which rows were updated (1) or deleted (2), those of XA transactions that end in this batch too."""
    plain = {file.name for file in manifest.files if (file.inserted, file.updated, file.deleted)[which]}
    held = {file.name for file in manifest.files if any(counts[which] for counts in file.xids.values())}
    merges = [(table, step) for table in walk.tables.values() for step in table.steps if isinstance(step, MergeStep)]
    return plain | held | {table.life.name for table, step in merges if step.counts[which]}


def _derive(walk: Walk, batch: CascadedBatch) -> None:
    """What cascaded is added to the tables' merges, parents first."""
    for child in batch.in_order():
        table = walk.at(child)
        if table is None or table.life.status != "following" or table.life.low.order >= walk.stop.order:
            continue
        if why := batch.refusal(child):
            why = f"{cascading(batch.of(child)[0])}; not derived: {why}"
            walk.ask(table, Standstill.at(walk.stop.file, walk.stop.offset, why))
        elif parents := batch.parents(child):
            table.add_parents(parents)


def _forgotten_keys(walk: Walk) -> None:
    """A foreign key that went in this batch acted until then, and the server knows it no more."""
    for row in walk.history:
        name = TableName(row["database"], row["table"])
        table = walk.at(name)
        if table is None or row["action"] in (IGNORED, APART) or not _DROPS_KEY.search(row["statement"]):
            continue
        why = "a foreign key went that may have changed rows below the log"
        standstill = Standstill.at(row["file"], row["offset"], why, CASCADE_REMEDY)
        if walk.rules.policy(name).on_unlogged_cascade != "stop":
            walk.ask(table, standstill)
        elif any(_DECLARES_KEY.search(told["statement"]) for told in walk.history if told["table_id"] == table.life.id):
            walk.stop_table(table, standstill)  # an older one has stopped it before


def split(manifest: Manifest, outset: Outset) -> BatchSteps:
    """Each table's steps in one batch."""
    walk = Walk(manifest.batch, outset)
    walk.compare_settings()
    for staged, part in zip(manifest.slices, outset.range.slices, strict=True):
        _walk_slice(walk, manifest.batch, part.created, staged)
    if outset.cascades is not None:
        _cascade(walk, outset.cascades, manifest, outset.range.start)
    skip_unseen(walk.tables.values(), outset.rules.goes_when_dropped)
    return BatchSteps(
        tuple(walk.tables.values()),
        tuple(walk.history),
        tuple(sorted(walk.missing)),
        tuple(sorted(walk.asked.items())),
        walk.prepared.waiting,
        tuple(sorted(walk.gone)),
        walk.charsets if walk.charsets != outset.charsets else None,
    )
