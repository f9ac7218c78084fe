"""Names of columns that Delta's commands take for columns of their own, and can't tell from a table's.

Tried with Delta 4.4: MERGE fails for a table with a column named as one of its own, whatever the case of the letters;
MERGE, UPDATE and DELETE that write deletion vectors do so for others. A table with a column named as Delta's own marks
of deleted rows can't even be read by Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

DELTA_NAME_REMEDY = "rename the column, or exclude it in the YAML: tables.exclude_columns"
_OF_MERGE = frozenset({"_row_id_", "_file_name_", "_row_dropped_", "_source_row_present_", "_target_row_present_"})
_OF_VECTORS = frozenset({"filepath", "deletionvectorid", "rowindexcol", "_metadata"})
_OF_DELTA = frozenset({"__delta_internal_is_row_deleted", "__delta_internal_row_index"})


def refused_by_merge(columns: Iterable[str]) -> bool:
    """Return whether Delta's MERGE fails for a table with these columns."""
    return not _OF_MERGE.isdisjoint(map(str.lower, columns))


def refused_with_vectors(columns: Iterable[str]) -> bool:
    """Return whether commands fail for a table with these columns where they write deletion vectors."""
    return not _OF_VECTORS.isdisjoint(map(str.lower, columns))


def taken_by_delta(columns: Iterable[str]) -> str:
    """Return the first of the columns for which Spark can't read a table; empty without one."""
    return next((name for name in columns if name.lower() in _OF_DELTA), "")
