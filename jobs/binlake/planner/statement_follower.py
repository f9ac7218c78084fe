"""The log's statements, applied to the lake's tables: DDL is followed, the DDL history is written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from binlake.binlog.border import Statement
from binlake.ddl import statements
from binlake.ddl.evolve import with_comments
from binlake.ddl.temporary import TemporaryTables
from binlake.errors import ConfigurationError, SchemaMismatch, UnfollowedStatement, snapshot_again, unexpected
from binlake.planner import held_changes, tool_tables
from binlake.planner.batch_history import BatchHistory
from binlake.planner.manifest import GhostSpan
from binlake.planner.noted_statements import BEFORE_SNAPSHOT, FOLLOWED, IGNORED, NOT_APPLIED, STOPPED
from binlake.planner.shape_changes import (
    PlacedStatement,
    has_another_key,
    in_lake,
    keeping,
    no_fit_of,
    refused_change,
    reshapes,
    why_left_out,
    why_other_rows,
    why_other_type,
)
from binlake.planner.steps import (
    CreateStep,
    LeaveStep,
    Life,
    MoveStep,
    ReshapeStep,
    Standstill,
    TableSteps,
    TruncateStep,
)
from binlake.planner.tool_tables import copied_by
from binlake.planner.walk import BatchInputs, Walk
from binlake.position import Position
from binlake.schema.lake_columns import TWICE_REMEDY, named_twice
from binlake.schema.lake_forms import server_shape
from binlake.schema.masked_shapes import UNCOVERED_REMEDY, uncovered, unmaskable
from binlake.schema.table import TableName, TableSchema, table_id
from binlake.schema.virtual import UNLOGGED_COLUMN_REMEDY


class StatementFollower:
    """Follower of a batch's statements, which applies them to the tables of a walk in the order of the log.

    charsets: the databases' default character sets at this point of the log. ghosts: where rows of ghost tables were
    read; None if the staging doesn't say. history: the DDL history of the batch.
    """

    def __init__(
        self, batch: int, walk: Walk, inputs: BatchInputs, ghosts: Collection[GhostSpan] | None = None
    ) -> None:
        self.history = BatchHistory(batch, walk, inputs)
        self.ghosts = ghosts
        self.walk = walk
        self.source = inputs.source
        self.rules = inputs.rules
        self.stop = inputs.range.stop
        self.flavour = self.stop.flavour
        self.charsets = dict(inputs.charsets)
        self.lower_case_names = inputs.lower_case_names
        self.temporary = TemporaryTables(self.flavour)

    def follow(self, statement: Statement, created: int) -> None:
        """Apply a statement. created: timestamp of the format description event of its binlog file."""
        self.walk.turn += 1
        parsed = statements.parse(
            statement.text,
            database=statement.database,
            sql_mode=statement.sql_mode,
            flavour=self.flavour,
            charsets=self.charsets,
            lower_case_names=self.lower_case_names,
            session=statement.session,
            concerns=lambda name: self._concerns(name) or self.rules.ghost(name),
        )
        if statement.error:
            parsed = parsed.failed()
        # MySQL's statements on temporary tables have no XID, but for CREATE TABLE LIKE one.
        needs_session = statement.needs_session and (not statement.has_xid or parsed.kind == "CREATE TABLE")
        parsed = self.temporary.hidden(parsed, statement.thread, needs_session=needs_session)
        where = Position(self.stop.server, statement.file, statement.offset, created)
        here = self._without_missing(PlacedStatement(where, statement, parsed))
        parsed = here.parsed
        self.walk.beside.statement(parsed, statement, self.walk.current, self.walk.turn)
        if parsed.kind == "DML" or parsed.may_concern_any:
            self._follow_opaque(here)
        else:
            self._follow_changes(here)
        if parsed.is_cut:
            self._follow_cut(here)
        if parsed.database_charset is not None:
            self._note_charset(parsed.database_charset, statement.server_charset)
        self.walk.turn += 1

    def _note_charset(self, declared: statements.DatabaseCharset, server_charset: str) -> None:
        if not (declared.if_not_exists and declared.database in self.charsets):
            self.charsets[declared.database] = declared.charset or server_charset

    def _without_missing(self, here: PlacedStatement) -> PlacedStatement:
        """Return the statement without what RENAME TABLE IF EXISTS says of tables that weren't there."""
        match here.parsed.changes:
            case (statements.RenameTables(pairs, True),):
                done = statements.RenameTables(tool_tables.done(pairs, self._there(here)))
                return replace(here, parsed=replace(here.parsed, changes=(done,)))
        return here

    def _there(self, here: PlacedStatement) -> dict[TableName, str]:
        """Return the ids of lives by the names that they have before a statement, without those that were snapshotted
        behind it, under names that they got since."""
        return {
            name: life_id
            for name, life_id in self.walk.current.items()
            if self.walk.tables[life_id].life.low.order <= here.order
        }

    def _follow_changes(self, here: PlacedStatement) -> None:
        noted: set[TableName] = set()
        for change in here.parsed.changes:
            if isinstance(change, statements.RenameTables):
                noted |= self._rename_all(here, change)
                continue
            if isinstance(change, statements.DropDatabase):
                self.charsets.pop(change.database, None)
            for name, table_change in self._by_table(here, change):
                noted.add(name)
                self._change(here, name, table_change)
        for name in here.parsed.tables:
            if name not in noted and self._concerns(name):
                self.history.note(here, name, self.walk.at(name), IGNORED, "")

    def _concerns(self, name: TableName) -> bool:
        return self.rules.included(name) or name in self.walk.current

    def _makes_ghost(self, here: PlacedStatement, change: statements.Change) -> bool:
        """Return whether a statement makes a ghost table, whose rows are followed from there."""
        if not isinstance(change, statements.CreateTable | statements.CreateLike) or not self.rules.ghost(change.name):
            return False
        if self.ghosts is not None:
            return any(span.name == change.name and span.begin == here.order for span in self.ghosts)
        return copied_by(change, lambda name: table.life.schema if (table := self.walk.at(name)) else None) is not None

    def _by_table(self, here: PlacedStatement, change: statements.Change) -> list[tuple[TableName, statements.Change]]:
        """Return the change for each table that it concerns: DROP DATABASE drops every table known of it."""
        if isinstance(change, statements.DropDatabase):
            known = (*self.walk.current, *self.walk.unsnapshotted, *self.walk.missing, *self.walk.asked)
            return [
                (name, statements.DropTable(name)) for name in dict.fromkeys(known) if name.database == change.database
            ]
        assert not isinstance(change, statements.RenameTables)  # followed together, by _rename
        concerned = self._concerns(change.name) or self._makes_ghost(here, change)
        return [(change.name, change)] if concerned else []

    def _follow_opaque(self, here: PlacedStatement) -> None:
        """Follow DML in statement format, or a statement that can't be parsed: its effects on rows are unknown."""
        why = "a statement that can't be parsed may concern this table"
        if here.parsed.kind == "DML":
            why = "a statement changed rows without row events (binlog_format isn't ROW in that session)"
        # Most names in a statement that can't be parsed are no table's.
        named = here.parsed.tables if here.parsed.kind == "DML" else ()
        others = tuple(self.walk.current) if here.parsed.may_concern_any else ()
        for name in dict.fromkeys((*named, *others)):
            if self._concerns(name):
                self._change(here, name, statements.Unfollowed(name, why))

    def _follow_cut(self, here: PlacedStatement) -> None:
        """Follow the part of a statement that wasn't read: it may concern every table that the text names."""
        why = "a statement that is too long to be read may concern this table"
        for name in statements.named_in(here.statement.text, self.walk.current):
            if name not in here.parsed.tables:
                self._change(here, name, statements.Unfollowed(name, why))

    def _change(self, here: PlacedStatement, name: TableName, change: statements.Change) -> None:
        table = self.walk.at(name)
        if table is not None and here.order < table.life.low.order:
            self.history.note(here, name, table, NOT_APPLIED, BEFORE_SNAPSHOT)
            return
        try:
            with self.walk.undone_on_error(table):
                self._apply(here, name, change, table)
        except Exception as error:  # costs this table alone
            self._give_up(here, name, error)

    def _give_up(self, here: PlacedStatement, name: TableName, error: Exception) -> None:
        """Ask for a new snapshot of a table, or stop it, after an unexpected error in what a statement does to it."""
        table, why = self.walk.at(name), f"this statement can't be followed: {unexpected(error)}"
        if table is None:
            action, reason = self.walk.ask_first_snapshot(name, f"{here.position.short}: {why}")
        elif table.life.status == "following":
            action, reason = self._ask_snapshot(table, here.standstill(why))
        else:
            action, reason = NOT_APPLIED, why
        self.history.note(here, name, table, action, reason)

    def _apply(
        self, here: PlacedStatement, name: TableName, change: statements.Change, table: TableSteps | None
    ) -> None:
        before = self.history.server_shape(table)
        action, reason = self._follow(here, name, change, table)
        after_table = self.walk.at(name)
        if action == FOLLOWED:
            after = after_table.life.schema if after_table else None
        else:
            after = before if action == IGNORED else self.history.shape_after(here, table, change, before)
        self.history.note(here, name, after_table or table, action, reason, (before, after))

    def _follow(
        self, here: PlacedStatement, name: TableName, change: statements.Change, table: TableSteps | None
    ) -> tuple[str, str]:
        """Apply a change to a table. Returns the action and its reason."""
        if isinstance(change, statements.CreateTable | statements.CreateLike):
            return self._create(here, name, change, table)
        if isinstance(change, statements.DropTable):
            self.walk.forget_name(name)
        if (
            table is None
            and here.parsed.kind in ("CREATE TABLE", "CREATE SEQUENCE")
            and isinstance(change, statements.Unfollowed)
        ):
            return self.walk.ask_first_snapshot(name, f"{here.position.short}: {change.why}")
        if table is None:
            return NOT_APPLIED, "this table isn't mirrored"
        if isinstance(change, statements.DropTable):
            self.walk.end(table, f"dropped at {here.position.short}")
            return FOLLOWED, ""
        if table.life.status != "following":
            return NOT_APPLIED, f"this table is {table.life.status}"
        if isinstance(change, statements.TruncateTable):
            return self._truncate(here, table)
        if isinstance(change, statements.AlterTable):
            return self._alter(here, table, change)
        if isinstance(change, statements.NoShapeChange):
            return FOLLOWED, change.why
        assert isinstance(change, statements.RowsChanged | statements.Unfollowed)
        if table.empty and isinstance(change, statements.RowsChanged) and not change.come:
            return FOLLOWED, "the table is empty"
        return self._ask_snapshot(table, here.standstill(change.why))

    def _ask_snapshot(self, table: TableSteps, standstill: Standstill) -> tuple[str, str]:
        return self.walk.ask_snapshot(table, standstill), standstill.reason

    def _stop(self, table: TableSteps, standstill: Standstill) -> tuple[str, str]:
        self.walk.stop_table(table, standstill)
        return STOPPED, standstill.reason

    def _truncate(self, here: PlacedStatement, table: TableSteps) -> tuple[str, str]:
        if self.rules.policy(table.life.name).on_truncate == "stop":
            why = "TRUNCATE, at which this table is to stop (on_truncate: stop)"
            return self._stop(table, here.standstill(why, snapshot_again(table.life.name)))
        keeps_rows = table.life.schema.soft_delete
        table.add(TruncateStep(here.statement.committed_us if keeps_rows else None, here.order), self.walk.turn)
        table.empty = not keeps_rows
        return FOLLOWED, ""

    def _alter(self, here: PlacedStatement, table: TableSteps, change: statements.AlterTable) -> tuple[str, str]:
        before = table.life.schema
        if change.describes:
            table.life = replace(table.life, schema=with_comments(before, change.alterations))
            return FOLLOWED, "COMMENT"
        served = server_shape(before)
        try:
            evolution = statements.evolve(served.unmasked, change, flavour=self.flavour)
            after = self.rules.excluding(table.life.name, here.as_logged(evolution.after))
        except (UnfollowedStatement, SchemaMismatch) as error:
            return self._ask_snapshot(table, here.standstill(error.message))
        except ConfigurationError as error:  # a snapshot would meet it again
            remedy = f"{error.remedy}; then {snapshot_again(table.life.name)}"
            return self._stop(table, here.standstill(error.message, remedy))
        other_rows = why_other_rows(served, evolution)
        refused = refused_change(table.life.name, served, evolution, self.rules.withheld(table.life.name))
        evolution = in_lake(evolution, before, after)
        if refused := refused or no_fit_of(evolution, table.life.name):
            return self._stop(table, here.standstill(refused.reason, refused.remedy))
        other_rows = other_rows or why_other_type(before, evolution)
        renamed = zip(evolution.origins, evolution.after.columns, strict=True)
        pairs = ((old, column.name) for old, column in renamed if old not in (None, column.name))
        self.walk.beside.renamed(table.life.name, pairs, self.walk.turn)
        ruling = held_changes.ruling(self.walk, here, table, after, evolution.origins)
        if ruling.stops:
            return ruling.stops
        if why := self.rules.refusal(table.life.name, after):
            return self._stop(table, here.standstill(why, UNLOGGED_COLUMN_REMEDY))
        if why := named_twice(after, self.rules.invalid):
            return self._stop(table, here.standstill(why, TWICE_REMEDY))
        more = self.rules.policy(table.life.name).on_drop_column == "keep" or ruling.keeps_dropped
        more = more and not table.may_be_created_again
        after, kept_origins = keeping(before, after, evolution.origins, self.rules.invalid, more=more)
        if refused := self.rules.refused_mode(table.life.name, after):
            return self._stop(table, here.standstill(refused.reason, refused.remedy))
        never_had_rows = table.may_be_created_again and not self.walk.left_out_before(table, here.order)
        if not never_had_rows and other_rows:
            return self._ask_snapshot(table, here.standstill(other_rows))
        table.life = replace(table.life, schema=after)
        if table.may_be_created_again:
            table.add(CreateStep(after), self.walk.turn)
            self.walk.beside.altered(table.life, None, self.walk.turn)
            return FOLLOWED, why_left_out(before, after)
        unprovable = evolution.unprovable + (() if self.rules.invalid.dates == "keep_text" else evolution.impossible)
        unprovable += evolution.reencoded if self.rules.invalid.text == "keep_bytes" else ()
        filled = [column.name for column, _ in evolution.fills]
        unprovable += unmaskable(before, after, evolution.origins, filled, evolution.altered.retyped)
        if after.soft_delete and has_another_key(before, after, evolution.origins):
            unprovable += ("its key changed, and deleted rows stay",)
        if unprovable:
            return self._ask_snapshot(table, here.standstill("; ".join(unprovable)))
        fills = tuple((column, text) for column, text in evolution.fills if column in after.mirrored)
        reshape = None
        if fills or reshapes(before, after, evolution.origins, self.rules.invalid):
            reshape = ReshapeStep(before, after, evolution.origins, kept_origins, fills)
            table.add(reshape, self.walk.turn)
        self.walk.beside.altered(table.life, reshape, self.walk.turn)
        return FOLLOWED, why_left_out(before, after)

    def _create(
        self,
        here: PlacedStatement,
        name: TableName,
        change: statements.CreateTable | statements.CreateLike,
        table: TableSteps | None,
    ) -> tuple[str, str]:
        existed = change.if_not_exists and not here.statement.has_xid
        # MariaDB doesn't log it where the table was there.
        if existed and table is None and self.flavour == "mysql" and self.rules.included(name):
            why = "CREATE TABLE IF NOT EXISTS doesn't say whether it made the table"
            return self.walk.ask_first_snapshot(name, f"{here.position.short}: {why}")
        if table is not None:
            if existed:
                return IGNORED, "the table existed"
            # CREATE OR REPLACE logs no DROP; anything else means that a DROP wasn't logged
            self.walk.end(table, f"replaced at {here.position.short}")
        if not self.rules.included(name) and not self._makes_ghost(here, change):
            return IGNORED, "not included"
        if why := self.rules.taken_by(name):
            self.walk.missing.add(name)
            return STOPPED, f"{here.position.short}: {why}"
        if isinstance(change, statements.CreateLike):
            like = self.walk.at(change.like)
            if like is None or like.life.status != "following" or here.order < like.life.low.order:
                return self.walk.ask_first_snapshot(
                    name, f"{here.position.short}: the columns of {change.like} aren't known here"
                )
            if like.life.schema.sequence:
                return self.walk.ask_first_snapshot(
                    name, f"{here.position.short}: the first row of a sequence isn't logged"
                )
            schema = replace(like.life.schema, kept=())
        else:
            schema = change.schema
        try:
            schema = self.rules.excluding(name, here.as_logged(schema))
        except ConfigurationError as error:
            self.walk.missing.add(name)
            return STOPPED, error.message
        if why := self._refusal(name, schema):
            self.walk.missing.add(name)
            return STOPPED, f"{here.position.short}: {why}"
        life = Life(table_id(self.source, name, here.position), name, schema, here.position, here.position)
        created = self.walk.tables[life.id] = TableSteps(life, empty=True)
        created.add(CreateStep(schema), self.walk.turn)
        self.walk.beside.created(life, here.statement, self.walk.turn)
        self.walk.current[name] = life.id
        self.walk.forget_name(name)
        return FOLLOWED, why_left_out(None, schema)

    def _refusal(self, name: TableName, schema: TableSchema) -> str:
        """Return why a new table can't be mirrored as the YAML asks; empty where it can."""
        rules = self.rules
        mode = rules.refused_mode(name, schema)
        return rules.refusal(name, schema) or named_twice(schema, rules.invalid) or (mode.reason if mode else "")

    def _rename_all(self, here: PlacedStatement, change: statements.RenameTables) -> set[TableName]:
        try:
            return self._rename(here, change)
        except Exception as error:  # costs the renamed tables alone
            names = {name for pair in change.pairs for name in pair if self._concerns(name)}
            for name in sorted(names):
                self._give_up(here, name, error)
            return names

    def _rename(self, here: PlacedStatement, change: statements.RenameTables) -> set[TableName]:
        """Apply all pairs of a statement at once, so that swaps and chains come out right. Returns the names noted."""
        there = self._there(here)
        later = self.walk.current.keys() - there.keys()
        outcome = tool_tables.outcome(change.pairs, there)
        outcome, noted = self._without_held(here, outcome, there)
        moved = {life_id for life_id, _, _ in outcome.moved}
        for life_id, old, _ in outcome.moved:
            if self.walk.current.get(old) == life_id:
                del self.walk.current[old]
        for life_id, old, new in outcome.moved:
            noted |= {old, new}
            replaced = self.walk.tables[there[new]].life.schema if there.get(new) in moved else None
            stays, superseded = old in outcome.taken, new in later
            self._move(here, self.walk.tables[life_id], old, new, stays=stays, superseded=superseded, replaced=replaced)
        for old, _ in outcome.unknown:
            self.walk.forget_name(old)
        for old, new in outcome.unknown:
            if new not in later and (stale := self.walk.at(new)) is not None:  # its DROP wasn't logged
                self.walk.end(stale, f"replaced at {here.position.short}")
            if self.rules.included(new) and new not in self.walk.current:
                noted.add(new)
                action, reason = self.walk.ask_first_snapshot(
                    new, f"{here.position.short}: renamed from {old}, which isn't mirrored"
                )
                self.history.note(here, new, None, action, reason)
        return noted

    def _without_held(
        self, here: PlacedStatement, outcome: tool_tables.RenameOutcome, there: Mapping[TableName, str]
    ) -> tuple[tool_tables.RenameOutcome, set[TableName]]:
        """Return what is left of a RENAME TABLE without the swaps that the YAML holds back, and the names noted."""
        noted: set[TableName] = set()
        for swap in held_changes.hold_swaps(self.walk, here, outcome, there):
            outcome = outcome.without(swap.lives, swap.old)
            life = swap.table.life
            after = swap.copy.life.schema if swap.copy else None
            self.history.note(here, life.name, swap.table, *swap.done, (self.history.server_shape(swap.table), after))
            self.history.server_shapes[life.id] = after
            noted |= {swap.old, life.name}
        return outcome, noted

    def _move(
        self,
        here: PlacedStatement,
        table: TableSteps,
        old: TableName,
        new: TableName,
        *,
        stays: bool,
        superseded: bool,
        replaced: TableSchema | None,
    ) -> None:
        """Give a table its new name.

        stays: another table took the old name. superseded: a table with the new name was snapshotted after the
        statement. replaced: shape of the table that had the new name, and has another one since.
        """
        schema = self.history.server_shape(table)
        taken = self.rules.taken_by(new)
        if superseded or taken or not self.rules.included(new):
            why = "" if superseded else f": {taken}" if taken else ", not included"
            self.walk.end(table, f"renamed to {new} at {here.position.short}{why}")
            self.history.note(here, old, table, FOLLOWED, table.life.reason, (schema, None))
            return
        self.walk.forget_name(new)
        if (stale := self.walk.at(new)) is not None:  # its DROP wasn't logged
            self.walk.end(stale, f"replaced at {here.position.short}")
        table.life = replace(table.life, name=new)
        self.walk.current[new] = table.life.id
        action, reason = FOLLOWED, f"renamed from {old}"
        shown = self._shown_under_new_name(here, table, old, replaced)
        if table.life.status == "following" and self.rules.lacks_deleted_rows(old, table.life.schema, new, replaced):
            if not stays:
                table.add(LeaveStep(old, new), self.walk.turn)
            self.walk.beside.copied_again(new, here.order, self.walk.turn)
            why = f"{old} took its place, which doesn't have the deleted rows that stay"
            action, reason = self._stop(table, shown) if shown else self._ask_snapshot(table, here.standstill(why))
        elif table.life.status == "following":
            table.add(MoveStep(old, new), self.walk.turn)
            if not stays:
                table.add(LeaveStep(old, new), self.walk.turn)
            self.walk.beside.moved(table.life, self.walk.turn)
            action, reason = self._stop(table, shown) if shown else self._read_under_new_name(here, table, reason)
        else:
            status, held = table.life.status, None
            if status == "stopped":
                held = held_changes.renamed(here, self.rules.schema_changes(new), table.life, schema)
            table.life = replace(table.life, status="following", standstill=None)
            if standstill := shown or held:
                self.history.note(here, new, table, *self._stop(table, standstill), (schema, schema))
                return
            action = self.walk.ask_snapshot(table, here.standstill(f"renamed from {old}, which was {status}"))
        self.history.note(here, new, table, action, reason, (schema, schema))

    def _shown_under_new_name(
        self, here: PlacedStatement, table: TableSteps, old: TableName, replaced: TableSchema | None
    ) -> Standstill | None:
        """Return why a table stops that would show, under its new name, a column that was withheld; None where none
        would be. replaced: see ``_move``."""
        served, now = server_shape(table.life.schema), self.rules.withheld(table.life.name)
        withheld = self.rules.confidential(old).union(served.masks)
        if replaced is not None:
            withheld = tool_tables.withheld_of_copy(withheld, old, served, server_shape(replaced), now)
        why = uncovered(withheld, [column.name for column in served.columns], served, now)
        return here.standstill(why, UNCOVERED_REMEDY) if why else None

    def _read_under_new_name(self, here: PlacedStatement, table: TableSteps, reason: str) -> tuple[str, str]:
        """Ask for a new snapshot if the YAML excludes other columns of the table under its new name. Returns the action
        and its reason."""
        try:
            why = self.rules.reads_otherwise(table.life.name, table.life.schema)
        except ConfigurationError as error:
            why = error.message
        return self._ask_snapshot(table, here.standstill(why)) if why else (FOLLOWED, reason)
