"""Storage engines: whether the logged rows of a table are the rows that it holds.

Both servers log the rows that pass through the engine's interface, under the name of the table in the statement. These
aren't the table's rows if its engine keeps none, or keeps those of another table, server or file.

A MEMORY table is empty after a restart of the server, which logs a TRUNCATE when the table is opened again. MariaDB
always does so; MySQL doesn't if information_schema opened the table for its statistics first, as monitors do (tried on
9.7).

Sources: MySQL manual 18 Alternative Storage Engines; MariaDB Knowledge Base, Storage Engines; aliases of names:
sys_table_aliases in both servers' sql/handler.cc.
"""

from __future__ import annotations

from binlake.position import Flavour
from binlake.schema.table import TableName

ENGINE_REMEDY = "ALTER TABLE … ENGINE=InnoDB, then binlake snapshot, or exclude the table in the YAML"
MERGE_ENGINES = frozenset({"merge", "mrg_myisam"})
_LOGGED = frozenset({"innodb", "innobase", "myisam", "aria", "maria", "rocksdb", "tokudb", "archive", "csv"})
_IN_MEMORY = frozenset({"memory", "heap"})
_ELSEWHERE = frozenset({"federated", "federatedx", "connect", "spider"})


def why_refused(engine: str, flavour: Flavour) -> str:
    """Return why a table of this engine isn't mirrored; empty if it is."""
    name = engine.lower()
    if name in _LOGGED or (name in _IN_MEMORY and flavour == "mariadb"):
        return ""
    if name in _IN_MEMORY:
        return f"the engine {engine} loses its rows when the server ends, which MySQL may leave out of its log"
    if name == "blackhole":
        return f"the engine {engine} keeps no rows"
    if name in _ELSEWHERE:
        return f"the engine {engine} has rows of another server or file, which change there"
    if name in MERGE_ENGINES:
        return f"the engine {engine} has the rows of other tables"
    return f"of the engine {engine} it isn't known whether the log has all that changes its rows"


def why_member_refused(merge: TableName) -> str:
    """Return why a member table of a MERGE table isn't mirrored."""
    return f"its rows change through the MERGE table {merge}, and are logged under its name"
