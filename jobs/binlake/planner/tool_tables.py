"""Tables of online schema change tools, known by what they do in the log.

A tool makes a copy of a table, fills it, and gives it the table's name. The copy is followed as a ghost table from the
statement that makes it: it has the name of a copy of an included table, and was made LIKE it, or with its columns. A
table that was there before, or that was made otherwise, is none, whatever its name: its rows aren't read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from binlake.binlog.border import Statement
from binlake.config.schema_change_tools import copied_table, has_tools_name, hides_original
from binlake.ddl import statements
from binlake.planner.manifest import GhostSpan
from binlake.planner.noted_statements import NotedStatement
from binlake.position import Flavour, file_number
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import loads

Pair = tuple[TableName, TableName]

_OWN_LOGS = {
    "_ghc": {"id", "last_update", "hint", "value"},  # gh-ost's changelog
    "_chkpnt": {"id", "binlog_name", "binlog_pos"},  # spirit's checkpoints, which also have columns by its version
}
ShapeOf = Callable[[TableName], TableSchema | None]
_MAY_CONCERN = re.compile(r"_(gho|new)\b|\blhmn_", re.IGNORECASE)


def copied_by(change: statements.CreateTable | statements.CreateLike, shape_of: ShapeOf) -> TableName | None:
    """Return the table of which a statement makes a copy: by the name, and by LIKE or the same columns; None where it
    makes none. shape_of: returns the shape of a table that is followed, None for others."""
    copied = copied_table(change.name.table)
    if copied is None:
        return None
    original = TableName(change.name.database, copied)
    if isinstance(change, statements.CreateLike):
        return original if change.like == original else None
    shape = shape_of(original)
    return original if shape is not None and _column_names(shape) == _column_names(change.schema) else None


def _column_names(schema: TableSchema) -> list[str]:
    return [column.name.lower() for column in schema.columns]


def spans_of(
    following: Collection[TableName],
    read: Iterable[Statement],
    may_be_ghost: Callable[[TableName], bool],
    shape_of: ShapeOf,
    *,
    flavour: Flavour,
    lower_case_names: bool,
) -> tuple[GhostSpan, ...]:
    """Return where in a batch's log ghost tables are followed.

    following: those that follow before the batch. read: its statements, in the order of the log. may_be_ghost: returns
    whether the YAML admits a name as that of a ghost table.
    """
    open_spans = {name: GhostSpan(name) for name in following}
    spans: list[GhostSpan] = []
    for statement in read:
        if not _MAY_CONCERN.search(statement.text):
            continue
        parsed = statements.parse(
            statement.text,
            database=statement.database,
            sql_mode=statement.sql_mode,
            flavour=flavour,
            lower_case_names=lower_case_names,
            session=statement.session,
            concerns=may_be_ghost,
        )
        place = file_number(statement.file), statement.offset
        fates = _fates(parsed.failed() if statement.error else parsed, statement, flavour, shape_of)
        if parsed.is_cut:  # the part that isn't read may give the name to any table
            named = statements.named_in(statement.text, open_spans)
            fates = [(name, False) for name in (*(name for name, _ in fates), *named)]
        for name, made in fates:
            if (ended := open_spans.pop(name, None)) is not None:
                spans.append(GhostSpan(name, ended.begin, place))
            if made and may_be_ghost(name):
                open_spans[name] = GhostSpan(name, place)
    return (*spans, *open_spans.values())


def _fates(
    parsed: statements.ParsedStatement, statement: Statement, flavour: Flavour, shape_of: ShapeOf
) -> Iterable[tuple[TableName, bool]]:
    """Yield the names whose table a statement may have ended, replaced or made, each with whether it made a copy."""
    for change in parsed.changes:
        match change:
            case statements.CreateTable() | statements.CreateLike() if change.name not in parsed.temporary:
                if flavour == "mariadb" or statement.has_xid or not change.if_not_exists:  # else it may have been there
                    yield change.name, copied_by(change, shape_of) is not None
            case statements.DropTable(name) if name not in parsed.temporary:
                yield name, False
            case statements.RenameTables(pairs):
                yield from ((name, False) for pair in pairs for name in pair)
            case statements.Unfollowed(name):
                yield name, False


def was_tools(name: TableName, life: str | None, rows: Sequence[NotedStatement], flavour: Flavour) -> bool:
    """Return whether a dropped table was a schema change tool's. life: its id. rows: of the DDL history, all of each
    statement that concerned it."""
    if life is None or not has_tools_name(name.table):
        return False
    own = (row for row in rows if row.table_id == life)
    return any(_made_by_tool(row, flavour) or _gave_its_place(row, rows, flavour) for row in own)


def _made_by_tool(row: NotedStatement, flavour: Flavour) -> bool:
    """Return whether a statement made gh-ost's copy of a table, or a tool's own log."""
    if row.kind != "CREATE TABLE" or not row.after:
        return False
    for ending, columns in _OWN_LOGS.items():
        if row.table.endswith(ending):
            return columns <= set(_column_names(loads(TableSchema, row.after)))
    likes = [change for change in _changes(row, flavour) if isinstance(change, statements.CreateLike)]
    return row.table.endswith("_gho") and any(copied_by(change, lambda name: None) for change in likes)


def _gave_its_place(row: NotedStatement, rows: Iterable[NotedStatement], flavour: Flavour) -> bool:
    """Return whether a statement renamed a table, and gave its former name to another of its shape."""
    for change in _changes(row, flavour):
        if not isinstance(change, statements.RenameTables):
            continue
        named = names_before(change.pairs)
        former = named.get(row.name)
        for other in rows:
            if other.place == row.place and other.name == former and other.after and row.after:
                return is_alike(loads(TableSchema, other.after), loads(TableSchema, row.after))
    return False


def is_alike(copy: TableSchema, original: TableSchema) -> bool:
    """Return whether a table may be another's changed copy: it has at least half of its columns."""
    shared = set(_column_names(copy)) & set(_column_names(original))
    return 2 * len(shared) >= len(original.columns)


