"""Keys and indexes: their order and default names on the server, and the key by which MERGE matches rows.

Sources: MySQL's sort_keys and make_unique_key_name (sql/sql_table.cc), the same on MariaDB; manual 15.1.24.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from binlake.ddl.alterations import AddForeignKey
from binlake.ddl.definition import IndexDefinition
from binlake.errors import SchemaMismatch
from binlake.schema.charsets import bytes_per_character
from binlake.schema.table import Column, Index, KeyKind, TableSchema
from binlake.schema.virtual import generated_columns

Constraint = IndexDefinition | AddForeignKey
_LONGEST_INDEX = 3072
_LARGEST_NUMBER = 30
"""Bytes of a DECIMAL(65,30). No number or time takes more."""
_PRIMARY = "primary"
"""The primary key's name, in lower case; no other has it."""
CAN_HAVE_PREFIX = ("char", "text", "blob", "binary")
"""How the names of types end of which a prefix can be indexed."""


def with_key(schema: TableSchema, primary: Sequence[str], indexes: Iterable[Index]) -> TableSchema:
    """Return the shape with these keys. Its key is the primary, else the first unique one of whole NOT NULL columns.

    primary: columns of the primary key, empty for none; they become NOT NULL. indexes: the other indexes, in the order
    in which the server adds them. Virtual columns whose values the log lacks are noted as ``untold``, and can't
    belong to the key. MariaDB adds the end of a row's time to the unique keys of a versioned table; it is left out, for
    it is the same in all current rows. Raises SchemaMismatch for a column that isn't there.
    """
    spelled = tuple(name for written in primary if (name := _find(schema, written).name) != schema.row_end)
    columns = tuple(replace(c, nullable=False) if c.name in spelled else c for c in schema.columns)
    schema = replace(schema, columns=columns)
    ordered = in_server_order(schema, [_with_hash_settled(schema, _spelled(schema, index)) for index in indexes])
    generated = generated_columns(schema)
    not_logged = {*generated.left_out, *generated.computed}
    key, kind = key_of([column for column in columns if column.name not in not_logged], spelled, ordered)
    return replace(schema, key=key, key_kind=kind, indexes=ordered, untold=tuple(generated.left_out))


def key_of(
    columns: Iterable[Column], primary: tuple[str, ...], indexes: Iterable[Index]
) -> tuple[tuple[str, ...], KeyKind]:
    """Return the key and its kind. indexes: in the server's order."""
    if primary:
        return primary, "primary"
    required = {column.name: column for column in columns if not column.nullable}
    for index in indexes:
        whole = [
            required[name]
            for name, prefix in zip(index.columns, index.prefixes, strict=True)
            if name in required and prefix is None
        ]
        if index.unique and len(whole) == len(index.columns) and not (index.by_hash or _is_long(whole)):
            return tuple(column.name for column in whole), "unique"
    return (), "none"


def key_index(schema: TableSchema) -> str:
    """Return the name of the index that holds the table's key; empty without a key."""
    if schema.key_kind == "primary":
        return "PRIMARY"
    unique = (
        index.name
        for index in schema.indexes
        if index.unique and index.columns == schema.key and not any(index.prefixes)
    )
    return next(unique, "") if schema.key else ""


def _is_long(columns: Iterable[Column]) -> bool:
    """Return whether a unique index over these columns is too long for the storage engine, so that MariaDB uses a hash.

    Such an index isn't taken as a key: the server checks for duplicates outside the engine, and before 10.6.23,
    10.11.14 and 11.8.3 two sessions with READ COMMITTED could both insert the same value (MDEV-37199 in the release
    notes; handler::check_duplicate_long_entry_key in sql/handler.cc). As far as tried, InnoDB with pages of 16 KiB and
    more holds 3,072 bytes.
    """
    return sum(_indexed_bytes(column) for column in columns) > _LONGEST_INDEX


def _indexed_bytes(column: Column) -> int:
    """Return an upper bound of the bytes that a value takes in an index."""
    if column.type.endswith(("text", "blob", "json")):
        return _LONGEST_INDEX + 1
    if column.type.endswith(("char", "binary")) and column.length is not None:
        return column.length * bytes_per_character(column.charset or "")
    return _LARGEST_NUMBER


def _with_hash_settled(schema: TableSchema, index: Index) -> Index:
    """Return the index without USING HASH if it is short enough for the engine: MariaDB hashes only longer ones."""
    if not index.by_hash or None in index.columns or any(index.prefixes):
        return index
    return replace(index, by_hash=not _is_long([schema.column(name) for name in index.columns if name]))


