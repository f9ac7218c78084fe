"""The images of staged rows: whether they have a table's shape, and how the lake's columns are made of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from binlake.delta.key_ranges import image_column
from binlake.errors import SchemaMismatch, snapshot_again
from binlake.planner.manifest import StagedFile
from binlake.schema import arithmetic, datatypes
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.table import TableName, TableSchema
from binlake.schema.types.datatype import StoredBytes
from binlake.schema.virtual import generated_columns


def check_shape(name: TableName, schema: TableSchema, file: StagedFile) -> None:
    """Compare a staged file's columns with the schema that metadata have. Raises SchemaMismatch."""
    shown = [column for column in file.columns if column.name not in schema.hidden]
    if [column.name for column in shown] != [column.name for column in schema.logged]:
        raise _mismatch(
            name, file, _other_columns([column.name for column in shown], [column.name for column in schema.logged])
        )
    if schema.row_end is not None and not any(column.name == schema.row_end for column in file.columns):
        raise _mismatch(name, file, f"the column {schema.row_end!r} is missing")
    for logged, known in zip(shown, schema.logged, strict=True):
        if not datatypes.is_in_bytes(known, logged) and datatypes.arrow_type(logged) != datatypes.arrow_type(known):
            raise _mismatch(name, file, f"column {known.name!r} is {logged.type} in the log, {known.type} here")
        if logged.mask != known.mask:
            raise _mismatch(name, file, f"column {known.name!r} was staged under another mask")
    key = tuple(column for column in file.key if column != schema.row_end)
    if schema.key_kind == "primary" and key != schema.key:
        raise _mismatch(name, file, "its primary key is another")


def _other_columns(logged: list[str], known: list[str]) -> str:
    more, less = (", ".join(sorted({*names} - {*others})) for names, others in ((logged, known), (known, logged)))
    said = [f"the log has {more}, which the recorded shape lacks"] if more else []
    said += [f"the log lacks {less}, which the recorded shape has"] if less else []
    return "its columns are others: " + ("; ".join(said) or "they are in another order")


def _mismatch(name: TableName, file: StagedFile, why: str) -> SchemaMismatch:
    number, offset, _ = file.first
    return SchemaMismatch(
        f"{name}: file {number} of the log, offset {offset}: the recorded schema doesn't fit: {why}",
        remedy=snapshot_again(name),
    )


@dataclass(frozen=True)
class LakeImages:
    """How the lake's columns are made of staged images of one shape.

    columns: those that are made; none of the mirror's own, which no image has. formulas: of the columns that the lake
    computes, by name.
    """

    columns: tuple[LakeColumn, ...]
    formulas: Mapping[str, arithmetic.Stored]

    @classmethod
    def of(cls, schema: TableSchema, columns: Iterable[LakeColumn]) -> Self:
        """Return how columns of the mirror of a shape are made."""
        staged = tuple(column for column in columns if column.holds != "own")
        return cls(staged, generated_columns(schema).formulas)

    def only(self, names: Collection[str]) -> LakeImages:
        """Return how the columns with these names are made."""
        return replace(self, columns=tuple(column for column in self.columns if column.name in names))

    def rows(self, staged: pa.Table, image: str) -> pa.Table:
        """Return the lake's columns of an image of staged rows, ``before`` or ``after``."""
        arrays = {}
        for column in self.columns:
            if column.name in self.formulas:
                images, formula = staged[image].combine_chunks(), self.formulas[column.name]
                arrays[column.name] = pa.chunked_array([arithmetic.computed(formula, images, column.arrow)])
                continue
            stored = image_column(staged, image, column.name)
            if (made := _made_here(column)) is not None:
                stored = pa.chunked_array([made.values(stored.combine_chunks())])
            arrays[column.name] = stored
        return pa.table(arrays)


def _made_here(column: LakeColumn) -> StoredBytes | None:
    """Return how the values are made of the bytes that staged rows have; None where these have the values."""
    return None if column.is_side else datatypes.made_late(column.source)
