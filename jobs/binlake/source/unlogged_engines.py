"""Tables that can't be mirrored because of how the server stores their rows."""

from __future__ import annotations

from binlake.ddl.changes import Unfollowed
from binlake.ddl.column_definitions import BY_TRANSACTION
from binlake.ddl.statements import parse
from binlake.errors import SourceError
from binlake.names import mysql_quote
from binlake.schema.engines import MERGE_ENGINES, why_refused
from binlake.schema.table import TableName
from binlake.source.listed_tables import MIRRORED, Listed, list_tables
from binlake.source.server import Source


def refused_engines(source: Source) -> dict[TableName, str]:
    """Return the tables that can't be mirrored, each with the reason, of those that the account may see."""
    listed = [table for table in list_tables(source) if table.kind in MIRRORED and table.engine]
    refused = {table.name: why for table in listed if (why := why_refused(table.engine, source.flavour))}
    refused |= dict.fromkeys(_versioned_by_transaction(source), BY_TRANSACTION)
    for table in listed:
        if table.engine.lower() in MERGE_ENGINES:
            refused = _merge_members(source, table) | refused
    return refused


def _versioned_by_transaction(source: Source) -> list[TableName]:
    """Return MariaDB's tables whose ROW START is a transaction's number: their changes are logged as statements."""
    rows = source.query(
        "SELECT table_schema AS d, table_name AS t FROM information_schema.columns"
        " WHERE generation_expression = 'ROW START' AND data_type = 'bigint'"
    )
    return [TableName(row["d"], row["t"]) for row in rows] if source.is_mariadb else []


def _merge_members(source: Source, merge: Listed) -> dict[TableName, str]:
    """Return the tables that a MERGE table unites, each with the reason why it isn't mirrored."""
    database, table = mysql_quote(merge.name.database), mysql_quote(merge.name.table)
    try:
        shown = source.query(f"SHOW CREATE TABLE {database}.{table}")[0]["Create Table"]
    except SourceError:
        return {}  # its members aren't alike, or aren't there: nothing can be written through it
    parsed = parse(shown, database=merge.name.database, sql_mode=0, flavour=source.flavour)
    changes = [change for change in parsed.changes if isinstance(change, Unfollowed)]
    return {change.name: change.why for change in changes if change.name != merge.name}
