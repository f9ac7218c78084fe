"""Snapshots of tables that nobody named, and in which a withheld column may have another name by now.

Nobody decided that such a column is shown: the YAML names columns, and a statement gave it, or its table, a name
that no entry has. A person who names the table lets it be copied (``binlake snapshot --tables``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from binlake.config import PipelineConfig
from binlake.errors import TableError
from binlake.planner.steps import Life, Standstill
from binlake.records import ddl_history, watermarks
from binlake.schema.masked_shapes import UNCOVERED_REMEDY, may_be_renamed, may_be_swapped, may_have_left
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import loads
from binlake.source.catalog import read_tables
from binlake.source.server import Source
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import ChunkRow

Refusal = Callable[[TableName, TableSchema], TableError | None]
"""Returns why a table of this shape at the server isn't copied; None where it is."""


def refused_for_withheld(
    refusal: Refusal | None, source: Source, names: list[TableName]
) -> dict[TableName, TableError]:
    """Return errors for those tables that may show a withheld column under another name. Raises SourceError."""
    if refusal is None:
        return {}
    there = read_tables(source, names, lambda name, schema: schema)
    refused = {name: refusal(name, table.schema) for name, table in there.items()}
    return {name: error for name, error in refused.items() if error}


def refusal_for_withheld(config: PipelineConfig, metadata: Metadata, names: Collection[TableName]) -> Refusal | None:
    """Return a function of a table's name and its shape at the server, which returns why the table isn't copied; None
    where all of them are.

    Compared is the shape that the table's life has, and where it has none those of the lives that ended. A name may
    follow the log, or not: what the log says of it may not have been read yet.
    """
    if not (config.columns or config.tables.exclude_columns):
        return None
    lives = watermarks.read_lives(metadata)
    here = {life.name: life for life in lives if life.status != "dropped" and life.name in names}
    gone = [life for life in lives if life.status == "dropped"]
    begun = _begun(metadata, set(names) - here.keys(), {life.id for life in lives})
    if not here and not gone and not begun:
        return None
    away = ddl_history.renamed_away(metadata, [life.id for life in gone if config.confidential(life.name)])
    left = [life for life in gone if life.id in away]
    texts: dict[str, list[str]] = {life.id: [] for life in here.values() if life.status != "following"}
    for table_id, text in ddl_history.not_understood(metadata, texts.keys()) if texts else ():
        texts[table_id].append(text)

    def refusal(name: TableName, now: TableSchema) -> TableError | None:
        life = here.get(name)
        if life:
            why = _renamed(config, life, now, texts.get(life.id, []))
        else:
            why = _elsewhere(config, gone, name, now) or _returned(config, left, now)
            why = why or _changed_since(config, begun.get(name), name, now)
        return TableError(f"{name}: {why}", remedy=UNCOVERED_REMEDY) if why else None

    return refusal


def _renamed(config: PipelineConfig, life: Life, now: TableSchema, texts: list[str]) -> str:
    """Return why a life's table may show a withheld column; empty if it doesn't. now: its shape at the server."""
    from binlake.staging.masked_tables import is_bare

    if life.status == "stopped" and is_bare(config, life):
        return (
            "a column of it was masked or excluded, which the YAML doesn't do under the name that the table has now, so"
            " that no row is copied"
        )
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


def _returned(config: PipelineConfig, left: list[Life], now: TableSchema) -> str:
    """Return why a table without a life may be one that left the mirror, in which a withheld column has another name
    since; empty if it isn't. left: lives whose tables got a name that isn't included."""
    for life in left:
        if may_have_left(life.schema, now, config.confidential(life.name)):
            return (
                f"it may be what {life.name} was, of which a column that the YAML masks or excludes may have another"
                " name since, so that no row is copied"
            )
    return ""


def _begun(metadata: Metadata, names: Collection[TableName], lives: Collection[str]) -> dict[TableName, TableSchema]:
    """Return the shapes with which the newest snapshots of these tables began, none of which became a life."""
    rows = ChunkRow.read(metadata, "table_id", "database", "table", "schema", "updated_us") if names else []
    newest = sorted(rows, key=lambda row: row.updated_us)
    texts = {row.name: row.schema for row in newest if row.name in names and row.table_id not in lives}
    return {name: loads(TableSchema, text) for name, text in texts.items()}


def _changed_since(config: PipelineConfig, begun: TableSchema | None, name: TableName, now: TableSchema) -> str:
    """Return why a withheld column may have another name since a snapshot began that didn't end; empty if it hasn't."""
    withheld = config.confidential(name)
    if begun is None or not (may_be_renamed(begun, now, withheld, ()) or may_be_swapped(begun, now, withheld)):
        return ""
    return (
        "a column that the YAML masks or excludes may have another name since a snapshot of it began that didn't end,"
        " so that no row is copied"
    )


def stop_refused(metadata: Metadata, refused: Mapping[TableName, TableError]) -> None:
    """Stop the lives of refused tables that wait for a snapshot: they aren't asked for again until somebody decides.
    Those that stopped keep their reason, and those that follow are stopped by the log, if it says so."""
    rows = [row for row in watermarks.read(metadata) if row.has_life and row.status == "resnapshot"]
    stopped = [
        replace(row.standing("stopped", _why(row.name, refused[row.name])), updated_us=now_us())
        for row in rows
        if row.name in refused
    ]
    watermarks.write(metadata, stopped)


def _why(name: TableName, error: TableError) -> Standstill:
    return Standstill(error.message.removeprefix(f"{name}: "), error.remedy)
