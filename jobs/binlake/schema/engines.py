"""Storage engines: whether the rows that the log tells of a table are the rows that it has.

Both servers log the rows that pass through the engine's interface, under the name of the table that the statement
names. That isn't what the table holds where its engine keeps no rows, or those of another table, server or file.

MEMORY loses its rows with the server, which logs a TRUNCATE when the table is opened again. MariaDB does so always;
MySQL forgets it where information_schema opened the table for its statistics, as any monitor may (tried on 9.7).

Sources: MySQL manual 18 Alternative Storage Engines; MariaDB Knowledge Base, Storage Engines; aliases of names:
sys_table_aliases in both servers' sql/handler.cc.
"""

from __future__ import annotations

from binlake.position import Flavour
from binlake.schema.table import TableName

ENGINE_REMEDY = "ALTER TABLE … ENGINE=InnoDB, then binlake snapshot, or exclude the table in the YAML"
MERGE_ENGINES = frozenset({"merge", "mrg_myisam"})
_TOLD = frozenset({"innodb", "innobase", "myisam", "aria", "maria", "rocksdb", "tokudb", "archive", "csv"})
_IN_MEMORY = frozenset({"memory", "heap"})
_ELSEWHERE = frozenset({"federated", "federatedx", "connect", "spider"})


def why_refused(engine: str, flavour: Flavour) -> str:
    """Why a table of this engine isn't mirrored; empty where it is."""
    name = engine.lower()
    if name in _TOLD or (name in _IN_MEMORY and flavour == "mariadb"):
        return ""
    if name in _IN_MEMORY:
        return f"the engine {engine} loses its rows when the server ends, which MySQL may leave out of its log"
    if name == "blackhole":
        return f"the engine {engine} keeps no rows"
    if name in _ELSEWHERE:
        return f"the engine {engine} has rows of another server or file, which change there"
    if name in MERGE_ENGINES:
        return f"the engine {engine} has the rows of other tables"
    return f"of the engine {engine} it isn't known whether the log tells all that changes its rows"


def why_member_refused(merge: TableName) -> str:
    """Why a table isn't mirrored that belongs to a MERGE table."""
    return f"its rows change through the MERGE table {merge}, and are logged under its name"
