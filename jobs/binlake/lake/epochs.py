"""From staged slices to each table's steps: DDL statements cut a table's mutations into epochs.

Pure: the same manifest and catalog give the same steps with the same numbers, so that a retry repeats exactly what
the first attempt began. Statements are walked in the order of the log; identity is a table's life, not its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from binlake.binlog.border import Statement, XaOutcome
from binlake.errors import ConfigurationError, SchemaMismatch, UnfollowedStatement
from binlake.lake.staging import Manifest, StagedFile, StagedSlice
from binlake.position import Position, file_number
from binlake.schema import ddl
from binlake.schema.table import Column, TableName, TableSchema, table_id

Status = Literal["following", "stopped", "dropped", "missing"]


@dataclass(frozen=True)
class Life:
    """One life of a table, as metadata knows it before a batch.

    low: mutations before it are in the snapshot already (the position of creation for tables born in the log).
    high: the table equals the server once merged up to it.
    """

    id: str
    name: TableName
    schema: TableSchema
    low: Position
    high: Position
    status: Status = "following"
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class MergeStep:
    """Mutations of one epoch, all in ``schema``'s shape."""

    schema: TableSchema
    files: tuple[StagedFile, ...]


@dataclass(frozen=True)
class CreateStep:
    """An empty table takes the place of whatever lies at its path."""

    schema: TableSchema


@dataclass(frozen=True)
class AddColumnsStep:
    """Columns of ``after`` that ``before`` lacks."""

    before: TableSchema
    after: TableSchema


@dataclass(frozen=True)
class FillStep:
    """Rows from before an ADD COLUMN get its default: (column, constant as the server writes it)."""

    schema: TableSchema
    defaults: tuple[tuple[Column, str], ...]


@dataclass(frozen=True)
class TruncateStep:
    """All rows go."""


Step = MergeStep | CreateStep | AddColumnsStep | FillStep | TruncateStep


@dataclass
class TableSteps:
    """A life's steps in a batch, numbered from 1 by their place, and what the life is afterwards."""

    life: Life
    steps: list[Step] = field(default_factory=list)

    def add_file(self, file: StagedFile) -> None:
        last = self.steps[-1] if self.steps else None
        if isinstance(last, MergeStep) and last.schema == self.life.schema:
            self.steps[-1] = MergeStep(last.schema, (*last.files, file))
        else:
            self.steps.append(MergeStep(self.life.schema, (file,)))


@dataclass(frozen=True)
class BatchSteps:
    """Everything a batch does. missing: included tables with mutations that were never snapshotted."""

    tables: tuple[TableSteps, ...]
    history: tuple[dict[str, Any], ...]
    missing: tuple[TableName, ...]
    outcomes: tuple[XaOutcome, ...]


