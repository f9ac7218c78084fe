"""The tables that a source's mirror includes, and what doesn't come along."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue

from binlake import names
from binlake.config.schema_change_tools import changed_table, copied_table, hides_original
from binlake.config.section import Section, TablePattern
from binlake.config.shards import MergedTable
from binlake.config.table_modes import BesideMode, TableModes, TablesModes, modes_of
from binlake.errors import ConfigurationError
from binlake.schema.table import TableName

SYSTEM_DATABASES = frozenset({"mysql", "information_schema", "performance_schema", "sys"})


def _has_two_dots(pattern: str) -> str:
    if pattern.count(".") < 2:
        raise ValueError(f"{pattern!r} has too few dots; write database.table.column, such as shop.*.password")
    return pattern


ColumnPattern = Annotated[str, AfterValidator(_has_two_dots)]
"""A pattern of database.table, followed by a dot and a column's name."""


def refuse_patterns(columns: list[ColumnPattern]) -> None:
    """Raise ValueError for a column that isn't written in full: as a pattern it would match none.

    It is asked of the YAML alone, as metadata may have such columns of before they were refused.
    """
    for pattern in columns:
        if re.search(r"[*?\[]", column := pattern.rpartition(".")[2]):
            raise ValueError(
                f"{pattern!r}: {column} isn't taken for a pattern, only database and table are; write each column's"
                " name in full, such as shop.*.password"
            )


def refuse_no_mode(entries: TablesModes) -> None:
    """Raise ValueError for an entry of the YAML that names tables and no mode. It is asked of the YAML alone, as
    metadata may have such entries of before they were refused."""
    for entry in entries:
        if not entry.said:
            settings = ", ".join(name for name in TableModes.model_fields if name != "tables")
            raise ValueError(f"modes: the entry of {entry.tables} has no mode; write one or more of {settings}")


def columns_named(patterns: list[ColumnPattern], database: str, table: str) -> frozenset[str]:
    """Return the columns of a table that patterns match, in lower case: column names are case-insensitive."""
    parts = [pattern.rpartition(".") for pattern in patterns]
    return frozenset(column.lower() for tables, _, column in parts if names.matches(tables, database, table))


def columns_withheld(patterns: list[ColumnPattern], database: str, table: str) -> frozenset[str]:
    """Return the columns that patterns withhold of a table, in lower case: also those of the table of which it is a
    schema change tool's copy, by its name. Where the name doesn't show which, those of all tables of the database."""
    if not patterns:
        return frozenset()
    if hides_original(table):
        parts = [pattern.rpartition(".") for pattern in patterns if names.matches_database(pattern, database)]
        return frozenset(column.lower() for _, _, column in parts)
    own = columns_named(patterns, database, table)
    changed = changed_table(table)
    return own if changed is None else own | columns_named(patterns, database, changed)


ELSEWHERE: dict[str, JsonValue] = {"written": "elsewhere"}
"""Marks a setting that isn't a key of its section in the YAML, and is kept with the others of it."""


class TablesConfig(Section):
    """The mirrored tables, by shell-style patterns over ``database.table``. ``exclude`` overrides ``include``.

    exclude_columns: columns that must not leave the server. modes: what the lake keeps of tables beside their mirrors.
    merge_tables: tables that the lake shows as one, which the YAML has at its top.
    """

    include: Annotated[list[TablePattern], Field(min_length=1)]
    exclude: list[TablePattern] = []
    exclude_columns: list[ColumnPattern] = []
    modes: TablesModes = []
    merge_tables: Annotated[list[MergedTable], Field(json_schema_extra=ELSEWHERE)] = []

    def wanted(self, database: str, table: str, ghosts: Collection[TableName] = frozenset()) -> bool | frozenset[str]:
        """Return False for a table whose rows aren't read, else the columns that the log's reader must skip.

        ghosts: the ghost tables that are followed. A name alone makes none.
        """
        if self.included(database, table) or (ghosts and TableName(database, table) in ghosts):
            return self.excluded_columns(database, table)
        return False

    def ghost_of(self, database: str, table: str) -> str | None:
        """Return the included table whose ghost table this may be, by its name; None where the YAML excludes it."""
        copied = self.copied_by_name(database, table)
        return None if copied is None or names.matches_any(self.exclude, database, table) else copied

    def copied_by_name(self, database: str, table: str) -> str | None:
        """Return the included table of which one that isn't included has a copy's name, even if it is excluded."""
        copied = copied_table(table)
        if copied is None or self.included(database, table) or not self.included(database, copied):
            return None
        return copied

    def excluded_columns(self, database: str, table: str) -> frozenset[str]:
        """Return the names of a table's excluded columns, in lower case."""
        return columns_withheld(self.exclude_columns, database, table)

    def modes_of(self, database: str, table: str) -> TableModes:
        """Return a table's modes. Raises ConfigurationError where entries contradict."""
        try:
            return modes_of(self.modes, database, table)
        except ValueError as error:
            raise ConfigurationError(str(error), remedy="correct tables.modes in the YAML") from None

    def beside(self, database: str, table: str) -> tuple[BesideMode, ...]:
        """Return the modes that keep a table beside a table's mirror. Raises ConfigurationError."""
        if not self.modes or not self.included(database, table):
            return ()
        return self.modes_of(database, table).beside

    def included(self, database: str, table: str) -> bool:
        """Return whether a table is mirrored; those of the server's system databases never are."""
        if database.lower() in SYSTEM_DATABASES:
            return False
        if not names.matches_any(self.include, database, table):
            return False
        return not names.matches_any(self.exclude, database, table)
