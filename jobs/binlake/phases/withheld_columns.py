"""Snapshots for which a batch asked, of tables in which a withheld column may have another name by now.

Nobody decided that such a column is shown: the YAML names columns, and a statement gave it, or its table, a name
that no entry has. A person who names the table lets it be copied (``binlake snapshot --tables``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from binlake.config import PipelineConfig
from binlake.errors import TableError
from binlake.planner.steps import Life, Standstill
from binlake.records import ddl_history, watermarks
from binlake.schema.masked_shapes import UNCOVERED_REMEDY, may_be_renamed
from binlake.schema.table import TableName, TableSchema
from binlake.source.catalog import read_tables
from binlake.source.server import Source
from binlake.store.metadata import Metadata, now_us


def refused_for_withheld(
    config: PipelineConfig, source: Source, metadata: Metadata, names: list[TableName]
) -> dict[TableName, TableError]:
    """Return errors for those tables that a batch asked for, and that may show a withheld column under another name.
    Raises SourceError."""
    if not (config.columns or config.tables.exclude_columns):
        return {}
    asked = set(watermarks.asked(metadata)).intersection(names)
    if not asked:
        return {}
    lives = watermarks.read_lives(metadata)
    here = {life.name: life for life in lives if life.status == "resnapshot"}
    gone = [life for life in lives if life.status == "dropped"]
    texts: dict[str, list[str]] = {life.id: [] for life in here.values()}
    for table_id, text in ddl_history.not_understood(metadata, texts.keys()) if texts else ():
        texts[table_id].append(text)
    refused = {}
    for name, table in read_tables(source, sorted(asked), lambda name, schema: schema).items():
        life = here.get(name)
        why = (
            _renamed(config, life, table.schema, texts[life.id])
            if life
            else _elsewhere(config, gone, name, table.schema)
        )
        if why:
            refused[name] = TableError(f"{name}: {why}", remedy=UNCOVERED_REMEDY)
    return refused


def _renamed(config: PipelineConfig, life: Life, now: TableSchema, texts: list[str]) -> str:
    """Return why a life's table may show a withheld column; empty if it doesn't. now: its shape at the server."""
    withheld = config.confidential(life.name)
    if not may_be_renamed(life.schema, now, withheld, texts):
        return ""
    columns = [column.served_name for column in life.schema.columns if column.served_name.lower() in withheld]
    if not columns:
        return ""
    return (
        f"the column {columns[0]!r}, which the YAML masks or excludes, may have another name since a statement that the"
        " table didn't follow, so that no row is copied"
    )


def _elsewhere(config: PipelineConfig, gone: list[Life], name: TableName, now: TableSchema) -> str:
    """Return why a table without a life may be one whose columns were withheld; empty if it isn't. gone: lives that
    ended, by a DROP TABLE or by a name that isn't included."""
    shown = {column.name.lower() for column in now.columns} - config.withheld(name)
    for life in gone:
        columns = {column.served_name.lower() for column in life.schema.columns}
        if same := sorted(shown & columns & config.confidential(life.name)):
            return (
                f"it may be what {life.name} was, of which the YAML masks or excludes the column {same[0]!r}, and no"
                " entry does so here, so that no row is copied"
            )
    return ""


def stop_refused(metadata: Metadata, refused: Mapping[TableName, TableError]) -> None:
    """Stop the lives of refused tables: they aren't asked for again until somebody decides."""
    rows = [row for row in watermarks.read(metadata) if row.has_life and row.status == "resnapshot"]
    stopped = [
        replace(row.standing("stopped", _why(row.name, refused[row.name])), updated_us=now_us())
        for row in rows
        if row.name in refused
    ]
    watermarks.write(metadata, stopped)


def _why(name: TableName, error: TableError) -> Standstill:
    return Standstill(error.message.removeprefix(f"{name}: "), error.remedy)
