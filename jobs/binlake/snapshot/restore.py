"""Conversion of a chunk's selected columns into the lake's columns, and the refusal of invalid values.

Invalid text fails the task that reads it. Invalid dates are counted while the rows are read; whether the table may hold
them is checked once all its chunks are copied.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from binlake.errors import InvalidDate, InvalidText, UnsupportedColumn
from binlake.names import spark_quote
from binlake.report import counted
from binlake.schema import datatypes
from binlake.schema.invalid import KEEP_DATES, InvalidValues
from binlake.schema.lake_columns import (
    COPIED,
    TWICE_REMEDY,
    lake_columns,
    mirror_columns,
    named_twice,
    own_columns,
    side_columns,
)
from binlake.schema.lake_forms import RANGES, TYPE_REMEDY, no_fit
from binlake.schema.table import Column, TableName, TableSchema
from binlake.schema.types import text_types
from binlake.snapshot import masked_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOT_TEXT = "binlake: no text in column"
"""The text in a task's error, followed by the column's number among the mirrored ones."""
_COUNTED = "binlake_invalid_dates"
_MEND_TEXT = (
    "fix the value on the server, leave the column out (tables.exclude_columns in the YAML) or, if it isn't of the "
    "key, set invalid_text: keep_bytes, then run the snapshot again"
)


def restored(selected: DataFrame, schema: TableSchema, invalid: InvalidValues) -> DataFrame:
    """Return the selected rows with the lake's columns. Once they are written, ``invalid_dates`` counts their dates."""
    named = selected.toDF(*[column.name for column in schema.mirrored])
    values = expressions(schema, invalid)
    if schema.masks:
        return masked_frames.masked(_converted(named, values, schema, invalid), schema, invalid)
    return _converted(named, values, schema, invalid)


def _converted(named: DataFrame, values: list[str], schema: TableSchema, invalid: InvalidValues) -> DataFrame:
    """Return the values of expressions, with an observation of invalid dates where columns may hold none."""
    from pyspark.sql.functions import expr

    refused = [spark_quote(column.name) for column in refused_dates(schema, invalid)]
    if not refused:
        return named.selectExpr(*values)
    # Counted behind the conversion: Spark parses a date for each place that asks for it.
    longer = "_" * max(
        len(column.name) + 1 for column in mirror_columns(schema.unmasked, invalid)
    )  # than any other name
    given = [f"{longer}{number}" for number in range(len(refused))]
    pairs = list(zip(refused, given, strict=True))
    converted = named.selectExpr(*values, *(f"{date} IS NOT NULL AS {name}" for date, name in pairs))
    counts = [expr(f"COUNT_IF({name} AND {date} IS NULL) AS n{number}") for number, (date, name) in enumerate(pairs)]
    counted = converted.observe(_COUNTED, *counts)
    return counted.drop(*given)


def invalid_dates(written: DataFrame, schema: TableSchema, invalid: InvalidValues) -> dict[str, int]:
    """Return how many of the written rows had an invalid date, by column that may hold none."""
    refused = refused_dates(schema, invalid)
    if not refused:
        return {}
    execution: Any = written._jdf.queryExecution()
    counts = execution.observedMetrics().apply(_COUNTED)
    return {column.name: int(counts.getLong(number)) for number, column in enumerate(refused)}


