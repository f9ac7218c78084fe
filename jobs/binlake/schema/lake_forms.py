"""Columns that have another name or type in the lake than on the server, by the YAML's ``columns``.

A shape has the lake's names everywhere: in columns, keys, indexes, and expressions of generated columns. Each renamed
column says its name on the server. A column with another type in the lake is declared as on the server, and ``shown``
is what the lake has. Code that talks to the server, follows its statements, or reads a condition of rows takes
``server_shape``; everything behind the reader of the log and of snapshots takes the shape as it is.

| type     | of columns                             | values             |
|----------|----------------------------------------|--------------------|
| bigint   | whole numbers, DECIMAL without a scale | -2**63 to 2**63 - 1 |
| boolean  | TINYINT that isn't of the key          | 0 and 1            |

Another value stops the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from binlake.errors import UnfitColumn
from binlake.schema.table import INTEGERS, Column, TableSchema, Virtual, once_per_shape

if TYPE_CHECKING:
    import pyarrow as pa

LakeType = Literal["bigint", "boolean"]
RANGES: Mapping[str, tuple[int, int]] = {"bigint": (-(2**63), 2**63 - 1), "boolean": (0, 1)}
"""The least and the greatest value of each type."""
COLLISION_REMEDY = "give it another name in its entry of columns in the YAML (rename)"
TYPE_REMEDY = "take the column off its entry of columns in the YAML (type)"


@dataclass(frozen=True)
class LakeForm:
    """Names and types that columns of one table have in the lake and not on the server, by their names on the server in
    lower case."""

    names: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.names or self.types)

    def of(self, column: Column) -> Column:
        """Return a column of the server's with its name and type in the lake. A masked one has the mask's type."""
        name = self.names.get(column.name.lower(), column.name)
        if name != column.name:
            column = replace(column, name=name, server_name=column.name)
        kind = self.types.get(column.served_name.lower()) if column.mask is None else None
        return replace(column, lake_type=kind) if kind else column


AS_SERVED = LakeForm()


def lake_form(schema: TableSchema) -> LakeForm:
    """Return the names and types in a shape that aren't the server's."""
    return LakeForm(
        {column.server_name.lower(): column.name for column in schema.columns if column.server_name},
        {column.served_name.lower(): column.lake_type for column in schema.columns if column.lake_type},
    )


def server_shape(schema: TableSchema) -> TableSchema:
    """Return the shape with the names and types that its columns have on the server."""
    is_other = any(column.server_name or column.lake_type for column in schema.columns)
    return _server_shape(schema) if is_other else schema


@once_per_shape
def _server_shape(schema: TableSchema) -> TableSchema:
    names = {column.name.lower(): column.server_name for column in schema.columns if column.server_name}
    columns = [replace(column, name=column.served_name, server_name="", lake_type="") for column in schema.columns]
    return _named(schema, columns, names)


def in_form(schema: TableSchema, form: LakeForm) -> TableSchema:
    """Return a shape of the server's with names and types that its columns have in the lake.

    The table may lack some of the columns. An excluded column stays as it is. Raises UnfitColumn for a name that
    another column of the table has or that is excluded, and for a type that a column can't have.
    """
    there = {column.name.lower(): column for column in schema.columns if column.name.lower() not in schema.excluded}
    names = {name: other for name, other in form.names.items() if name in there and there[name].name != other}
    types = {name: kind for name, kind in form.types.items() if name in there and there[name].mask is None}
    if not names and not types:
        return schema
    if why := collision(schema.columns, names) or _excluded_name(schema, names):
        raise UnfitColumn(why, remedy=COLLISION_REMEDY)
    for name, kind in types.items():
        if why := no_type(there[name], kind, in_key=there[name].name in schema.key):
            raise UnfitColumn(why, remedy=TYPE_REMEDY)
    of_table = LakeForm(names, types)
    return _named(schema, [of_table.of(column) for column in schema.columns], names)


def no_type(column: Column, kind: str, *, in_key: bool) -> str:
    """Return why a column of the server's can't have a type in the lake; empty where it can."""
    wrong = f"the column {column.name!r} can't be {kind.upper()} in the lake: it is "
    if column.generated:
        return wrong + "generated"
    if kind == "boolean":
        of_key = f"{wrong}of the key" if in_key else ""
        return of_key if column.type == "tinyint" else f"{wrong}{column.declared.upper()}, and TINYINT can be"
    if column.type in INTEGERS or (column.type == "decimal" and not column.scale):
        return ""
    return wrong + f"{column.declared.upper()}, and whole numbers and DECIMAL(n,0) can be"


def no_fit(column: Column) -> str:
    """Return what is wrong with a value that a column's type in the lake can't hold."""
    return f"doesn't fit {column.lake_type.upper()}, the type that the YAML (columns) gives it in the lake"


def constant(column: Column, text: str) -> str | None:
    """Return a constant of the server's as one of the type that a column has in the lake; None if it can't be one."""
    least, greatest = RANGES[column.lake_type]
    if not least <= int(text) <= greatest:
        return None
    return f"b'{int(text)}'" if column.lake_type == "boolean" else text


def other_form(column: Column) -> str:
    """Return what a column is in the lake and not on the server, for people; empty for one that is the same."""
    called = f"called {column.name}" if column.server_name else ""
    kind = column.lake_type.upper() if column.mask is None else ""
    return ", ".join(part for part in (called, kind) if part)


def becomes(column: Column, schema: TableSchema) -> str:
    """Return what becomes of a column in the lake by the YAML, for people; empty for one that is as on the server."""
    if column.name.lower() in schema.excluded:
        return "excluded"
    if column.name in schema.untold:
        return "left out: the log doesn't have its values"
    return ", ".join(part for part in (other_form(column), str(column.mask or "")) if part)


@dataclass
class Misfit(Exception):
    """A value that a column's type in the lake can't hold. row: the first one's number."""

    row: int


