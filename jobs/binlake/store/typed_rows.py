"""Rows of metadata tables as dataclasses: the one way to read and write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from typing import Any, ClassVar, Protocol, Self, dataclass_transform

from binlake.schema.table import TableName
from binlake.store.conditions import Newest

ROWS: dict[str, type[Row]] = {}
"""The rows of all metadata tables, by the table's name."""


class RowStore(Protocol):
    """The reader and writer of metadata tables' rows, as dictionaries: Metadata."""

    def read(
        self, name: str, columns: Sequence[str] | None = None, *, where: str | None = None, newest: Newest | None = None
    ) -> list[dict[str, Any]]:
        """Return a table's rows."""

    def count(self, name: str, predicate: str) -> int:
        """Return the number of rows that meet a predicate."""

    def append(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows."""

    def create_with(self, name: str, rows: Sequence[Mapping[str, Any]], *, again: bool = False) -> None:
        """Make a table together with its first rows."""

    def replace(self, name: str, predicate: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put rows in the place of those that meet a predicate."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Row:
    """A row of a metadata table. Only columns that were read are there: AttributeError names one that wasn't."""

    TABLE: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, table: str = "") -> None:
        if not table:
            return
        cls.TABLE, ROWS[table] = table, cls
        dataclass(init=False, eq=False, repr=False)(cls)  # to make methods for all would take a command 10 ms
        for column in fields(cls):
            if column.name in vars(cls):
                delattr(cls, column.name)  # a default isn't the value of a column that wasn't read

    def __init__(self, **values: Any) -> None:
        """Make a row of values by column. Raises TypeError for one that is missing, or no column's."""
        for column in fields(self):
            value = values.pop(column.name, column.default)
            if value is MISSING:
                raise TypeError(f"{type(self).__name__} needs {column.name}")
            object.__setattr__(self, column.name, value)
        if values:
            raise TypeError(f"{type(self).__name__} has no {', '.join(values)}")

    def __setattr__(self, column: str, value: object) -> None:
        raise FrozenInstanceError(f"{type(self).__name__} can't be changed")

    @classmethod
    def read(
        cls, metadata: RowStore, *columns: str, where: str | None = None, newest: Newest | None = None
    ) -> list[Self]:
        """Return rows, with some columns or with all: all rows unless ``where`` or ``newest`` choose. Raises
        LakeError."""
        read = [field for field in fields(cls) if not columns or field.name in columns]
        defaults = {field.name: field.default for field in read if field.default not in (None, MISSING)}
        return [cls._of(row, defaults) for row in metadata.read(cls.TABLE, columns or None, where=where, newest=newest)]

    @classmethod
    def first(
        cls, metadata: RowStore, *columns: str, where: str | None = None, newest: Newest | None = None
    ) -> Self | None:
        """Return the first of the rows that ``read`` returns; None where there is none. Raises LakeError."""
        return next(iter(cls.read(metadata, *columns, where=where, newest=newest)), None)

    @classmethod
    def count(cls, metadata: RowStore, predicate: str = "true") -> int:
        """Return the number of rows that meet a predicate. Raises LakeError."""
        return metadata.count(cls.TABLE, predicate)

    @classmethod
    def append(cls, metadata: RowStore, rows: Sequence[Self]) -> None:
        """Add rows. An append must never decide ownership. Raises LakeError."""
        metadata.append(cls.TABLE, [row.values() for row in rows])

    @classmethod
    def create(cls, metadata: RowStore, rows: Sequence[Self], *, again: bool = False) -> None:
        """Make the table together with its first rows, as Metadata.create_with does. Raises LakeError."""
        metadata.create_with(cls.TABLE, [row.values() for row in rows], again=again)

    @classmethod
    def replace(cls, metadata: RowStore, predicate: str, rows: Sequence[Self] = ()) -> None:
        """Put ``rows`` in the place of those that meet ``predicate``, which they must meet, too, in one commit. Raises
        LakeError."""
        metadata.replace(cls.TABLE, predicate, [row.values() for row in rows])

    @classmethod
    def _of(cls, values: dict[str, Any], defaults: dict[str, Any]) -> Self:
        row = object.__new__(cls)
        here = vars(row)
        here.update(values)
        for column, default in defaults.items():
            if here.get(column, default) is None:
                here[column] = default
        return row

    def values(self) -> dict[str, Any]:
        """Return the values by column. All of them must have been read or given."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and type(other) is type(self) and self.values() == other.values()

    __hash__ = None  # type: ignore[assignment]  # what isn't read has no value

    def __repr__(self) -> str:
        there = {field.name: getattr(self, field.name, "(not read)") for field in fields(self)}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in there.items())})"


class OfTable(Row):
    """A row about one table of the lake."""

    database: str
    table: str

    @property
    def name(self) -> TableName:
        """Return the table's name."""
        return TableName(self.database, self.table)


class OfHolder(Row):
    """A row that one process holds at a time. expires_us: when it is free, unless it is renewed."""

    holder: str | None
    token: str | None
    expires_us: int
