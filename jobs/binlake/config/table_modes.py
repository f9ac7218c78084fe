"""Modes of tables in the YAML: what the lake keeps of a table beside its mirror, and how its mirror keeps rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from binlake import names
from binlake.config.section import Section, TablePattern

BesideMode = Literal["history", "log"]
"""Modes that keep a table of their own beside the mirror."""
BESIDE: tuple[BesideMode, ...] = ("history", "log")
RowMetadata = Literal["batch", "committed", "position"]


@dataclass(frozen=True)
class HistoryColumns:
    """The names of a history's own columns. is_current: None where there is no such column."""

    valid_from: str
    valid_to: str
    is_current: str | None
    from_position: str = "from_position"
    to_position: str = "to_position"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns that a history has, in their order."""
        current = () if self.is_current is None else (self.is_current,)
        return (self.valid_from, self.valid_to, *current, self.from_position, self.to_position)


_COLUMNS = {
    "binlake": HistoryColumns("valid_from", "valid_to", "is_current"),
    "databricks": HistoryColumns("__START_AT", "__END_AT", None),
    "fivetran_names": HistoryColumns("_fivetran_start", "_fivetran_end", "_fivetran_active"),
    "dbt": HistoryColumns("dbt_valid_from", "dbt_valid_to", None),
}


def _columns_by_name(value: Any) -> Any:
    """Return ``fivetran_names`` for ``fivetran``, as it was called first: only the names are Fivetran's.

    Its ``_fivetran_end`` is a far moment while a version is current, and else the next one's start less a millisecond.
    Two versions within a millisecond would end before they begin, and between two a row would be in none.
    """
    return "fivetran_names" if value == "fivetran" else value


class HistoryMode(Section):
    """A row for every version of a row.

    columns: the tool whose names the columns have that say when a version held; the values are binlake's. per: whether
    several changes of a row in one transaction are one version. track: patterns of columns of which another value makes
    a new version; ``except_`` overrides it.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    columns: Annotated[Literal["binlake", "databricks", "fivetran_names", "dbt"], BeforeValidator(_columns_by_name)] = (
        "binlake"
    )
    per: Literal["transaction", "mutation"] = "transaction"
    track: list[str] = ["*"]
    except_: Annotated[list[str], Field(alias="except")] = []

    @property
    def own(self) -> HistoryColumns:
        """Return the names of the history's own columns."""
        return _COLUMNS[self.columns]

    def tracked(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Return those of the columns of which another value makes a new version. Patterns are of any case."""

        def is_one(name: str, patterns: Iterable[str]) -> bool:
            return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)

        return tuple(name for name in columns if is_one(name, self.track) and not is_one(name, self.except_))


class LogMode(Section):
    """A row for every mutation."""


class TableModes(Section):
    """The modes of the tables that a pattern names.

    mirror: whether the mirror has rows. soft_delete: deleted rows stay in it. row_metadata: facts about each row's
    newest mutation that it has as columns.
    """

    tables: TablePattern
    history: HistoryMode | None = None
    log: LogMode | None = None
    mirror: bool = True
    soft_delete: bool = False
    row_metadata: list[RowMetadata] = []

    @model_validator(mode="after")
    def _is_no_contradiction(self) -> Self:
        if why := contradiction(self):
            raise ValueError(why)
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return what the entry says alone: a default that it doesn't say would contradict other entries once it is
        read again."""
        return {name: value for name, value in write(self).items() if name in self.model_fields_set}

    @property
    def said(self) -> frozenset[str]:
        """Return the settings that the entry says. In what an older binlake wrote, which has all of them, those are
        meant that aren't defaults."""
        names = frozenset(self.model_fields_set - {"tables"})
        if names != type(self).model_fields.keys() - {"tables"}:
            return names
        return frozenset(name for name in names if getattr(self, name) != type(self).model_fields[name].default)

    @property
    def beside(self) -> tuple[BesideMode, ...]:
        """Return the modes that keep a table beside the mirror."""
        return tuple(mode for mode in BESIDE if getattr(self, mode) is not None)

    @property
    def tell_of_rows(self) -> bool:
        """Return whether the mirror has columns of its own, with facts about its rows."""
        return self.soft_delete or bool(self.row_metadata)


def beside_table(table: str, mode: BesideMode) -> str:
    """Return the name of the table that a mode keeps beside a mirror."""
    return f"{table}__{mode}"


def mirror_of(table: str) -> tuple[str, BesideMode] | None:
    """Return the table beside whose mirror a mode would keep a table of this name, and the mode."""
    base, _, mode = table.rpartition("__")
    return next(((base, known) for known in BESIDE if base and mode.lower() == known), None)


def contradiction(modes: TableModes) -> str:
    """Return why a table can't have these modes at once; empty where it can."""
    if not modes.mirror:
        if not modes.beside:
            return "mirror: false without log leaves nothing of the table; exclude it instead"
        if modes.history:
            return "a history begins with the rows that are copied for the mirror, and mirror is false"
        if modes.soft_delete or modes.row_metadata:
            return "soft_delete and row_metadata are columns of the mirror, and mirror is false"
    return ""


NO_MODES = TableModes(tables="*.*")
"""The modes of a table that no pattern names."""


def _once(entries: list[TableModes]) -> list[TableModes]:
    patterns = [entry.tables for entry in entries]
    if twice := next((pattern for pattern in patterns if patterns.count(pattern) > 1), None):
        raise ValueError(f"{twice!r} is in two entries; put its modes into one")
    return entries


TablesModes = Annotated[list[TableModes], AfterValidator(_once)]
"""The entries of the YAML, each for another pattern."""


def modes_of(entries: Sequence[TableModes], database: str, table: str) -> TableModes:
    """Return the modes of a table: those of all entries that name it. Raises ValueError where entries contradict."""
    chosen: dict[str, Any] = {}
    said_by: dict[str, str] = {}
    for entry in entries:
        if not names.matches(entry.tables, database, table):
            continue
        for name in entry.said:
            value = getattr(entry, name)
            if name in chosen and chosen[name] != value:
                raise ValueError(
                    f"tables.modes: the entries of {said_by[name]} and {entry.tables} give {database}.{table} two"
                    f" different settings of {name}; take one away"
                )
            chosen[name], said_by[name] = value, entry.tables
    if not chosen:
        return NO_MODES
    merged = NO_MODES.model_copy(update=chosen)
    if why := contradiction(merged):
        raise ValueError(f"tables.modes: {database}.{table}: {why}")
    return merged