def in_server_order(schema: TableSchema, indexes: Iterable[Index]) -> tuple[Index, ...]:
    """Return the indexes in the server's order.

    Unique indexes of NOT NULL columns come first, then other unique ones, each time those without prefixes first;
    indexes that aren't unique come last, by name.
    """
    # The hidden column of an expression is nullable.
    nullable: set[str | None] = {None, *(column.name for column in schema.columns if column.nullable)}

    def place(index: Index) -> tuple[bool, bool, bool, str]:
        if not index.unique:
            return True, False, False, index.name.lower()
        return False, bool(nullable.intersection(index.columns)), any(index.prefixes), ""

    return tuple(sorted(indexes, key=place))


def new_keys(
    primary: Sequence[str], indexes: Sequence[Index], constraints: Iterable[Constraint]
) -> tuple[tuple[str, ...], list[Index]]:
    """Add constraints, in this order. Returns the columns of the primary key, and the other indexes.

    A CHECK adds no index.
    """
    key, all_indexes = tuple(primary), list(indexes)
    foreign: list[AddForeignKey] = []
    for constraint in constraints:
        if isinstance(constraint, AddForeignKey):
            foreign.append(constraint)
        elif constraint.kind == "primary":
            key = key or tuple(name for name in constraint.columns if name)
        elif constraint.columns:
            all_indexes.append(_named(constraint, all_indexes))
    for foreign_key in foreign:
        index = _index_of_foreign_key(foreign_key, all_indexes, key)
        all_indexes += [index] if index else []
    return key, all_indexes


def added(schema: TableSchema, constraints: Iterable[Constraint]) -> list[Constraint]:
    """Return what a statement adds of its constraints to a table, without what its IF NOT EXISTS leave out.

    MariaDB compares names with the keys that the table had, also those that the statement drops, and with those before
    in the statement; a key without name has that of its first column (handle_if_exists_options, sql/sql_table.cc).
    """
    there = {index.name.lower() for index in schema.indexes}
    there |= {_PRIMARY} if schema.key_kind == "primary" else set()
    come: list[Constraint] = []
    for constraint in constraints:
        if not isinstance(constraint, AddForeignKey):
            name = (constraint.name or constraint.columns[0] or "").lower()
            name = _PRIMARY if constraint.kind == "primary" else name
            if constraint.if_not_exists and name in there:
                continue
            there.add(name)
        come.append(constraint)
    return come


def _named(definition: IndexDefinition, existing: Collection[Index]) -> Index:
    """Return a new index with its name; by default its first column's, with a number if that is taken."""
    first = (definition.columns or (None,))[0] or "functional_index"
    name = definition.name or _free_name(first, existing)
    return Index(name, definition.columns, definition.prefixes, definition.kind == "unique", definition.by_hash)


def _index_of_foreign_key(foreign: AddForeignKey, existing: Collection[Index], primary: Sequence[str]) -> Index | None:
    """Return the index that the server adds for a foreign key; None if another begins with its columns."""
    wanted = [name.lower() for name in foreign.columns]
    for columns in (primary, *(index.columns for index in existing)):
        if [name.lower() for name in columns[: len(wanted)] if name] == wanted:
            return None
    columns, whole = foreign.columns, (None,) * len(foreign.columns)
    return Index(foreign.name or _free_name(columns[0], existing), columns, whole)


def _free_name(wanted: str, existing: Collection[Index]) -> str:
    taken = {index.name.lower() for index in existing}
    # PRIMARY is the primary key's name alone.
    names = [wanted, *(f"{wanted}_{number}" for number in range(2, 100))]
    return next((n for n in names if n.lower() not in taken and n.lower() != _PRIMARY), wanted)


def _find(schema: TableSchema, name: str) -> Column:
    try:
        return schema.column(name)
    except KeyError:
        raise SchemaMismatch(f"a key is made of the column {name!r}, which the recorded shape doesn't have") from None


def _spelled(schema: TableSchema, index: Index) -> Index:
    """Return the index with its columns as the table spells them, and without prefixes that hold a whole column."""
    columns = tuple(name if name is None else _find(schema, name).name for name in index.columns)
    parts = [
        (name, None if name is None or is_whole(schema.column(name), prefix) else prefix)
        for name, prefix in zip(columns, index.prefixes, strict=True)
        if name is None or name != schema.row_end
    ]
    return replace(index, columns=tuple(name for name, _ in parts), prefixes=tuple(prefix for _, prefix in parts))


def is_whole(column: Column, prefix: int | None) -> bool:
    """Return whether an index over this prefix holds all of the column. The servers ignore a prefix of numbers, dates
    and the like."""
    return prefix in (None, column.length) or not column.type.endswith(CAN_HAVE_PREFIX)