class _Walk:
    """State of the walk through one manifest."""

    def __init__(
        self,
        source: str,
        flavour: ddl.Flavour,
        included: Callable[[TableName], bool],
        excluding: Callable[[TableName, TableSchema], TableSchema],
        lives: list[Life],
        stop: Position,
    ) -> None:
        self.source = source
        self.flavour = flavour
        self.included = included
        self.excluding = excluding
        self.stop = stop
        self.tables = {life.id: TableSteps(life) for life in lives}
        self.current = {life.name: life.id for life in lives if life.status != "dropped"}
        self.history: list[dict[str, Any]] = []
        self.missing: set[TableName] = set()

    def at(self, name: TableName) -> TableSteps | None:
        found = self.current.get(name)
        return self.tables[found] if found else None

    def file(self, file: StagedFile) -> None:
        table = self.at(file.name)
        if table is None:
            if self.included(file.name):
                self.missing.add(file.name)
        elif table.life.status == "following" and file.last[:2] >= table.life.low.order:
            table.add_file(file)

    def stop_table(self, table: TableSteps, reason: str, remedy: str) -> None:
        if table.life.status == "following":
            table.life = replace(table.life, status="stopped", reason=reason, remedy=remedy)

    def statement(self, batch: int, created: int, statement: Statement) -> None:
        parsed = ddl.parse(
            statement.text, database=statement.database, sql_mode=statement.sql_mode, flavour=self.flavour
        )
        where = Position(self.stop.server, statement.file, statement.offset, created)
        if parsed.kind == "DML" or parsed.may_concern_any:
            self._opaque(batch, where, statement, parsed)
            return
        noted = {change.name for change in parsed.changes if not isinstance(change, ddl.DropDatabase)}
        for change in parsed.changes:
            for name, one in self._concerned(change):
                self._change(batch, where, statement, parsed.kind, name, one)
        for name in parsed.tables:
            if name not in noted and self._ours(name):
                self._note(batch, where, statement, parsed.kind, name, None, "ignored", "", None, None)

    def _ours(self, name: TableName) -> bool:
        return self.included(name) or name in self.current

    def _concerned(self, change: ddl.Change) -> list[tuple[TableName, ddl.Change]]:
        if isinstance(change, ddl.DropDatabase):
            names = [name for name in self.current if name.database == change.database]
            return [(name, ddl.DropTable(name)) for name in names]
        return [(change.name, change)] if self._ours(change.name) else []

    def _opaque(self, batch: int, where: Position, statement: Statement, parsed: ddl.ParsedStatement) -> None:
        """Rows that changed without row events, or a statement nobody can read."""
        concerned = [name for name in (parsed.tables or tuple(self.current)) if self._ours(name)]
        for name in concerned:
            table = self.at(name)
            reason = (
                f"{where.short}: a statement changed rows without row events (binlog_format isn't ROW in that session)"
                if parsed.kind == "DML"
                else f"{where.short}: a statement that can't be parsed may concern this table"
            )
            if table is not None and (statement_order(statement) >= table.life.low.order):
                self.stop_table(table, reason, _resnapshot(name))
            self._note(batch, where, statement, parsed.kind, name, table, "stopped", reason, None, None)

    def _change(
        self,
        batch: int,
        where: Position,
        statement: Statement,
        kind: str,
        name: TableName,
        change: ddl.Change,
    ) -> None:
        table = self.at(name)
        if table is not None and statement_order(statement) < table.life.low.order:
            self._note(batch, where, statement, kind, name, table, "ignored", "before the snapshot", None, None)
            return
        before = table.life.schema if table else None
        action, reason = self._follow(where, name, change, table)
        after_table = self.at(name)
        after = after_table.life.schema if after_table and action == "followed" else None
        self._note(batch, where, statement, kind, name, after_table or table, action, reason, before, after)

    def _follow(
        self, where: Position, name: TableName, change: ddl.Change, table: TableSteps | None
    ) -> tuple[str, str]:
        """Do what one change means for one table; gives the action and its reason."""
        if isinstance(change, ddl.CreateTable | ddl.CreateLike):
            return self._create(where, name, change, table)
        if table is None:
            return "ignored", "this table isn't mirrored"
        if isinstance(change, ddl.DropTable):
            table.life = replace(table.life, status="dropped", reason=f"dropped at {where.short}", remedy="")
            del self.current[name]
            return "followed", ""
        if table.life.status != "following":
            return "ignored", f"this table is {table.life.status}"
        if isinstance(change, ddl.TruncateTable):
            table.steps.append(TruncateStep())
            return "followed", ""
        assert not isinstance(change, ddl.DropDatabase)  # _concerned made DropTables of it
        try:
            after = ddl.apply(table.life.schema, change)
            added = ddl.new_columns(table.life.schema, change) if isinstance(change, ddl.AddColumns) else ()
            added = tuple(column for column in added if column in after.mirrored)
            defaults = [(column, text) for column in added if (text := ddl.old_row_default(column)) is not None]
        except (UnfollowedStatement, SchemaMismatch) as error:
            reason = f"{where.short}: {error.message}"
            self.stop_table(table, reason, _resnapshot(name))
            return "stopped", reason
        if added:
            table.steps.append(AddColumnsStep(table.life.schema, after))
        if defaults:
            table.steps.append(FillStep(after, tuple(defaults)))
        table.life = replace(table.life, schema=after)
        return "followed", change.why if isinstance(change, ddl.NoShapeChange) else ""

    def _create(
        self,
        where: Position,
        name: TableName,
        change: ddl.CreateTable | ddl.CreateLike,
        table: TableSteps | None,
    ) -> tuple[str, str]:
        if table is not None:
            if change.if_not_exists:
                return "ignored", "the table existed"
            # CREATE OR REPLACE logs no DROP; anything else means that a DROP wasn't logged
            table.life = replace(table.life, status="dropped", reason=f"replaced at {where.short}")
        if not self.included(name):
            return "ignored", "not included"
        if isinstance(change, ddl.CreateLike):
            like = self.at(change.like)
            if like is None:
                self.missing.add(name)
                return "stopped", f"{change.like} isn't mirrored, so its columns aren't known here"
            schema = like.life.schema
        else:
            schema = change.schema
        try:
            schema = self.excluding(name, schema)
        except ConfigurationError as error:
            self.missing.add(name)
            return "stopped", error.message
        life = Life(table_id(self.source, name, where), name, schema, where, where)
        self.tables[life.id] = TableSteps(life, [CreateStep(schema)])
        self.current[name] = life.id
        self.missing.discard(name)
        return "followed", ""

    def _note(
        self,
        batch: int,
        where: Position,
        statement: Statement,
        kind: str,
        name: TableName,
        table: TableSteps | None,
        action: str,
        reason: str,
        before: TableSchema | None,
        after: TableSchema | None,
    ) -> None:
        self.history.append(
            {
                "batch": batch,
                "file": statement.file,
                "offset": statement.offset,
                "position": str(where),
                "gtid": statement.gtid,
                "committed_us": statement.committed_us,
                "database": name.database,
                "sql_mode": statement.sql_mode,
                "statement": statement.text,
                "kind": kind,
                "table": name.table,
                "table_id": table.life.id if table else None,
                "action": action,
                "reason": reason or None,
                "before": json.dumps(before.to_json(), ensure_ascii=False) if before else None,
                "after": json.dumps(after.to_json(), ensure_ascii=False) if after else None,
            }
        )


