"""What a chunk's selected columns become on their way: the lake's columns, and what is refused of them.

Text that isn't valid fails the task that reads it. Invalid dates are counted as the rows pass; whether a table may hold
them is asked once all its chunks are copied.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from binlake.errors import InvalidDate, InvalidText, UnsupportedColumn
from binlake.names import spark_quote
from binlake.schema import datatypes
from binlake.schema.invalid import KEEP_DATES, InvalidValues
from binlake.schema.lake_columns import TWICE_REMEDY, lake_columns, named_twice, side_columns
from binlake.schema.table import Column, TableName, TableSchema

NOT_TEXT = "binlake: no text in column"
"""What a task says, behind it the number among the mirrored columns."""
_COUNTED = "binlake_invalid_dates"
_MEND_TEXT = (
    "mend the value on the server, leave the column out (tables.exclude_columns in the YAML) or, if it isn't of the "
    "key, set invalid_text: keep_bytes, then run the snapshot again"
)


def restored(selected: DataFrame, schema: TableSchema, invalid: InvalidValues) -> DataFrame:
    """The rows as the lake has them, of those that were selected; ``invalid_dates`` tells of it once it is written."""
    named = selected.toDF(*[column.name for column in schema.mirrored])
    refused = refused_dates(schema, invalid)
    counts = [expr(f"COUNT_IF({_invalid(column)})").alias(f"n{number}") for number, column in enumerate(refused)]
    counted = named.observe(_COUNTED, *counts) if counts else named
    return counted.selectExpr(*expressions(schema, invalid))


def invalid_dates(written: DataFrame, schema: TableSchema, invalid: InvalidValues) -> dict[str, int]:
    """By column that may hold none, how many of the rows had one."""
    refused = refused_dates(schema, invalid)
    if not refused:
        return {}
    execution: Any = written._jdf.queryExecution()
    counts = execution.observedMetrics().apply(_COUNTED)
    return {column.name: int(counts.getLong(number)) for number, column in enumerate(refused)}


def expressions(schema: TableSchema, invalid: InvalidValues) -> list[str]:
    """Spark SQL of the Delta table's columns over the selected ones."""
    selected: list[str] = []
    columns = lake_columns(schema, invalid)
    kept = {one.source.name for one in columns if one.holds == "bytes" and one.source.name not in schema.key}
    for one in columns:
        column = one.source
        value = datatypes.entry(column).restore(column)
        is_invalid = f"{value} IS NOT NULL AND NOT is_valid_utf8({value})"
        refused = f"raise_error('{NOT_TEXT} {schema.mirrored.index(column)}')"
        if one.holds == "text":
            value = f"IF({_invalid(column)}, {spark_quote(column.name)}, NULL)"
        elif one.holds == "bytes":
            value = f"IF({is_invalid}, COALESCE({datatypes.stored_bytes(column)}, {refused}), NULL)"
        elif datatypes.is_text(column):
            value = f"IF({is_invalid}, {'NULL' if column.name in kept else refused}, {value})"
        # Data files are written as the schema says: nothing casts behind this.
        selected.append(f"CAST({value} AS {one.delta}) AS {spark_quote(one.name)}")
    return selected


def refused_text(name: TableName, schema: TableSchema, told: str) -> InvalidText | None:
    """What a task says with ``told`` that refused a text."""
    found = re.search(rf"{NOT_TEXT} (\d+)\b", told)
    if not found:
        return None
    column = schema.mirrored[int(found[1])]
    return InvalidText(f"{name}: a value of column {column.name!r} isn't valid in its character set", remedy=_MEND_TEXT)


def refuse_dates(name: TableName, schema: TableSchema, counts: Mapping[str, int]) -> None:
    """Raises InvalidDate. counts: as ``invalid_dates`` tells them."""
    for column, count in counts.items():
        if count:
            key = column in schema.key
            mend = "set invalid_dates: keep_text in the YAML, or mend the rows"
            raise InvalidDate(
                f"{name}: {count:,} rows hold an invalid date in column {column!r}",
                remedy="mend the rows: a key column can't hold invalid dates" if key else mend,
            )


def refuse_twice(name: TableName, schema: TableSchema, invalid: InvalidValues) -> None:
    """Raises UnsupportedColumn."""
    if why := named_twice(schema, invalid):
        raise UnsupportedColumn(f"{name}: {why}", remedy=TWICE_REMEDY)


def refused_dates(schema: TableSchema, invalid: InvalidValues) -> list[Column]:
    """Under ``fail`` none may be there; a key may never hold one, for MERGE finds no NULL."""
    dated = [side.source for side in side_columns(schema.mirrored, KEEP_DATES)]
    return [column for column in dated if invalid.dates == "fail" or column.name in schema.key]


def _invalid(column: Column) -> str:
    """Whether the server's text is there and isn't a date."""
    return f"{spark_quote(column.name)} IS NOT NULL AND ({datatypes.entry(column).restore(column)}) IS NULL"