def expressions(schema: TableSchema, invalid: InvalidValues) -> list[str]:
    """Return Spark SQL expressions of the Delta table's columns over the selected ones; without the masks."""
    selected: list[str] = []
    hidden = schema.hidden_values
    own = own_columns(schema)
    schema = schema.unmasked
    columns = lake_columns(schema, invalid)
    kept = {side.source.name for side in columns if side.holds == "bytes" and side.source.name not in schema.key}
    for lake_column in columns:
        column = lake_column.source
        value = datatypes.entry(column).restore(column)
        is_invalid = f"{value} IS NOT NULL AND NOT is_valid_utf8({value})"
        refused = f"raise_error('{NOT_TEXT} {schema.mirrored.index(column)}')"
        if column.name.lower() in hidden:
            value = "NULL"
        elif lake_column.holds == "text":
            value = f"IF({_invalid(column)}, {spark_quote(column.name)}, NULL)"
        elif lake_column.holds == "bytes":
            value = f"IF({is_invalid}, COALESCE({text_types.stored_bytes(column)}, {refused}), NULL)"
        elif datatypes.is_text(column):
            value = f"IF({is_invalid}, {'NULL' if column.name in kept else refused}, {value})"
        elif column.lake_type:
            name = spark_quote(column.name)
            least, greatest = RANGES[column.lake_type]
            fits = f"TRY_CAST({name} AS DECIMAL(38, 0)) BETWEEN {least} AND {greatest}"
            value = f"CASE WHEN {fits} THEN {value} WHEN {name} IS NOT NULL THEN {refused} END"
        elif datatypes.is_never_empty(column):
            value = f"IF({value} = '', {refused}, {value})"
        # Data files are written as the schema says: nothing casts behind this.
        selected.append(f"CAST({value} AS {lake_column.delta}) AS {spark_quote(lake_column.name)}")
    for mark_column in own:
        mark = COPIED[mark_column.name]
        kept_as = f"{mark_column.delta}) AS {mark_column.name}"
        selected.append(f"CAST({'NULL' if mark is None else str(mark).lower()} AS {kept_as}")
    return selected


def refused_text(name: TableName, schema: TableSchema, message: str) -> InvalidText | None:
    """Return the error of a task that refused a text; None if ``message`` is of another error."""
    match = re.search(rf"{NOT_TEXT} (\d+)\b", message)
    return not_text(name, schema, int(match[1])) if match else None


def not_text(name: TableName, schema: TableSchema, number: int) -> InvalidText:
    """Return the error for a text that can't be taken. number: its column's among the mirrored ones."""
    column = schema.column(schema.mirrored[number].name)
    if column.lake_type:
        remedy = f"{TYPE_REMEDY}, or change the value, then run the snapshot again"
        return InvalidText(f"{name}: a value of column {column.name!r} {no_fit(column)}", remedy=remedy)
    too_long = "SET GLOBAL max_allowed_packet = 1073741824 on the server, then run the snapshot again"
    return InvalidText(
        f"{name}: a value of column {column.name!r} {why_no_text(column)}",
        remedy=too_long if datatypes.is_never_empty(column) else _MEND_TEXT,
    )


def why_no_text(column: Column) -> str:
    """Return what is wrong with a value of the column that can't be taken as text."""
    if datatypes.is_never_empty(column):
        return "is longer, as text, than the server's max_allowed_packet"
    if column.lake_type:
        return no_fit(column)
    return "isn't valid in its character set"


def refuse_dates(name: TableName, schema: TableSchema, counts: Mapping[str, int]) -> None:
    """Raise InvalidDate for the first column with a count. counts: as ``invalid_dates`` returns them."""
    for column, count in counts.items():
        if count:
            key = column in schema.key
            mend = "set invalid_dates: keep_text in the YAML, or fix the rows"
            raise InvalidDate(
                f"{name}: column {column!r} holds an invalid date in {counted(count, 'row')}",
                remedy="fix the rows: a key column can't hold invalid dates" if key else mend,
            )


def refuse_twice(name: TableName, schema: TableSchema, invalid: InvalidValues) -> None:
    """Raise UnsupportedColumn if two columns of the lake would have one name."""
    if why := named_twice(schema, invalid):
        raise UnsupportedColumn(f"{name}: {why}", remedy=TWICE_REMEDY)


def refused_dates(schema: TableSchema, invalid: InvalidValues) -> list[Column]:
    """Return the columns that may hold no invalid date: all under ``fail``, else those of the key.

    A key can't hold one, since MERGE matches no NULL.
    """
    dated = [side.source for side in side_columns(schema.unmasked.mirrored, KEEP_DATES)]
    dated = [column for column in dated if column.name.lower() not in schema.hidden_values]
    return [column for column in dated if invalid.dates == "fail" or column.name in schema.key]


def _invalid(column: Column) -> str:
    """Return the SQL condition that the server's text isn't NULL and isn't a date."""
    return f"{spark_quote(column.name)} IS NOT NULL AND ({datatypes.entry(column).restore(column)}) IS NULL"
