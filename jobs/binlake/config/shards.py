"""Tables of one shape, the shards, that the lake shows as one table: ``merge_tables`` in the YAML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from binlake import names
from binlake.config.section import Section
from binlake.schema.table import TableName

_VARIES = "%"
"""Stands for the part of a shard's name that is the value of the source column; at least one character."""


def _has_one_place(pattern: str) -> str:
    database, dot, table = pattern.partition(".")
    if not (database and dot and table):
        raise ValueError(f"{pattern!r} is no table; write database.table, such as tenant_%.orders")
    if pattern.count(_VARIES) != 1:
        raise ValueError(f"{pattern!r} needs one %, where the names of the shards differ, such as tenant_%.orders")
    if set(pattern) & set("*?["):
        raise ValueError(f"{pattern!r}: only % stands for other characters here")
    return pattern


def _is_plain_table(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_]*\.[A-Za-z0-9][A-Za-z0-9_]*", name):
        raise ValueError(f"{name!r} can't be the name of a table here; write database.table with letters, digits and _")
    return name


def _is_plain_column(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(f"{name!r} can't be the name of a column here; write letters, digits and _, a letter first")
    return name


@dataclass(frozen=True)
class Shard:
    """The place of a table in a merged one. into: the merged table. column: the one that holds ``value``."""

    into: TableName
    column: str
    value: str

    @property
    def folder(self) -> str:
        """Return the name of the shard's folder in that of the merged table, of plain characters alone."""
        return names.folder(f"{self.column}={self.value}", plain=True)

    @property
    def recorded(self) -> tuple[str, str, str]:
        """Return the place as a table's shape has it."""
        return str(self.into), self.column, self.value


class MergedTable(Section):
    """Tables that are one table of the lake.

    from_: ``database.table`` with one ``%``: the part of the name that stands there is the value of ``source_column``,
    so that each shard has another one. into: the merged table, ``database.table`` in the lake.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    from_: Annotated[str, AfterValidator(_has_one_place), Field(alias="from")]
    into: Annotated[str, AfterValidator(_is_plain_table)]
    source_column: Annotated[str, AfterValidator(_is_plain_column)]

    @property
    def name(self) -> TableName:
        """Return the name of the merged table."""
        return TableName.parse(self.into)

    @cached_property
    def _written(self) -> re.Pattern[str]:
        before, _, behind = (re.escape(part) for part in self.from_.partition(_VARIES))
        within = "[^.]+" if "." in behind else ".+"  # a database's name ends at the first dot
        return re.compile(f"{before}({within}){behind}", re.DOTALL)

    def shard(self, name: TableName) -> Shard | None:
        """Return the place of a table in the merged one; None for any other table."""
        match = self._written.fullmatch(str(name))
        return Shard(self.name, self.source_column, match[1]) if match else None


def refuse_same_tables(merged: Sequence[MergedTable]) -> None:
    """Raise ValueError where two entries fill one table, as two shards could then have one value, or where a merged
    table would be a part of another."""
    intos = [entry.into.lower() for entry in merged]
    for entry in merged:
        if intos.count(entry.into.lower()) > 1:
            raise ValueError(
                f"merge_tables: two entries fill {entry.into}, in which two shards could have the same "
                f"{entry.source_column}; give each entry a table of its own"
            )
        if shard_of(merged, entry.name):
            raise ValueError(f"merge_tables: a table that is called {entry.into} would be one of the shards; rename it")


def shard_of(merged: Sequence[MergedTable], name: TableName) -> Shard | None:
    """Return the place of a table in a merged one, by the first entry that has it; None for any other table."""
    places = (entry.shard(name) for entry in merged)
    return next((place for place in places if place), None)
