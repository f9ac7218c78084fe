"""Other columns over a plain table's rows in one Delta commit without Spark.

Columns come as NULL, go, move and get other names by Delta's metadata alone: no data file is read or written. Where
columns have a constant in old rows, or get a type that Delta writes otherwise, the rows of a small table are rewritten
in the same commit. Under ``type_widening`` a type that becomes wider is metadata, too: data files keep the narrower
one, which the column's metadata records (Delta's protocol, "Type Widening"). The commit says what ``lake_table.py``
says with Spark, column mapping and the protocol's features included where a table first needs them. It takes the place
behind the version that was read, or none.

| left to Spark | because |
|---|---|
| values of large tables that become others | every row is rewritten |
| a type that becomes another in a way that casts.py doesn't know | only Spark's CAST is proved to be the server's |
| values that don't fit into a column's new type | Spark refuses them, by name |
| other values in tables that Delta's type widening touched | data files of several types would become one |
| tables with constraints, change data feeds, partitions … | Delta's own writer knows what they ask |
| tables of a protocol before table features | Spark upgrades them |
| stores on which two writers don't exclude each other | no commit there is conditional |
| all, where ``merge.without_spark_mb`` is 0 | that is how it is asked for |
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from binlake.config import PipelineConfig
from binlake.delta import plain_tables
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import (
    FIELD_ID,
    MAPPING_MODE,
    MOST_ID,
    TYPE_CHANGES,
    WIDENING,
    WIDENS,
    commented,
    delta_type,
    id_of,
    mapped,
    needs_column_mapping,
    numbered,
    type_features,
)
from binlake.delta.key_ranges import PHYSICAL_NAME
from binlake.delta.plain_tables import StepCommit
from binlake.errors import LakeTableChanged, LeftToSpark
from binlake.iceberg.table_metadata import published_ids
from binlake.merge.filled_rows import filled, is_filled
from binlake.merge.reshape import ReshapedColumn, renames_or_drops, reshaped_fields, widens
from binlake.schema.table import TableSchema

_Fields = list[dict[str, Any]]


@dataclass(frozen=True)
class _Columns:
    """A table's columns as its metadata has them: Delta's fields, and the settings beside them."""

    fields: _Fields
    settings: Mapping[str, str]

    @property
    def are_mapped(self) -> bool:
        return self.settings.get(MAPPING_MODE, "none") != "none"

    def mapped(self, ids: Mapping[str, int]) -> _Columns:
        """Turn column mapping by name on, in a table whose data files know nothing of it. ids: those by which the
        table's columns are published; readers of Iceberg know them."""
        fields, most = mapped(self.fields, ids)
        return _Columns(fields, {**self.settings, MAPPING_MODE: "name", MOST_ID: str(most)})

    def reshaped(self, columns: Sequence[ReshapedColumn], path: str, *, widen: bool) -> _Columns:
        """Return the columns after the step. path: the table's. widen: whether data files keep the types until now.
        Raises KeyError where an origin isn't there."""
        names = [column.name for column in columns]
        before = self
        if not self.are_mapped and (renames_or_drops(self.fields, columns) or needs_column_mapping(names)):
            before = self.mapped(published_ids(path))
        elif not self.are_mapped:
            before = _Columns(numbered(self.fields, published_ids(path)), self.settings)
        if widen:
            before = _Columns(before.fields, {**before.settings, WIDENS: "true"})
        after = [
            _retyped(field, delta_type(column.kind), widen=widen) if column.kind_before != column.kind else field
            for field, column in zip(reshaped_fields(before.fields, columns), columns, strict=True)
        ]
        return before._numbered(after) if before.are_mapped else _Columns(after, before.settings)

    def replaced(self, fields: _Fields, path: str) -> _Columns:
        """Return columns that have nothing of those that were there, whatever their names. path: the table's."""
        before = self
        if not self.are_mapped and needs_column_mapping([field["name"] for field in fields]):
            before = self.mapped(published_ids(path))
        if before.are_mapped:
            return before._numbered(fields)
        ids = published_ids(path) | {field["name"]: number for field in self.fields if (number := id_of(field))}
        return _Columns(numbered(fields, ids), before.settings)

    def _numbered(self, fields: _Fields) -> _Columns:
        """Give new fields numbers that no field had before, and names of their own in data files."""
        most = int(self.settings[MOST_ID])
        numbered: _Fields = []
        for field in fields:
            if FIELD_ID not in field["metadata"]:
                most += 1
                field = {**field, "metadata": {FIELD_ID: most, PHYSICAL_NAME: f"col-{uuid.uuid4()}"}}
            numbered.append(field)
        return _Columns(numbered, {**self.settings, MOST_ID: str(most)})


def _retyped(field: dict[str, Any], kind: Any, *, widen: bool) -> dict[str, Any]:
    """Return a field with another type. widen: whether its metadata tell of the one until now."""
    if not widen or field["type"] == kind:
        return {**field, "type": kind}
    changes = [*field["metadata"].get(TYPE_CHANGES, ()), {"fromType": field["type"], "toType": kind}]
    return {**field, "type": kind, "metadata": {**field["metadata"], TYPE_CHANGES: changes}}


