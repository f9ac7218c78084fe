"""Checks of the YAML's patterns: each names something that the server has.

One that names nothing is a warning: it may be misspelt, or meant for tables that are to come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

from binlake import names
from binlake.config import SYSTEM_DATABASES, PipelineConfig
from binlake.doctor.check import Check
from binlake.schema.lake_forms import other_form
from binlake.schema.masked_shapes import computed_from
from binlake.schema.table import TableName
from binlake.source.catalog import SourceTable
from binlake.source.server import Source


def excluded_tables(config: PipelineConfig, visible: Collection[TableName]) -> Iterator[Check]:
    """Yield a warning for each table to be excluded that isn't there: one that is named otherwise is copied.

    visible: all tables and views that the account may see, without the server's own.
    """
    there = [(name.database, name.table) for name in visible]
    for pattern in names.unmatched(config.tables.exclude, there):
        if pattern.partition(".")[0].lower() not in SYSTEM_DATABASES:
            remedy = "check the pattern; leave it where such tables are to come, or the account may not see them"
            yield Check("tables.exclude", "warn", f"no table that the account sees matches {pattern}", remedy)


def columns(source: Source, config: PipelineConfig) -> Iterator[Check]:
    """Yield a warning for each column to be excluded or masked that no included table has: one that is named otherwise
    is copied, and shown."""
    settings = {
        "tables.exclude_columns": config.tables.exclude_columns,
        "columns": [policy.columns for policy in config.columns if not policy.exclude],
        "page.mask_columns": config.page.mask_columns,
    }
    for setting, patterns in settings.items():
        for pattern in patterns:
            tables, _, column = pattern.rpartition(".")
            there = source.query(
                "SELECT table_schema AS d, table_name AS t, column_name AS c FROM information_schema.columns"
                " WHERE column_name = %s",  # which takes e for é, too
                (column,),
            )
            same = (TableName(row["d"], row["t"]) for row in there if row["c"].lower() == column.lower())
            if not any(config.included(name) for name in same if _is_named(tables, name)):
                remedy = "check the names of table and column; leave it where such a table is to come"
                yield Check(setting, "warn", f"no included table has {pattern}", remedy)


def masks(tables: Collection[SourceTable]) -> Iterator[Check]:
    """Yield what becomes of each column with a mask, another name or type, and the generated columns that go."""
    for table in sorted(tables, key=lambda table: table.name):
        for name, mask in table.schema.masks.items():
            shown = table.schema.shown(name)
            other = f", {form}" if (form := other_form(shown)) else ""
            yield Check(f"column {table.name}.{shown.served_name}", True, f"{mask}, as {shown.declared}{other}")
        for column in table.schema.columns:
            if column.mask is None and (other := other_form(column)):
                yield Check(f"column {table.name}.{column.served_name}", True, f"{other} in the lake")
        for name in sorted(computed_from(table.schema, table.schema.masks.keys()) & table.schema.excluded):
            why = "left out: it is computed from a masked column, and has no entry of its own in columns"
            yield Check(f"column {table.name}.{name}", True, why)


def modes(config: PipelineConfig, tables: Collection[SourceTable]) -> Iterator[Check]:
    """Yield a warning for each entry of tables.modes that names no included table, and for each column that a history
    is to track or not and that none of its tables has: what isn't kept of the log can't be had later."""
    for entry in config.tables.modes:
        named = [table for table in tables if _is_named(entry.tables, table.name)]
        if not named:
            remedy = "check the name; leave it where such a table is to come"
            yield Check("tables.modes", "warn", f"no included table matches {entry.tables}", remedy)
            continue
        in_lake = [name for table in named for name in _lake_names(table)]
        history = entry.history
        for setting, patterns in (("track", history.track), ("except", history.except_)) if history else ():
            for pattern in patterns:
                if not any(fnmatchcase(name.lower(), pattern.lower()) for name in in_lake):
                    missing = f"no table that matches {entry.tables} has a column {pattern} ({setting})"
                    yield Check("tables.modes", "warn", missing, "check the name of the column")


def row_filters(config: PipelineConfig, tables: Collection[SourceTable]) -> Iterator[Check]:
    """Yield a warning for each entry of rows that names no included table: one that is named otherwise has all rows."""
    for entry in config.rows:
        if not any(_is_named(entry.tables, table.name) for table in tables):
            remedy = "check the name; leave it where such a table is to come"
            yield Check("rows", "warn", f"no included table matches {entry.tables}", remedy)


def _is_named(pattern: str, name: TableName) -> bool:
    return names.matches(pattern, name.database, name.table)


def _lake_names(table: SourceTable) -> Iterator[str]:
    """Yield the names that a table's columns may have in the lake."""
    for column in table.schema.mirrored:
        yield from (column.name, f"{column.name}__text", f"{column.name}__bytes")
