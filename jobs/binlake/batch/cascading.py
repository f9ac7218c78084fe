"""Which tables' unlogged changes can be derived from their parents' mutations, and why others' can't."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from binlake.batch.steps import MergeStep, ParentMutations, TableSteps
from binlake.position import Position
from binlake.schema.cascades import Cascade, untold
from binlake.schema.table import Column, TableName


@dataclass(frozen=True)
class CascadedBatch:
    """A batch's cascades.

    acting: foreign keys of which the parent's rows went or changed. tables: each with its steps. start: the batch's.
    altered: tables with a statement in the batch. unchecked: those changed by sessions without foreign key checks.
    """

    acting: tuple[Cascade, ...]
    tables: Mapping[TableName, TableSteps]
    start: Position
    altered: Collection[TableName]
    unchecked: Collection[TableName]
    _why: dict[TableName, str] = field(default_factory=dict)

    def of(self, child: TableName) -> list[Cascade]:
        return [one for one in self.acting if one.child == child]

    def ancestors(self, name: TableName) -> set[TableName]:
        """The table and those from whose rows it changes, through all levels."""
        found: set[TableName] = set()
        pending = [name]
        while pending:
            one = pending.pop()
            if one not in found:
                found.add(one)
                pending += [cascade.parent for cascade in self.of(one)]
        return found

    def in_order(self) -> list[TableName]:
        """The children, parents first; those of a cycle come last."""
        children = {one.child for one in self.acting}
        return sorted(children, key=lambda name: (self._circular(name), len(self.ancestors(name)), name))

    def _circular(self, name: TableName) -> bool:
        others = {one.parent for one in self.of(name)} - {name}
        return any(name in self.ancestors(parent) for parent in others)

    def refusal(self, child: TableName) -> str:
        """Why the child's changes can't be derived; empty where they can."""
        if child not in self._why:
            self._why[child] = self._refusal(child)
        return self._why[child]

    def _refusal(self, child: TableName) -> str:
        if self._circular(child):
            return "the foreign keys go round in a circle"
        parents = [one.parent for one in self.of(child) if one.parent != child]
        lines = [self.ancestors(parent) for parent in parents]
        if any(first & second for n, first in enumerate(lines) for second in lines[:n]):
            return "one row of a parent reaches it in two ways"
        return self._of_table(child) or next(filter(None, (self._of_key(one) for one in self.of(child))), "")

    def _of_table(self, name: TableName) -> str:
        """What a table must be like, as a child or as a parent."""
        table = self.tables.get(name)
        if table is None or table.life.status != "following":
            return f"{name} isn't followed"
        if name in self.altered:
            return f"a statement changed {name} in the same range"
        if name in self.unchecked:
            return f"rows of {name} were changed with foreign_key_checks = 0"
        life = table.life
        if life.high.order > self.start.order and life.low.order != life.high.order:
            return f"{name} was snapshotted without a lock in the same range"
        return ""

    def _of_key(self, one: Cascade) -> str:
        child = self.tables[one.child]
        if not child.life.schema.key:
            return f"{one.child} has no key"
        if child.life.delta_version is None:
            return f"{one.child} begins in the same range"
        if one.parent != one.child:
            if why := self._of_table(one.parent):
                return why
            if any(acting.child == one.parent for acting in self.acting) and (why := self.refusal(one.parent)):
                return f"{one.parent} is snapshotted anew: {why}"
            parent = self.tables[one.parent]
            if parent.life.low.order > max(self.start.order, child.life.low.order):
                return f"{one.parent} was snapshotted in the same range"
        return untold(one, child.life.schema, self.tables[one.parent].life.schema)

    def parents(self, child: TableName) -> tuple[ParentMutations, ...]:
        """What is known of the parents, whose own parents must have been added to their steps before."""
        found: list[ParentMutations] = []
        for one in self.of(child):
            one = _as_declared(one, self.tables)
            if one.parent == child:
                found.append(ParentMutations(one))
                continue
            parent = self.tables[one.parent]
            merges = [step for step in parent.steps if isinstance(step, MergeStep)]
            found += [ParentMutations(one, parent.life, step) for step in merges]
        told = self.tables[child].steps or any(one.parent for one in found)
        return tuple(found) if told else ()


def _as_declared(one: Cascade, tables: Mapping[TableName, TableSteps]) -> Cascade:
    """With the columns' names as the tables spell them."""

    def spelled(name: TableName, columns: tuple[str, ...]) -> tuple[str, ...]:
        known: dict[str, Column] = {column.name.lower(): column for column in tables[name].life.schema.mirrored}
        return tuple(known[column.lower()].name for column in columns)

    return replace(one, columns=spelled(one.child, one.columns), referenced=spelled(one.parent, one.referenced))