def statement_order(statement: Statement) -> tuple[int, int]:
    return file_number(statement.file), statement.offset


def _resnapshot(name: TableName) -> str:
    return f"snapshot this table again: binlake snapshot --config FILE --tables '{name}'"


def _walk_slice(walk: _Walk, batch: int, created: int, part: StagedSlice) -> None:
    files = sorted(part.files, key=lambda file: (file.statements_before, file.first))
    stopped = sorted(part.stopped, key=lambda item: item.offset)
    for ordinal in range(len(part.statements) + 1):
        for file in files:
            if file.statements_before == ordinal:
                walk.file(file)
        bound = part.statements[ordinal].offset if ordinal < len(part.statements) else None
        while stopped and (bound is None or stopped[0].offset < bound):
            item = stopped.pop(0)
            table = walk.at(item.name)
            if table is not None and (file_number(item.file), item.offset) >= table.life.low.order:
                walk.stop_table(table, f"{item.file}:{item.offset}: {item.reason}", item.remedy)
        if ordinal < len(part.statements):
            walk.statement(batch, created, part.statements[ordinal])


def split(
    manifest: Manifest,
    *,
    source: str,
    flavour: ddl.Flavour,
    included: Callable[[TableName], bool],
    excluding: Callable[[TableName, TableSchema], TableSchema] = lambda name, schema: schema,
    lives: list[Life],
    created: list[int],
    stop: Position,
) -> BatchSteps:
    """Each table's steps in one batch.

    excluding: adds to a shape which columns aren't mirrored. lives: the catalog before the batch. created: per slice,
    the timestamp of its file's format description event.
    """
    walk = _Walk(source, flavour, included, excluding, lives, stop)
    for part, file_created in zip(manifest.slices, created, strict=True):
        _walk_slice(walk, manifest.batch, file_created, part)
    return BatchSteps(
        tuple(walk.tables.values()),
        tuple(walk.history),
        tuple(sorted(walk.missing)),
        tuple(outcome for part in manifest.slices for outcome in part.outcomes),
    )
