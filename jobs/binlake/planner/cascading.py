"""Changes that foreign keys made without a word in the log: which can be derived from the parents' mutations."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from binlake.errors import UnfollowedStatement
from binlake.planner.steps import MergeStep, ParentMutations, TableSteps
from binlake.position import Flavour, Position
from binlake.schema.cascades import Cascade, not_derivable
from binlake.schema.lexer import Cursor, Lexer
from binlake.schema.table import Column, TableName

_CASCADES = re.compile(r"\bON (DELETE|UPDATE) (CASCADE|SET)\b")
_FIRST_DROP = re.compile("DROP", re.IGNORECASE)
_KEY = re.compile("FOREIGN|CONSTRAINT", re.IGNORECASE)
_MANY = ["ALTER", "DROP", "CONSTRAINT", "REFERENCES", "ON", "DELETE", "CASCADE"]
"""Words of a statement that is too long to be read: it may do either."""


@dataclass(frozen=True)
class CascadedBatch:
    """The cascades of a batch.

    acting: foreign keys whose parent had rows deleted or updated. tables: the steps of each table. start: the batch's
    start position. altered: tables that a statement of the batch concerns. unchecked: tables changed by sessions with
    foreign_key_checks = 0.
    """

    acting: tuple[Cascade, ...]
    tables: Mapping[TableName, TableSteps]
    start: Position
    altered: Collection[TableName]
    unchecked: Collection[TableName]
    _why: dict[TableName, str] = field(default_factory=dict)

    def of(self, child: TableName) -> list[Cascade]:
        """Return the foreign keys of ``child`` that acted."""
        return [cascade for cascade in self.acting if cascade.child == child]

    def ancestors(self, name: TableName) -> set[TableName]:
        """Return the table itself and all tables whose mutations cascade to it, through all levels."""
        reached: set[TableName] = set()
        pending = [name]
        while pending:
            table = pending.pop()
            if table not in reached:
                reached.add(table)
                pending += [cascade.parent for cascade in self.of(table)]
        return reached

    def in_order(self) -> list[TableName]:
        """Return the children in an order in which parents come first; tables of a cycle come last."""
        children = {cascade.child for cascade in self.acting}
        return sorted(children, key=lambda name: (self._circular(name), len(self.ancestors(name)), name))

    def _circular(self, name: TableName) -> bool:
        others = {cascade.parent for cascade in self.of(name)} - {name}
        return any(name in self.ancestors(parent) for parent in others)

    def refusal(self, child: TableName) -> str:
        """Return why the child's changes can't be derived; empty if they can."""
        if child not in self._why:
            self._why[child] = self._refusal(child)
        return self._why[child]

    def _refusal(self, child: TableName) -> str:
        if self._circular(child):
            return "the foreign keys go round in a circle"
        parents = [cascade.parent for cascade in self.of(child) if cascade.parent != child]
        lines = [self.ancestors(parent) for parent in parents]
        if any(first & second for n, first in enumerate(lines) for second in lines[:n]):
            return "one row of a parent reaches it in two ways"
        return self._refusal_of_table(child) or next(filter(None, map(self._refusal_of_key, self.of(child))), "")

    def _refusal_of_table(self, name: TableName) -> str:
        """Return why nothing can be derived for a table, be it the child or a parent; empty if it can."""
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

    def _refusal_of_key(self, cascade: Cascade) -> str:
        child, parent = self.tables[cascade.child], cascade.parent
        if not child.life.schema.key:
            return f"{cascade.child} has no key"
        if child.life.delta_version is None:
            return f"{cascade.child} begins in the same range"
        if len(child.steps) > 1:  # without a statement: the log's rows lack columns from here on
            return f"the columns of {cascade.child} changed in the same range"
        if parent != cascade.child:
            if why := self._refusal_of_table(parent):
                return why
            if any(acting.child == parent for acting in self.acting) and (why := self.refusal(parent)):
                return f"{parent} is snapshotted again: {why}"
            if self.tables[parent].life.low.order > max(self.start.order, child.life.low.order):
                return f"{parent} was snapshotted in the same range"
        return not_derivable(cascade, child.life.schema, self.tables[parent].life.schema)

    def parents(self, child: TableName) -> tuple[ParentMutations, ...]:
        """Return the parents' mutations that changed the child; empty if there are none.

        The parents' own parents must have been added to their steps before.
        """
        parents: list[ParentMutations] = []
        for acting in self.of(child):
            cascade = _as_declared(acting, self.tables)
            if cascade.parent == child:
                parents.append(ParentMutations(cascade))
                continue
            parent = self.tables[cascade.parent]
            merges = [step for step in parent.steps if isinstance(step, MergeStep)]
            parents += [ParentMutations(cascade, parent.life, step) for step in merges]
        has_mutations = self.tables[child].steps or any(item.parent for item in parents)
        return tuple(parents) if has_mutations else ()


def _as_declared(cascade: Cascade, tables: Mapping[TableName, TableSteps]) -> Cascade:
    """Return the cascade with the columns' names as the lake spells them."""

    def spelled(name: TableName, columns: tuple[str, ...]) -> tuple[str, ...]:
        known: dict[str, Column] = {column.served_name.lower(): column for column in tables[name].life.schema.mirrored}
        return tuple(known[column.lower()].name for column in columns)

    return replace(
        cascade,
        columns=spelled(cascade.child, cascade.columns),
        referenced=spelled(cascade.parent, cascade.referenced),
    )


def declares_cascade(statement: str, sql_mode: int, database: str, flavour: Flavour) -> bool:
    """Return whether a statement of the DDL history declares a foreign key that changes rows of its table. database:
    the table's."""
    words = _words(statement, sql_mode, database, flavour)
    return bool(_CASCADES.search(" ".join(_behind(words, "REFERENCES"))))


def drops_key(statement: str, sql_mode: int, database: str, flavour: Flavour) -> bool:
    """Return whether a statement of the DDL history may drop a foreign key. database: its table's."""
    words = _behind(_words(statement, sql_mode, database, flavour), "ALTER")
    return not {"FOREIGN", "CONSTRAINT"}.isdisjoint(_behind(words, "DROP"))


def may_drop_key(text: str) -> bool:
    """Return whether a statement's text has the words by which ``drops_key`` knows one."""
    first = _FIRST_DROP.search(text)
    return bool(first and _KEY.search(text, first.end()))


def _words(statement: str, sql_mode: int, database: str, flavour: Flavour) -> list[str]:
    """Return the words of a statement, without comments, names in quotes, and strings."""
    cursor = Cursor(Lexer(statement, sql_mode, flavour), database)
    try:
        return [token.key for token in cursor.all_tokens() if token.key]
    except UnfollowedStatement:
        return _MANY


def _behind(words: list[str], first: str) -> list[str]:
    """Return the words behind the first of these; none if it isn't there."""
    return words[words.index(first) + 1 :] if first in words else []
