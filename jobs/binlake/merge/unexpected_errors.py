"""Unexpected errors while a step of one table is done: those that concern the table alone, and how it stops."""

from __future__ import annotations

from collections.abc import Sequence

from binlake.errors import OF_CODE, TableError, catch_up_again, unexpected
from binlake.planner.manifest import StagedFile
from binlake.schema.table import TableName

_OF_SPARK = frozenset({"AnalysisException", "ParseException"})
"""The errors that Spark raises about a query before it runs; by name, as PySpark needn't be there."""


def of_table(error: Exception, name: TableName, staged: Sequence[StagedFile]) -> TableError | None:
    """Return the error that stops a table where ``error``, raised in one of its steps, concerns it alone; else None.

    staged: the files that the step merges.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if not isinstance(error, OF_CODE) and kinds.isdisjoint(_OF_SPARK):
        return None
    place = ""
    if staged:
        number, offset, _ = min(file.first for file in staged)
        place = f"file {number} of the log, from offset {offset}: "
    condition = getattr(error, "getCondition", lambda: None)()
    said = f"{unexpected(error)}{f' ({condition})' if condition else ''}"
    return TableError(f"{name}: {place}its part of the batch can't be done: {said}", remedy=catch_up_again(name))