def reshape(log: LakeLog, columns: Sequence[ReshapedColumn], config: PipelineConfig, commit: StepCommit) -> None:
    """Make the table's columns ``columns``, in one commit; repeating it changes nothing.

    Raises LeftToSpark; LakeTableChanged where a column isn't there; CommitFailedError where somebody else committed
    meanwhile, or where the answer to our own commit got lost: the table's recorded version shows which; LakeError,
    OSError.
    """
    written = [column for column in columns if column.is_written]
    if others := [column.name for column in written if not is_filled(column)]:
        raise LeftToSpark(f"all rows get other values in {', '.join(others)}")
    widen = bool(written) and config.type_widening and all(widens(column) for column in written)
    table = log.opened()
    if (log.transaction_version(table) or -1) >= commit.version:
        return
    check(table, widened=widen or not written)
    actions, fields = reshaping(table, log.path, columns, widen=widen)
    operation = "Manual Update"
    if written and not widen:
        room = config.merge.without_spark_bytes
        try:
            rewritten = filled(log.path, table, fields, columns, room)
        except LeftToSpark as left:  # which doesn't know why rows are rewritten
            names = ", ".join(column.name for column in written)
            raise LeftToSpark(f"all rows get other values in {names}, and {left}") from None
        operation, actions = "WRITE", [*actions, *rewritten]
    plain_tables.commit(log, table, commit.own(operation), actions)


def reshaping(
    table: DeltaTable, path: str, columns: Sequence[ReshapedColumn], *, widen: bool = False
) -> tuple[list[DeltaAction], list[dict[str, Any]]]:
    """Return the actions that make a table's columns ``columns``, and Delta's fields then. widen: whether data files
    keep the types until now. Raises LakeTableChanged."""
    try:
        before = _Columns(plain_tables.fields_of(table), table.metadata().configuration)
        after = before.reshaped(columns, path, widen=widen)
    except KeyError as error:
        raise LakeTableChanged(
            f"{path} has no column {error.args[0]!r}", remedy="somebody changed the table; snapshot it again"
        ) from None
    return _actions(table, after), after.fields


def replacing(
    table: DeltaTable, path: str, fields: list[dict[str, Any]]
) -> tuple[list[DeltaAction], list[dict[str, Any]]]:
    """Return the actions that give a table other columns without a value, and Delta's fields then. fields: their names
    and types."""
    after = _Columns(plain_tables.fields_of(table), table.metadata().configuration).replaced(fields, path)
    return _actions(table, after, description=""), after.fields


def _actions(table: DeltaTable, after: _Columns, description: str | None = None) -> list[DeltaAction]:
    """Return the actions that give the table these columns, and the features that they need. description: see
    plain_tables.metadata_with."""
    return [*plain_tables.protocol_with(table, _features(after)), _metadata(table, after, description)]


def _metadata(table: DeltaTable, after: _Columns, description: str | None) -> DeltaAction:
    schema = json.dumps({"type": "struct", "fields": after.fields}, ensure_ascii=False)
    return plain_tables.metadata_with(table, schema, after.settings, description)


def is_described(log: LakeLog, schema: TableSchema) -> bool:
    """Return whether the table and its columns have the shape's comments already, and no others."""
    table = log.opened()
    fields = plain_tables.fields_of(table)
    return commented(fields, schema.lake_comments) == fields and (table.metadata().description or "") == schema.comment


def describe(log: LakeLog, schema: TableSchema, commit: StepCommit) -> None:
    """Give the table and its columns the shape's comments, and no others, in one commit of metadata alone. Raises what
    ``reshape`` does."""
    table = log.opened()
    after = _Columns(commented(plain_tables.fields_of(table), schema.lake_comments), table.metadata().configuration)
    check(table, widened=True)
    plain_tables.commit(log, table, commit.own("Manual Update"), [_metadata(table, after, schema.comment)])


def truncate(log: LakeLog, commit: StepCommit) -> None:
    """Take all rows away, in one commit without data files; raises what ``reshape`` does."""
    table = log.opened()
    if (log.transaction_version(table) or -1) >= commit.version:
        return
    check(table, widened=True)
    paths = pa.table(table.get_add_actions())["path"].to_pylist()
    gone = plain_tables.actions_of(table, log.path, paths)
    own = commit.own("DELETE", {"predicate": '["true"]'}, numRemovedFiles=len(gone))
    plain_tables.commit(log, table, own, [plain_tables.removed(add) for add in gone])


def check(table: DeltaTable, *, widened: bool = False) -> None:
    """Raise LeftToSpark where this process doesn't change the table's metadata. widened: see
    plain_tables.check_is_plain."""
    plain_tables.check_names_features(table)
    plain_tables.check_is_plain(table, widened=widened)


def _features(after: _Columns) -> list[str]:
    """Return the features of Delta's protocol that the columns ask for."""
    asked = ["columnMapping"] if after.are_mapped else []
    asked += [WIDENING] if WIDENS in after.settings else []
    return asked + type_features(after.fields)
