"""The walk through a batch's log: what each mutation and each statement means for the tables' steps."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from binlake.batch import renames
from binlake.batch.kept_columns import keeping
from binlake.batch.manifest import StagedFile
from binlake.batch.prepared import PreparedTransactions
from binlake.batch.rules import Rules
from binlake.batch.steps import (
    CreateStep,
    LeaveStep,
    Life,
    MoveStep,
    PreparedXa,
    ReshapeStep,
    Standstill,
    TableSteps,
    TruncateStep,
    XaCommit,
)
from binlake.binlog.border import Statement, XaEvent
from binlake.binlog.partial_rows import PARTIAL, PARTIAL_REMEDY
from binlake.ddl import statements
from binlake.ddl.temporary import TemporaryTables
from binlake.errors import (
    ConfigurationError,
    SchemaMismatch,
    UnfollowedStatement,
    snapshot_again,
)
from binlake.position import Position, Range, file_number
from binlake.schema import datatypes
from binlake.schema.cascades import Cascade
from binlake.schema.lake_columns import TWICE_REMEDY, named_twice
from binlake.schema.table import TableName, TableSchema, table_id
from binlake.schema.virtual import UNTOLD_REMEDY, as_logged, judged, lost_columns
from binlake.serialization import dumps

FOLLOWED, ASKED, STOPPED, IGNORED = "followed", "resnapshot asked", "stopped", "ignored"
APART = "not applied"
"""The lake's table stands still, or elsewhere; the server's did what the statement says."""
"""What is done about a statement, in the DDL history."""


@dataclass(frozen=True)
class _At:
    """A statement, what was understood of it, and where it stands."""

    batch: int
    position: Position
    turn: int
    statement: Statement
    parsed: statements.ParsedStatement

    @property
    def order(self) -> tuple[int, int]:
        return file_number(self.statement.file), self.statement.offset

    def standstill(self, why: str, remedy: str = "") -> Standstill:
        """Of a table that doesn't follow the statement."""
        return Standstill.at(self.statement.file, self.statement.offset, why, remedy)


@dataclass(frozen=True)
class Outset:
    """What is known of a batch before its log is walked through.

    lives: the catalog before the batch. prepared: XA transactions of earlier batches that wait for their outcome.
    cascades: what acts below the log, None where nothing can. lifeless: included tables without a life, that are
    missing or to be snapshotted. charsets: the databases' default character sets at the start; utf8mb4 where they
    aren't told. lower_case_names: as the server stores them, however a statement writes them. apart: of lives that
    don't follow, by their ids, the shape at the server where statements changed it since; None where it isn't told.
    """

    source: str
    rules: Rules
    range: Range
    lives: Sequence[Life]
    prepared: Sequence[PreparedXa] = ()
    cascades: Sequence[Cascade] | None = None
    lifeless: Collection[TableName] = ()
    charsets: Mapping[str, str] = field(default_factory=dict)
    lower_case_names: bool = False
    apart: Mapping[str, TableSchema | None] = field(default_factory=dict)


