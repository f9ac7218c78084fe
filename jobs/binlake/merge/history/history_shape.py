"""The columns of a history: its own first, whose statistics show where current versions are, then the mirror's.

| own column (columns: binlake) | holds |
|-------------------------------|-------|
| valid_from, valid_to          | commit time of the version's first mutation, and of its end; NULL while current |
| is_current                    | whether it has no end |
| from_position, to_position    | the places of both in the log: see position_texts.py |

A column that the server drops stays, as does one that gets another type in the lake, under a name with a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from binlake.config.table_modes import HistoryMode
from binlake.delta import plain_files, plain_tables
from binlake.delta.delta_actions import DeltaAction
from binlake.merge.engine import reshape_in_process
from binlake.merge.history.history_files import HistoryField
from binlake.merge.history.history_rows import FROM, TIME, TO, VALID_FROM, VALID_TO
from binlake.merge.reshape import BesideColumn, ReshapedColumn, reshaped
from binlake.schema.lake_columns import LakeColumn


@dataclass(frozen=True)
class HistoryShape:
    """A history's columns as a step wants them. mirrored: the mirror's."""

    mode: HistoryMode
    mirrored: Sequence[LakeColumn]

    @property
    def own(self) -> tuple[BesideColumn, ...]:
        """Return the history's own columns: times, positions and, by the YAML, whether a version is current."""
        names = self.mode.own
        current = () if names.is_current is None else (BesideColumn(names.is_current, "BOOLEAN", pa.bool_()),)
        return (
            BesideColumn(names.valid_from, "TIMESTAMP", TIME), BesideColumn(names.valid_to, "TIMESTAMP", TIME),
            *current,
            BesideColumn(names.from_position, "STRING", pa.string()),
            BesideColumn(names.to_position, "STRING", pa.string()),
        )  # fmt: skip

    @property
    def wanted(self) -> tuple[BesideColumn, ...]:
        """Return all columns: the own ones, then the mirror's."""
        return (*self.own, *(BesideColumn(column.name, column.delta, column.arrow) for column in self.mirrored))

    @property
    def ends(self) -> dict[str, str]:
        """Return the names of the own columns by those in history_rows.py."""
        names = self.mode.own
        return {
            VALID_FROM: names.valid_from,
            VALID_TO: names.valid_to,
            FROM: names.from_position,
            TO: names.to_position,
        }

    def inward(self, rows: pa.Table) -> pa.Table:
        """Return rows of the table as history_rows.py takes them."""
        given = {name: inner for inner, name in self.ends.items()}
        rows = rows.drop_columns([self.mode.own.is_current]) if self.mode.own.is_current else rows
        return rows.rename_columns([given.get(name, name) for name in rows.column_names])

    def outward(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """Return rows of history_rows.py as the table has them. names: of the table's columns, in order."""
        rows = rows.rename_columns([self.ends.get(name, name) for name in rows.column_names])
        if self.mode.own.is_current:
            rows = rows.append_column(self.mode.own.is_current, pc.is_null(rows[self.mode.own.to_position]))
        return rows.select(names)

    def reshaped(
        self, table: DeltaTable, renamed: Sequence[tuple[str, str]] = (), begun: Sequence[str] = ()
    ) -> list[ReshapedColumn]:
        """Return the columns that an existing history has once the wanted ones are added. begun: of these, those that
        begin without a value."""
        return reshaped(plain_tables.fields_of(table), self.wanted, renamed, begun)


def is_new_shape(table: DeltaTable, columns: Sequence[ReshapedColumn]) -> bool:
    """Return whether columns differ from those that are there."""
    before = [field["name"] for field in plain_tables.fields_of(table)]
    return [column.origin for column in columns] != before or any(column.origin != column.name for column in columns)


def table_fields(
    table: DeltaTable, path: str, columns: Sequence[ReshapedColumn]
) -> tuple[list[HistoryField], list[DeltaAction]]:
    """Return the columns of a history behind a commit, and the actions that make them so; none where they stay."""
    before = {field["name"]: field for field in plain_tables.fields_of(table)}
    actions: list[DeltaAction] = []
    fields = list(before.values())
    if is_new_shape(table, columns):
        actions, fields = reshape_in_process.reshaping(table, path, columns)
    return [
        HistoryField(
            column.name,
            plain_tables.stored_field(field, plain_files.arrow_of(field["type"])),
            plain_tables.stored_field(before[column.origin], plain_files.arrow_of(field["type"]))
            if column.origin
            else None,
        )
        for column, field in zip(columns, fields, strict=True)
    ], actions