def fitted(values: pa.Array, kind: str) -> pa.Array:
    """Return whole numbers as values of a type of the lake. Raises Misfit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    least, greatest = RANGES[kind]
    if kind == "bigint":
        try:
            return values.cast(pa.int64())
        except pa.ArrowInvalid:
            values = values.cast(pa.decimal256(76, 0))
    beyond = pc.fill_null(pc.or_(pc.less(values, least), pc.greater(values, greatest)), False)
    if (row := pc.index(beyond, True).as_py()) >= 0:
        raise Misfit(row)
    return values.cast(pa.bool_())


def collision(columns: Sequence[Column], names: Mapping[str, str]) -> str:
    """Return why columns can't have names in the lake, by their names in lower case: another column has one of them;
    empty where they can."""
    seen: dict[str, Column] = {}
    for column in sorted(columns, key=lambda column: column.name.lower() in names):
        name = names.get(column.name.lower(), column.name)
        if (other := seen.setdefault(name.lower(), column)) is not column:
            return (
                f"the column {column.name!r} can't be called {name!r} in the lake:"
                f" the column {other.name!r} of the table has that name there"
            )
    return ""


def _excluded_name(schema: TableSchema, names: Mapping[str, str]) -> str:
    """Return why columns can't have names in the lake: an entry excludes columns of one of them, also where the table
    has none yet; empty where they can."""
    for column in schema.columns:
        other = names.get(column.name.lower(), "")
        if other.lower() in schema.excluded:
            return (
                f"the column {column.name!r} can't be called {other!r} in the lake:"
                " the YAML excludes columns of that name"
            )
    return ""


def _named(schema: TableSchema, columns: Sequence[Column], names: Mapping[str, str]) -> TableSchema:
    """Return the shape with these columns. names: new names by old ones in lower case."""

    def name_of(name: str) -> str:
        return names.get(name.lower(), name)

    def expression(way: Virtual | None) -> Virtual | None:
        from binlake.schema.virtual import renamed  # it knows expressions, of which a YAML has none

        return way and renamed(way, names)

    schema = schema.with_columns(tuple(columns))
    if not names:
        return schema
    return replace(
        schema,
        columns=tuple(
            replace(column, virtual=expression(column.virtual), stored=expression(column.stored))
            if column.virtual or column.stored
            else column
            for column in columns
        ),
        key=tuple(map(name_of, schema.key)),
        indexes=tuple(
            replace(index, columns=tuple(part and name_of(part) for part in index.columns)) for index in schema.indexes
        ),
        untold=tuple(map(name_of, schema.untold)),
    )