class Walk:
    """The tables, and what becomes of them as the log is walked through."""

    def __init__(self, batch: int, outset: Outset) -> None:
        self.source = outset.source
        self.rules = outset.rules
        self.stop = outset.range.stop
        self.flavour = self.stop.flavour
        self.prepared = PreparedTransactions(batch, outset.prepared)
        self.charsets = dict(outset.charsets)
        self.lower_case_names = outset.lower_case_names
        self.temporary = TemporaryTables(self.flavour)
        self.lifeless = set(outset.lifeless)
        self.apart = dict(outset.apart)
        self.tables = {life.id: TableSteps(life) for life in outset.lives}
        self.current = {life.name: life.id for life in outset.lives if life.status != "dropped"}
        self.history: list[dict[str, Any]] = []
        self.missing: set[TableName] = set()
        self.asked: dict[TableName, str] = {}
        self.gone: set[TableName] = set()
        self.turn = 0

    def at(self, name: TableName) -> TableSteps | None:
        found = self.current.get(name)
        return self.tables[found] if found else None

    def file(self, file: StagedFile) -> None:
        table = self._working(file.name, file.last[:2])
        if table is None or not file.inserted + file.updated + file.deleted:
            return
        if not file.absent or self._goes_without(table, file):
            table.add_file(file, self.turn)

    def _goes_without(self, table: TableSteps, file: StagedFile) -> bool:
        """Notice that rows lack columns. Returns whether all of these are generated, so that the table can follow.

        From here on the lake computes such columns itself or has them no more: a server of a newer version took over.
        """
        number, offset, _ = file.first
        before = table.life.schema
        if lost := lost_columns(file.absent, before):
            why = f"{PARTIAL}: {', '.join(lost)}"
            self.stop_table(table, Standstill.at(self._file_name(number), offset, why, PARTIAL_REMEDY))
            return False
        after = as_logged(before)
        if why := self.rules.refused_for_untold(table.life.name, after):
            self.stop_table(table, Standstill.at(self._file_name(number), offset, why, UNTOLD_REMEDY))
            return False
        table.life = replace(table.life, schema=after)
        if after.mirrored != before.mirrored:
            origins = tuple(column.name for column in after.columns)
            kept = tuple(column.name for column in after.kept)
            table.add(CreateStep(after) if table.empty else ReshapeStep(before, after, origins, kept), self.turn)
        return True

    def _file_name(self, number: int) -> str:
        return f"{self.stop.file.rpartition('.')[0]}.{number:06}"

    def xa(self, events: list[XaEvent]) -> None:
        """Rows of XA transactions come with their outcome: a snapshot before it doesn't have them."""
        commits, unknown = self.prepared.follow(events)
        by_name: dict[TableName, list[tuple[StagedFile, XaCommit]]] = defaultdict(list)
        for file, commit in commits:
            by_name[file.name].append((file, commit))
        for name, rows in by_name.items():
            table = self._working(name, max(commit.committed for _, commit in rows))
            if table is not None and all(self._goes_without(table, file) for file, _ in rows if file.absent):
                low = table.life.low.order
                table.add_xa([(file, commit) for file, commit in rows if commit.committed >= low], self.turn)
        for event in unknown:
            why = f"XA COMMIT of {event.xid}, prepared before the log that was read here"
            standstill = Standstill.at(event.file, event.offset, why)
            for life in self.current.values():
                if self.tables[life].life.low.order <= (file_number(event.file), event.offset):
                    self.ask(self.tables[life], standstill)

    def _working(self, name: TableName, last: tuple[int, int]) -> TableSteps | None:
        """The table that follows mutations up to ``last``; an included one without a life is noted, once."""
        table = self.at(name)
        if table is None:
            if self.rules.included(name) and name not in self.asked and name not in self.lifeless:
                self.missing.add(name)
            return None
        return table if table.life.status == "following" and last >= table.life.low.order else None

    def stop_table(self, table: TableSteps, standstill: Standstill) -> None:
        if table.life.status == "following":
            table.forget()
            table.life = replace(table.life, status="stopped", standstill=standstill)

    def ask(self, table: TableSteps, standstill: Standstill) -> str:
        """A new snapshot, where the policy says so and there is a server to take it from; else the table stops."""
        asked = self.rules.unfollowable(table.life, standstill)
        if asked.status == "stopped":
            assert asked.standstill is not None
            self.stop_table(table, asked.standstill)
            return STOPPED
        if table.life.status == "following":
            table.life = asked
        return ASKED

    def compare_settings(self) -> None:
        """Tables whose rows were read under other settings than the batch was: between its plan and its staging
        somebody may have changed the YAML."""
        for table in self.tables.values():
            try:
                table.life = self.rules.under(table.life)
            except ConfigurationError as error:
                self.stop_table(table, Standstill(error.message, error.remedy))

    # statements ------------------------------------------------------------------------------------------------------
    def statement(self, batch: int, created: int, statement: Statement) -> None:
        self.turn += 1
        parsed = statements.parse(
            statement.text,
            database=statement.database,
            sql_mode=statement.sql_mode,
            flavour=self.flavour,
            charsets=self.charsets,
            lower_case_names=self.lower_case_names,
            session=statement.session,
        )
        if statement.error:
            parsed = parsed.failed()
        parsed = self.temporary.hidden(parsed, statement.thread)
        where = Position(self.stop.server, statement.file, statement.offset, created)
        here = _At(batch, where, self.turn, statement, parsed)
        if parsed.kind == "DML" or parsed.may_concern_any:
            self._opaque(here)
        else:
            self._changes(here)
        if parsed.database_charset is not None:
            self._database_charset(parsed.database_charset, statement.server_charset)
        self.turn += 1

    def _database_charset(self, told: statements.DatabaseCharset, server_charset: str) -> None:
        if not (told.if_not_exists and told.database in self.charsets):
            self.charsets[told.database] = told.charset or server_charset

    def _changes(self, here: _At) -> None:
        noted: set[TableName] = set()
        for change in here.parsed.changes:
            if isinstance(change, statements.RenameTables):
                noted |= self._rename(here, change)
                continue
            if isinstance(change, statements.DropDatabase):
                self.charsets.pop(change.database, None)
            for name, one in self._concerned(change):
                noted.add(name)
                self._change(here, name, one)
        for name in here.parsed.tables:
            if name not in noted and self._ours(name):
                self._note(here, name, self.at(name), IGNORED, "")

    def _ours(self, name: TableName) -> bool:
        return self.rules.followed(name) or name in self.current

    def _concerned(self, change: statements.Change) -> list[tuple[TableName, statements.Change]]:
        if isinstance(change, statements.DropDatabase):
            known = (*self.current, *self.lifeless, *self.missing, *self.asked)
            return [
                (name, statements.DropTable(name)) for name in dict.fromkeys(known) if name.database == change.database
            ]
        assert not isinstance(change, statements.RenameTables)  # they are done together
        return [(change.name, change)] if self._ours(change.name) else []

    def _opaque(self, here: _At) -> None:
        """Rows that changed without row events, or a statement nobody can read."""
        why = "a statement that can't be parsed may concern this table"
        if here.parsed.kind == "DML":
            why = "a statement changed rows without row events (binlog_format isn't ROW in that session)"
        # Of the names in a statement that nobody can read most are no table's.
        told = here.parsed.tables if here.parsed.kind == "DML" else ()
        others = tuple(self.current) if here.parsed.may_concern_any else ()
        for name in dict.fromkeys((*told, *others)):
            if self._ours(name):
                self._change(here, name, statements.Unfollowed(name, why))

    def _change(self, here: _At, name: TableName, change: statements.Change) -> None:
        table = self.at(name)
        if table is not None and here.order < table.life.low.order:
            self._note(here, name, table, APART, "before the snapshot")
            return
        before = self._shape(table)
        action, reason = self._follow(here, name, change, table)
        after_table = self.at(name)
        if action == FOLLOWED:
            after = after_table.life.schema if after_table else None
        else:
            after = before if action == IGNORED else self._beside(here, table, change, before)
        self._note(here, name, after_table or table, action, reason, (before, after))

    def _shape(self, table: TableSteps | None) -> TableSchema | None:
        """At the server; None where it isn't known."""
        if table is None or table.life.status == "following":
            return table.life.schema if table else None
        return self.apart.get(table.life.id, table.life.schema)

    def _beside(
        self, here: _At, table: TableSteps | None, change: statements.Change, before: TableSchema | None
    ) -> TableSchema | None:
        """The server's shape after a statement that the lake's table doesn't follow."""
        if table is None:
            return None
        after = None
        if before is not None and isinstance(change, statements.AlterTable):
            with suppress(UnfollowedStatement, SchemaMismatch, ConfigurationError):
                evolved = statements.evolve(before, change, flavour=self.flavour).after
                after = self.rules.excluding(table.life.name, self._as_logged(here, evolved))
        elif (
            isinstance(change, statements.TruncateTable | statements.NoShapeChange | statements.RowsChanged)
            or here.parsed.kind == "DML"
        ):
            after = before
        self.apart[table.life.id] = after
        return after

    def _follow(
        self, here: _At, name: TableName, change: statements.Change, table: TableSteps | None
    ) -> tuple[str, str]:
        """Do what one change means for one table; gives the action and its reason."""
        if isinstance(change, statements.CreateTable | statements.CreateLike):
            return self._create(here, name, change, table)
        if isinstance(change, statements.DropTable):
            self._forget(name)
        if (
            table is None
            and here.parsed.kind in ("CREATE TABLE", "CREATE SEQUENCE")
            and isinstance(change, statements.Unfollowed)
        ):
            return self._ask_name(name, f"{here.position.short}: {change.why}")
        if table is None:
            return APART, "this table isn't mirrored"
        if isinstance(change, statements.DropTable):
            self._end(table, f"dropped at {here.position.short}")
            return FOLLOWED, ""
        if table.life.status != "following":
            return APART, f"this table is {table.life.status}"
        if isinstance(change, statements.TruncateTable):
            return self._truncate(here, table)
        if isinstance(change, statements.AlterTable):
            return self._alter(here, table, change)
        if isinstance(change, statements.NoShapeChange):
            return FOLLOWED, change.why
        assert isinstance(change, statements.RowsChanged | statements.Unfollowed)
        if table.empty and isinstance(change, statements.RowsChanged):
            return FOLLOWED, "the table is empty"
        return self._asked(table, here.standstill(change.why))

    def _asked(self, table: TableSteps, standstill: Standstill) -> tuple[str, str]:
        return self.ask(table, standstill), standstill.reason

    def _stopped(self, table: TableSteps, standstill: Standstill) -> tuple[str, str]:
        self.stop_table(table, standstill)
        return STOPPED, standstill.reason

    def _forget(self, name: TableName) -> None:
        """No table without a life has this name any more."""
        self.missing.discard(name)
        self.asked.pop(name, None)
        if name in self.lifeless:
            self.lifeless.discard(name)
            self.gone.add(name)

    def _end(self, table: TableSteps, reason: str) -> None:
        if self.current.get(table.life.name) == table.life.id:
            del self.current[table.life.name]
        table.life = replace(table.life, status="dropped", standstill=Standstill(reason))

    def _truncate(self, here: _At, table: TableSteps) -> tuple[str, str]:
        if self.rules.policy(table.life.name).on_truncate == "stop":
            why = "TRUNCATE, at which this table is to stop (on_truncate: stop)"
            return self._stopped(table, here.standstill(why, snapshot_again(table.life.name)))
        table.add(TruncateStep(), self.turn)
        table.empty = True
        return FOLLOWED, ""

    def _alter(self, here: _At, table: TableSteps, change: statements.AlterTable) -> tuple[str, str]:
        before = table.life.schema
        try:
            evolution = statements.evolve(before, change, flavour=self.flavour)
            after = self.rules.excluding(table.life.name, self._as_logged(here, evolution.after))
        except (UnfollowedStatement, SchemaMismatch, ConfigurationError) as error:
            return self._asked(table, here.standstill(error.message))
        if why := self.rules.refused_for_untold(table.life.name, after):
            return self._stopped(table, here.standstill(why, UNTOLD_REMEDY))
        if why := named_twice(after, self.rules.invalid):
            return self._stopped(table, here.standstill(why, TWICE_REMEDY))
        kept_origins = tuple(column.name for column in before.kept)
        if self.rules.policy(table.life.name).on_drop_column == "keep" and not table.empty:
            after, kept_origins = keeping(before, after, evolution.origins)
        table.life = replace(table.life, schema=after)
        if table.empty:
            table.add(CreateStep(after), self.turn)
            return FOLLOWED, _left_out(before, after)
        unprovable = evolution.unprovable + (() if self.rules.invalid.dates == "keep_text" else evolution.impossible)
        unprovable += evolution.reencoded if self.rules.invalid.text == "keep_bytes" else ()
        if unprovable:
            return self._asked(table, here.standstill("; ".join(unprovable)))
        fills = tuple((column, text) for column, text in evolution.fills if column in after.mirrored)
        if fills or _reshapes(before, after, evolution.origins):
            table.add(ReshapeStep(before, after, evolution.origins, kept_origins, fills), self.turn)
        return FOLLOWED, _left_out(before, after)

    def _as_logged(self, here: _At, schema: TableSchema) -> TableSchema:
        return as_logged(schema) if here.statement.session.unlogged else schema

    def _create(
        self,
        here: _At,
        name: TableName,
        change: statements.CreateTable | statements.CreateLike,
        table: TableSteps | None,
    ) -> tuple[str, str]:
        existed = change.if_not_exists and not here.statement.has_xid
        # MariaDB doesn't log it where the table was there.
        if existed and table is None and self.flavour == "mysql" and self.rules.included(name):
            why = "CREATE TABLE IF NOT EXISTS doesn't tell whether it made the table"
            return self._ask_name(name, f"{here.position.short}: {why}")
        if table is not None:
            if existed:
                return IGNORED, "the table existed"
            # CREATE OR REPLACE logs no DROP; anything else means that a DROP wasn't logged
            self._end(table, f"replaced at {here.position.short}")
        if not self.rules.followed(name):
            return IGNORED, "not included"
        if isinstance(change, statements.CreateLike):
            like = self.at(change.like)
            if like is None or like.life.status != "following" or here.order < like.life.low.order:
                return self._ask_name(name, f"{here.position.short}: the columns of {change.like} aren't known here")
            if like.life.schema.sequence:
                return self._ask_name(name, f"{here.position.short}: the first row of a sequence isn't logged")
            schema = replace(like.life.schema, kept=())
        else:
            schema = change.schema
        try:
            schema = self.rules.excluding(name, self._as_logged(here, schema))
        except ConfigurationError as error:
            self.missing.add(name)
            return STOPPED, error.message
        if why := self.rules.refused_for_untold(name, schema) or named_twice(schema, self.rules.invalid):
            self.missing.add(name)
            return STOPPED, f"{here.position.short}: {why}"
        life = Life(table_id(self.source, name, here.position), name, schema, here.position, here.position)
        created = self.tables[life.id] = TableSteps(life, empty=True)
        created.add(CreateStep(schema), self.turn)
        self.current[name] = life.id
        self._forget(name)
        return FOLLOWED, _left_out(None, schema)

    def _ask_name(self, name: TableName, reason: str) -> tuple[str, str]:
        """A snapshot of a table of which nothing is known here."""
        if not self.rules.included(name):
            return IGNORED, reason
        wanted = self.rules.policy(name).on_unfollowable == "resnapshot" and self.rules.can_snapshot
        if not wanted:
            self.missing.add(name)
            return STOPPED, reason
        self.asked[name] = reason
        self.missing.discard(name)
        return ASKED, reason

    # names -----------------------------------------------------------------------------------------------------------
    def _rename(self, here: _At, change: statements.RenameTables) -> set[TableName]:
        """All pairs of a statement at once, so that swaps and chains come out right; gives the names noted."""
        later = {
            name for name, life in self.current.items() if self.tables[life].life.low.order > here.order
        }  # snapshotted after the statement, under the names they have
        outcome = renames.outcome(
            change.pairs, {name: life for name, life in self.current.items() if name not in later}
        )
        noted: set[TableName] = set()
        for life_id, old, _ in outcome.moved:
            if self.current.get(old) == life_id:
                del self.current[old]
        for life_id, old, new in outcome.moved:
            noted |= {old, new}
            self._move(here, self.tables[life_id], old, new, stays=old in outcome.taken, superseded=new in later)
        for old, _ in outcome.unknown:
            self._forget(old)
        for old, new in outcome.unknown:
            if self.rules.included(new) and new not in self.current:
                noted.add(new)
                action, reason = self._ask_name(new, f"{here.position.short}: renamed from {old}, which isn't mirrored")
                self._note(here, new, None, action, reason)
        return noted

    def _move(
        self, here: _At, table: TableSteps, old: TableName, new: TableName, *, stays: bool, superseded: bool
    ) -> None:
        """One table gets its new name. stays: another table has the old name now."""
        schema = self._shape(table)
        if superseded or not self.rules.followed(new):
            self._end(table, f"renamed to {new} at {here.position.short}" + ("" if superseded else ", not included"))
            self._note(here, old, table, FOLLOWED, table.life.reason, (schema, None))
            return
        self._forget(new)
        if (stale := self.at(new)) is not None:  # its DROP wasn't logged
            self._end(stale, f"replaced at {here.position.short}")
        table.life = replace(table.life, name=new)
        self.current[new] = table.life.id
        action, reason = FOLLOWED, f"renamed from {old}"
        if table.life.status == "following":
            table.add(MoveStep(old, new), self.turn)
            if not stays:
                table.add(LeaveStep(old, new), self.turn)
            action, reason = self._read_as(here, table, reason)
        elif self.rules.included(new):
            stood = table.life.status
            table.life = replace(table.life, status="following", standstill=None)
            action = self.ask(table, here.standstill(f"renamed from {old}, which was {stood}"))
        self._note(here, new, table, action, reason, (schema, schema))

    def _read_as(self, here: _At, table: TableSteps, reason: str) -> tuple[str, str]:
        """Under its new name other columns of a table may be excluded."""
        try:
            why = self.rules.reads_otherwise(table.life.name, table.life.schema)
        except ConfigurationError as error:
            why = error.message
        return self._asked(table, here.standstill(why)) if why else (FOLLOWED, reason)

    def _note(
        self,
        here: _At,
        name: TableName,
        table: TableSteps | None,
        action: str,
        reason: str,
        shapes: tuple[TableSchema | None, TableSchema | None] = (None, None),
    ) -> None:
        """shapes: before and after it."""
        statement = here.statement
        before, after = shapes
        self.history.append(
            {
                "batch": here.batch,
                "file": statement.file,
                "offset": statement.offset,
                "position": str(here.position),
                "gtid": statement.gtid,
                "committed_us": statement.committed_us,
                "database": name.database,
                "default_database": statement.database,
                "sql_mode": statement.sql_mode,
                "statement": _told(here),
                "kind": here.parsed.kind,
                "table": name.table,
                "table_id": table.life.id if table else None,
                "action": action,
                "reason": reason or None,
                "before": dumps(before) if before else None,
                "after": dumps(after) if after else None,
            }
        )


def _told(here: _At) -> str:
    """The statement as written; of one that changes rows no more than its verb, because it holds their values."""
    if here.parsed.kind != "DML":
        return here.statement.text
    verb = re.match(r"[A-Za-z]+", here.statement.text)
    return f"{verb[0].upper() if verb else 'DML'} …"


def _reshapes(before: TableSchema, after: TableSchema, origins: Sequence[str | None]) -> bool:
    """Whether the lake's table looks another way: names, order or types, not lengths and defaults."""

    def looks(schema: TableSchema) -> list[tuple[str, str, int]]:
        return [(column.name, datatypes.delta_type(column), column.fraction) for column in schema.mirrored]

    moved = any(column.name != origin for column, origin in zip(after.columns, origins, strict=True))
    return moved or looks(before) != looks(after)


def _left_out(before: TableSchema | None, after: TableSchema) -> str:
    """What is told of columns that the lake goes without from here on."""
    known = before.untold if before else ()
    return "; ".join(why for column, why in judged(after).untold.items() if column not in known)
