"""Tables of one shape, the shards, that the lake shows as one table: ``merge_tables`` in the YAML.

The shards of a merged table may be of several sources. It is then in a folder of the lake beside the folders of these.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from binlake import names
from binlake.config.section import Section
from binlake.config.yaml_file import NAME
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
        raise ValueError(f"{pattern!r}: only % matches other characters here")
    return pattern


_LITERAL = re.compile(r"(?:[^\\.^$*+?{}\[\]|()]|\\[^A-Za-z0-9])*")
"""A part of a regular expression in which each character means itself, or is escaped."""


def _is_one_group(regex: str) -> str:
    before, inner, behind = _parts(regex)
    if not inner or inner.startswith("?"):
        raise ValueError(
            f"{regex!r} needs one group, for the value of the source column, such as tenant_([0-9]+)\\.orders"
        )
    for literal in (before, behind):
        if not _LITERAL.fullmatch(literal):
            raise ValueError(
                f"{regex!r}: only the group may vary, as two shards could have the same value else; escape each other "
                "special character, as in tenant_([0-9]+)\\.orders"
            )
    if (before + behind).count("\\.") != 1 or _plain(before).startswith(".") or _plain(behind).endswith("."):
        raise ValueError(f"{regex!r} is no table; write database\\.table, such as tenant_([0-9]+)\\.orders")
    try:
        compiled = re.compile(inner)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{regex!r} is no regular expression: {error}") from error
    if compiled.groups:
        raise ValueError(f"{regex!r} has more than one group; write (?:…) for those within")
    if compiled.fullmatch(""):
        raise ValueError(f"{regex!r}: its group has to need a character, such as ([0-9]+)")
    return regex


def _parts(regex: str) -> tuple[str, str, str]:
    """Return what is before the first group of a regular expression, in it, and behind it."""
    opened = re.match(rf"{_LITERAL.pattern}\(", regex)
    if opened is None or not regex.isprintable():
        return regex, "", ""
    begin, depth, place = opened.end(), 1, opened.end()
    in_set = 0  # the place of a set's first character
    while place < len(regex) and depth:
        char = regex[place]
        if char == "\\":
            place += 1
        elif in_set:
            in_set = 0 if char == "]" and place > in_set else in_set  # as the first one it is a character
        elif char == "[":
            in_set = place + (2 if regex[place + 1 : place + 2] == "^" else 1)
        else:
            depth += (char == "(") - (char == ")")
        place += 1
    return (regex[: begin - 1], regex[begin : place - 1], regex[place:]) if not depth else (regex, "", "")


def _plain(literal: str) -> str:
    return re.sub(r"\\(.)", r"\1", literal)


def _is_plain_table(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_]*\.[A-Za-z0-9][A-Za-z0-9_]*", name):
        raise ValueError(f"{name!r} can't be the name of a table here; write database.table with letters, digits and _")
    return name


def is_plain_column(name: str) -> str:
    """Return the name of a column. Raises ValueError for one that readers would have to quote."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(f"{name!r} can't be the name of a column here; write letters, digits and _, a letter first")
    return name


SourceName = Annotated[str, Field(pattern=NAME)]


@dataclass(frozen=True)
class Shard:
    """The place of a table in a merged one.

    into: the merged table. column: the one that holds ``value``. folder_of: the folder in the lake of a merged table
    that several sources fill, where ``source_name_column`` has ``source``. Empty for one that this source fills alone.
    """

    into: TableName
    column: str
    value: str
    folder_of: str = ""
    source_name_column: str = ""
    source: str = ""

    @property
    def folder(self) -> str:
        """Return the name of the shard's folder in that of the merged table, of plain characters alone."""
        own = names.folder(f"{self.column}={self.value}", plain=True)
        return f"{folders_begin(self.source_name_column, self.source)}{own}" if self.folder_of else own

    @property
    def recorded(self) -> tuple[str, ...]:
        """Return the place as a table's shape has it."""
        alone = (str(self.into), self.column, self.value)
        return (*alone, self.folder_of, self.source_name_column) if self.folder_of else alone


def folders_begin(source_name_column: str, source: str) -> str:
    """Return how the folders of a source's shards begin in that of a merged table of several sources. The names of
    sources have no dot."""
    return f"{source_name_column}={source}."


