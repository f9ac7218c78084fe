"""Shapes of a feed's tables: the recorded shape at a place in the log, and rows converted to it.

The staged columns are the table map's. The recorded shape has what a table map lacks: UUID and INET types of MariaDB,
hidden columns, which rows of a system-versioned table are current. A feed shows the same values as the lake.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from itertools import takewhile

import pyarrow as pa
import pyarrow.compute as pc

from binlake.binlog.border import PARTIAL, PARTIAL_REMEDY
from binlake.binlog.versioned_rows import of_current_rows
from binlake.caches import remembered
from binlake.errors import FeedError
from binlake.feeds.contract import FeedTable
from binlake.planner.manifest import StagedFile
from binlake.schema import arithmetic
from binlake.schema.datatypes import entry, is_in_bytes
from binlake.schema.lake_columns import side_names
from binlake.schema.table import Column, TableName, TableSchema
from binlake.schema.virtual import as_logged, generated_columns, lost_columns
from binlake.serialization import loads
from binlake.store.metadata import Metadata
from binlake.store.rows import ShapeRow, StatementRow

ShapeOrder = tuple[int, int, int]
"""Place of a shape in the log: batch, file number, offset."""


class Shapes:
    """The recorded shapes of all tables of a source, by name and place in the log."""

    def __init__(self, metadata: Metadata) -> None:
        by_name: dict[TableName, list[tuple[ShapeOrder, str | None]]] = defaultdict(list)
        columns = ("database", "table", "batch", "file_number", "offset", "schema")
        for row in ShapeRow.read(metadata, *columns, where="why = 'snapshot'"):
            by_name[row.name].append((row.order, row.schema))
        of_statements = ("database", "table", "batch", "file", "offset", "before", "after")
        for statement in StatementRow.read(metadata, *of_statements):
            if statement.has_shape:
                by_name[statement.name].append((statement.order, statement.after))
        self._by_name = {name: sorted(shapes, key=lambda shape: shape[0]) for name, shapes in by_name.items()}

    def newest(self) -> dict[TableName, TableSchema]:
        """Return the newest shape of each table that wasn't dropped."""
        texts = {name: shapes[-1][1] for name, shapes in self._by_name.items()}
        return {name: _schema(text) for name, text in texts.items() if text is not None}

    def of_file(self, file: StagedFile, batch: int) -> TableSchema | None:
        """Return the shape of a staged file's rows: the newest recorded before them that has the file's columns.

        A table that was copied again has a shape with an earlier batch whose place in the log is after these rows.
        Where no shape has the columns, return the newest one before the rows; the first known one if all are later;
        None without any.
        """
        known = self._by_name.get(file.name, [])
        place = bisect_right(known, (batch, *file.first[:2]), key=lambda shape: shape[0])
        texts = [text for _, text in reversed(known[: max(1, place)])]
        names = {column.name for column in file.columns}
        of_life = (_schema(text) for text in takewhile(lambda text: text is not None, texts) if text is not None)
        fitting = (shape for shape in of_life if {column.name for column in shape.logged} == names)
        newest = None if not texts or texts[0] is None else _schema(texts[0])
        return next(fitting, newest)


@remembered("shapes of feeds")
def _schema(text: str) -> TableSchema:
    return loads(TableSchema, text)


def table_of(file: StagedFile, schema: TableSchema | None) -> FeedTable:
    """Return a staged file's table, with the lake's columns in their order if the shape is known.

    Raises FeedError if the log lacks values that can't be computed.
    """
    if file.absent:
        lost = list(file.absent) if schema is None else lost_columns(file.absent, schema)
        if lost:
            raise FeedError(f"{file.name}: {PARTIAL}: {', '.join(lost)}", remedy=PARTIAL_REMEDY)
        schema = schema and as_logged(schema)
    staged = {column.name: column for column in file.columns}
    shown = schema.mirrored if schema is not None else ()
    if schema is None or not all(column.name in staged for column in shown):
        return FeedTable(file.name, file.columns, file.key)
    return FeedTable(file.name, tuple(_column_of(column, staged[column.name]) for column in shown), file.key, schema)


def _column_of(recorded: Column, staged: Column) -> Column:
    """Return the recorded column; the staged one if its type differs and isn't one that the recorded type renders."""
    alike = recorded.type == staged.type or is_in_bytes(recorded, staged)
    return recorded if alike else staged


def shown(table: FeedTable, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a table's staged rows as the server shows them."""
    if table.schema is None:
        return rows
    if table.schema.row_end is not None:
        rows = of_current_rows(rows, table.schema.row_end)
    wanted = [column.name for column in table.columns]
    rendered = {column.name for column in table.columns if entry(column).stored}
    fields = [field.name for field in rows.schema.field("after").type]
    computed = generated_columns(table.schema).formulas
    if not rendered and not computed and _without_sides(fields, wanted) == wanted:
        return rows
    for image in ("before", "after"):
        number = rows.schema.get_field_index(image)
        struct = _image(table, rows.column(number), computed)
        rows = rows.set_column(number, pa.field(image, struct.type), struct)
    return rows


def _without_sides(fields: list[str], wanted: list[str]) -> list[str]:
    return [name for name in fields if name in wanted or not name.endswith(("__text", "__bytes"))]


def _image(table: FeedTable, struct: pa.StructArray, computed: Mapping[str, arithmetic.Stored]) -> pa.StructArray:
    """Return the struct with only the table's columns and their side columns."""
    names: list[str] = []
    arrays: list[pa.Array] = []
    present, sides = {field.name for field in struct.type}, side_names(table.columns)
    for column in table.columns:
        names.append(column.name)
        values = struct.field(column.name)
        if column.name in computed:
            values = arithmetic.computed(computed[column.name], struct, values.type)
        arrays.append(_rendered(column, values))
        for side in sides[column.name]:
            if side in present:
                names.append(side)
                arrays.append(struct.field(side))
    return pa.StructArray.from_arrays(arrays, names, mask=pc.is_null(struct))


def _rendered(column: Column, values: pa.Array) -> pa.Array:
    stored = entry(column).stored
    return stored.values(values) if stored is not None and pa.types.is_binary(values.type) else values
