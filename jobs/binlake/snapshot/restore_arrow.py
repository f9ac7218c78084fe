"""The conversion of ``restore`` done in Arrow, without Spark: the same values, the same refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from binlake.kernels import arrays
from binlake.schema import datatypes, masking
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import lake_columns
from binlake.schema.lake_forms import Misfit, fitted
from binlake.schema.table import Column, TableSchema
from binlake.schema.types import text_types
from binlake.snapshot.restore import refused_dates

_THROUGH = {pa.float32(): pa.float64(), pa.bool_(): pa.int8()}
"""The type a value is selected as, where the lake's type is narrower."""


# Not made by pa.scalar, which imports pandas.
_YEAR_1 = arrays.texts(["0001"])[0]
_NO_TEXT = arrays.texts([None])[0]


class NoText(Exception):
    """A text isn't valid in its character set, or the server gave none, or a value doesn't fit its column's type in the
    lake. number: its column's number among the mirrored
    ones."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class NoValue(Exception):
    """A selected value isn't of its column's type."""


@dataclass
class Restored:
    """Converter of a chunk's rows. dates: how many invalid dates were seen, by column that may hold none."""

    schema: TableSchema
    invalid: InvalidValues
    dates: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._shown = lake_columns(self.schema, self.invalid)
        self._plain = self.schema.unmasked
        self._columns = lake_columns(self._plain, self.invalid) if self.schema.masks else self._shown
        self._refused = {column.name for column in refused_dates(self.schema, self.invalid)}
        kept = {column.source.name for column in self._columns if column.holds == "bytes"}
        self._kept = kept - set(self.schema.key)

    @property
    def arrow(self) -> pa.Schema:
        """Return the lake's columns."""
        return pa.schema([(column.name, column.arrow) for column in self._shown])

    def batch(self, selected: Sequence[pa.BinaryArray]) -> pa.RecordBatch:
        """Return the lake's rows for the values of the mirrored columns, ``selected``. Raises NoText and NoValue."""
        sides: dict[str, pa.Array] = {}
        values: dict[str, pa.Array] = {}
        hidden = self.schema.hidden_values
        for number, (column, texts) in enumerate(zip(self._plain.mirrored, selected, strict=True)):
            if column.name.lower() in hidden:
                continue
            try:
                values[column.name], sides[column.name] = self._values(number, column, texts)
            except ValueError:  # its message may quote the value
                if column.lake_type:
                    raise NoText(number) from None
                kind = datatypes.arrow_type(column)
                raise NoValue(f"a value of column {column.name!r} isn't of the type {kind}") from None
        arrays = [
            (sides if column.is_side else values)[column.source.name]
            for column in self._columns
            if column.source.name.lower() not in hidden
        ]
        if self.schema.masks:
            served = [self.schema.column(column.name) for column in self._plain.mirrored]
            rows = len(selected[0]) if selected else 0
            arrays = masking.masked_columns(served, arrays, rows, self.invalid)
        return pa.record_batch(arrays, schema=self.arrow)

    def _values(self, number: int, column: Column, texts: pa.BinaryArray) -> tuple[pa.Array, pa.Array | None]:
        """Return a column's values, and those of its side column if it may have one."""
        if datatypes.entry(column).may_be_invalid_date:
            return self._dates(column, texts.cast(pa.string()))
        if datatypes.is_text(column):
            return self._texts(number, column, texts)
        if datatypes.is_never_empty(column) and pc.any(pc.equal(pc.binary_length(texts), 0)).as_py():
            raise NoText(number)
        if (made := datatypes.entry(column).restore_arrow) is not None:
            return made(texts), None
        kind = datatypes.arrow_type(column)
        if column.lake_type == "boolean" and column.mask is None:
            try:
                return fitted(texts.cast(pa.int8()), column.lake_type), None
            except Misfit:
                raise NoText(number) from None
        return (texts if kind == pa.binary() else texts.cast(_THROUGH.get(kind, kind)).cast(kind)), None

    def _dates(self, column: Column, texts: pa.StringArray) -> tuple[pa.Array, pa.Array]:
        values = _moments(texts, datatypes.arrow_type(column))
        if values.null_count == texts.null_count:
            return values, pa.nulls(len(texts), pa.string())
        invalid = pc.and_(texts.is_valid(), values.is_null())
        if column.name in self._refused:
            self.dates[column.name] += invalid.true_count
        return values, pc.if_else(invalid, texts, _NO_TEXT)

    def _texts(self, number: int, column: Column, texts: pa.BinaryArray) -> tuple[pa.Array, pa.Array]:
        try:
            return texts.cast(pa.string()), pa.nulls(len(texts), pa.binary())
        except pa.ArrowInvalid:
            if column.name not in self._kept:
                raise NoText(number) from None
        selected = texts.to_pylist()
        invalid = [value is not None and not _is_text(value) for value in selected]
        stored = [
            text_types.stored_of(column, text) if bad else None for text, bad in zip(selected, invalid, strict=True)
        ]
        if any(bad and value is None for value, bad in zip(stored, invalid, strict=True)):
            raise NoText(number)
        valid = pc.if_else(pa.array(invalid, pa.bool_()), pa.scalar(None, pa.binary()), texts)
        return valid.cast(pa.string()), pa.array(stored, pa.binary())


def _moments(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Parse texts as dates; NULL for what isn't one. Year 0 isn't: see the type registry."""
    plain = pa.timestamp("us") if pa.types.is_timestamp(kind) else kind
    early = pc.less(texts, _YEAR_1)
    dated = pc.if_else(early, _NO_TEXT, texts) if early.true_count else texts
    try:
        values = dated.cast(plain)
    except pa.ArrowInvalid:
        values = pa.array([_moment(text) for text in dated.to_pylist()], pa.timestamp("us")).cast(plain)
    return values.cast(kind)


def _moment(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def _is_text(value: bytes) -> bool:
    try:
        return value.decode() is not None
    except UnicodeDecodeError:
        return False