class MergedTable(Section):
    """Tables that are one table of the lake.

    from_: ``database.table`` with one ``%``: the part of the name in its place is the value of ``source_column``,
    so that each shard has another one. from_regex: in its place, a regular expression of the whole name, in which only
    a group varies. into: the merged table, ``database.table`` in the lake. sources: those whose tables it shows; none
    for this source alone. source_name_column: has their names. folder: is beside theirs in the lake, and has the table.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    from_: Annotated[Annotated[str, AfterValidator(_has_one_place)] | None, Field(alias="from")] = None
    from_regex: Annotated[str, AfterValidator(_is_one_group)] | None = None
    into: Annotated[str, AfterValidator(_is_plain_table)]
    source_column: Annotated[str, AfterValidator(is_plain_column)]
    sources: list[SourceName] = []
    source_name_column: Annotated[str, AfterValidator(is_plain_column)] | None = None
    folder: SourceName | None = None

    @property
    def name(self) -> TableName:
        """Return the name of the merged table."""
        return TableName.parse(self.into)

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        if (self.from_ is None) == (self.from_regex is None):
            raise ValueError("write either from or from_regex, which finds the shards by their names")
        return self

    @model_validator(mode="after")
    def _is_of_one_source_or_of_several(self) -> Self:
        said = (bool(self.sources), self.source_name_column is not None, self.folder is not None)
        if any(said) and not all(said):
            raise ValueError("sources, source_name_column and folder go together: write all three, or none")
        refuse_same_places(self.sources, self.folder or "")
        return self

    @model_validator(mode="after")
    def _has_two_columns(self) -> Self:
        if (self.source_name_column or "").lower() == self.source_column.lower():
            raise ValueError("source_name_column and source_column are two columns; give them two names")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that distinguish the shards."""
        return (self.source_name_column, self.source_column) if self.source_name_column else (self.source_column,)

    def begins(self, source: str) -> str:
        """Return how the folders of a source's shards begin in that of the merged table."""
        return folders_begin(self.source_name_column, source) if self.source_name_column else ""

    @cached_property
    def _written(self) -> tuple[str, re.Pattern[str], str]:
        """The beginning and the end of each shard's name, and what its value is like."""
        if self.from_regex is not None:
            before, inner, behind = _parts(self.from_regex)
            return _plain(before), re.compile(inner, re.DOTALL), _plain(behind)
        before, _, behind = (self.from_ or "").partition(_VARIES)
        return before, re.compile(".+", re.DOTALL), behind

    def shard(self, name: TableName, source: str) -> Shard | None:
        """Return the place of a source's table in the merged one; None for any other table."""
        text, (before, within, behind) = str(name), self._written
        if not (text.startswith(before) and text.endswith(behind)):
            return None
        value = text[len(before) : len(text) - len(behind)]
        if "." in behind and "." in value:  # a database's name ends at the first dot
            return None
        if not (value and within.fullmatch(value)):
            return None
        if self.folder is None or self.source_name_column is None:
            return Shard(self.name, self.source_column, value)
        return Shard(self.name, self.source_column, value, self.folder, self.source_name_column, source)


def refuse_same_places(sources: Sequence[str], folder: str) -> None:
    """Raise ValueError where two sources have the same folder in the lake, or one has the merged tables'."""
    lower = [source.lower() for source in sources]
    if len({*lower}) < len(lower):
        raise ValueError("sources: each is named once, in whichever case")
    if folder.lower() in lower:
        raise ValueError(f"folder: {folder!r} is the folder of a source; give the merged tables one of their own")


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
        if shard_of(merged, entry.name, ""):
            raise ValueError(f"merge_tables: a table that is called {entry.into} would be one of the shards; rename it")


def refuse_absent(merged: Sequence[MergedTable], source: str) -> None:
    """Raise ValueError where a table is filled by several sources, and this one isn't among them."""
    for entry in merged:
        if entry.sources and source not in entry.sources:
            raise ValueError(
                f"merge_tables: the sources that fill {entry.into} are {', '.join(entry.sources)}, without {source}; "
                "add it to them, or take the entry out of its YAML"
            )


def shard_of(merged: Sequence[MergedTable], name: TableName, source: str) -> Shard | None:
    """Return the place of a source's table in a merged one, by the first entry that has it; None for any other."""
    places = (entry.shard(name, source) for entry in merged)
    return next((place for place in places if place), None)