def withheld_of_copy(
    withheld: frozenset[str], old: TableName, copy: TableSchema, original: TableSchema, now: Collection[str]
) -> frozenset[str]:
    """Return the columns that a table's former name withheld, without those that the table showed whose place it takes.

    A tool's name that doesn't contain that of the changed table withholds what any table of the database does.
    old: the copy's former name. original: the table that had the copy's new name, and has another one since. now: the
    columns that the new name withholds, in lower case. Shapes have the server's names.
    """
    if not hides_original(old.table) or not is_alike(copy, original):
        return withheld
    shown = set(_column_names(original)) - original.excluded - original.masks.keys()
    return withheld - (shown - set(now))


def _changes(row: NotedStatement, flavour: Flavour) -> tuple[statements.Change, ...]:
    parsed = statements.parse(
        row.statement, database=row.default_database or "", sql_mode=row.sql_mode or 0, flavour=flavour
    )
    return parsed.changes


@dataclass(frozen=True)
class RenameOutcome:
    """Names after RENAME TABLE.

    moved: (life id, old name, new name) of lives with another name than before. unknown: (old, new) of tables that have
    no life here. taken: the names that tables of the statement have afterwards.
    """

    moved: tuple[tuple[str, TableName, TableName], ...]
    unknown: tuple[Pair, ...]
    taken: frozenset[TableName]

    def without(self, lives: Collection[str], old: TableName) -> RenameOutcome:
        """Return the outcome without what becomes of some lives, and of the table that had a name."""
        moved = tuple(move for move in self.moved if move[0] not in lives)
        unknown = tuple(pair for pair in self.unknown if pair[0] != old)
        return RenameOutcome(moved, unknown, self.taken)


def done(pairs: Sequence[Pair], there: Collection[TableName]) -> tuple[Pair, ...]:
    """Return the pairs of RENAME TABLE IF EXISTS without those that did nothing, as their first table wasn't there.

    there: names of tables before the statement, of which there may be more. A pair did nothing where its new name is
    one of these, and its old name isn't.
    """
    taken, renamed = set(there), []
    for old, new in pairs:
        if old in taken or new not in taken:
            taken.discard(old)
            taken.add(new)
            renamed.append((old, new))
    return tuple(renamed)


def names_before(pairs: Sequence[Pair]) -> dict[TableName, TableName]:
    """Return the names before the statement by those after it."""
    held: dict[TableName, TableName] = {}
    for old, new in pairs:
        held[new] = held.pop(old, old)
    return held


def outcome(pairs: Sequence[Pair], lives: Mapping[TableName, str]) -> RenameOutcome:
    """Apply the pairs one after the other, as the server does. lives: life id by name.

    A table that is renamed twice moves once, to its last name.
    """
    held = names_before(pairs)
    final = {new: old for new, old in held.items() if new != old}
    return RenameOutcome(
        tuple((lives[old], old, new) for new, old in final.items() if old in lives),
        tuple((old, new) for new, old in final.items() if old not in lives),
        frozenset(held),
    )
