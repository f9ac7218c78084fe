"""Schemas of Debezium's messages, as Kafka Connect has them, and its description of a table's structure.

Source: Debezium's io.debezium.schema.SchemaFactory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from binlake.feeds.contract import FeedTable, SchemaChange
from binlake.schema.datatypes import REGISTRY
from binlake.schema.table import Column, TableName, TableSchema
from binlake.schema.types.connect_form import UNKNOWN, ConnectForm, ConnectType

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.]")


def valid_name(name: str) -> str:
    """Return a schema's name as Avro allows it: other characters become ``_``."""
    return _NOT_IN_NAMES.sub("_", name)


def _field(kind: str, field: str, *, optional: bool = True, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": optional, **more, "field": field}


def _struct(name: str, *fields: dict[str, Any], version: int = 1, optional: bool = False) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), "optional": optional, "name": name, "version": version}


def _array(items: Mapping[str, Any], field: str, *, optional: bool = False) -> dict[str, Any]:
    return _field("array", field, optional=optional, items=items)


_TEXT = {"type": "string", "optional": False}
_SOURCE = (
    _field("string", "version", optional=False),
    _field("string", "connector", optional=False),
    _field("string", "name", optional=False),
    _field("int64", "ts_ms", optional=False),
    _field(
        "string", "snapshot", name="io.debezium.data.Enum", version=1, default="false",
        parameters={"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},
    ),
    _field("string", "db", optional=False),
    _field("string", "sequence"),
    _field("int64", "ts_us"),
    _field("int64", "ts_ns"),
    _field("string", "table"),
    _field("int64", "server_id", optional=False),
    _field("string", "gtid"),
    _field("string", "file", optional=False),
    _field("int64", "pos", optional=False),
    _field("int32", "row", optional=False),
    _field("int64", "thread"),
    _field("string", "query"),
)  # fmt: skip
TRANSACTION = _struct(
    "event.block",
    _field("string", "id", optional=False),
    _field("int64", "total_order", optional=False),
    _field("int64", "data_collection_order", optional=False),
    optional=True,
)
BOUNDARY_KEY = _struct("io.debezium.connector.common.TransactionMetadataKey", _field("string", "id", optional=False))
_COUNT = _struct(
    "event.collection",
    _field("string", "data_collection", optional=False),
    _field("int64", "event_count", optional=False),
    optional=True,
)
BOUNDARY = _struct(
    "io.debezium.connector.common.TransactionMetadataValue",
    _field("string", "status", optional=False),
    _field("string", "id", optional=False),
    _field("int64", "event_count"),
    _array(_COUNT, "data_collections", optional=True),
    _field("int64", "ts_ms", optional=False),
)
HEARTBEAT_KEY = _struct("io.debezium.connector.common.ServerNameKey", _field("string", "serverName", optional=False))
HEARTBEAT = _struct("io.debezium.connector.common.Heartbeat", _field("int64", "ts_ms", optional=False))
_STRUCTURE_COLUMN = _struct(
    "io.debezium.connector.schema.Column",
    _field("string", "name", optional=False),
    _field("int32", "jdbcType", optional=False),
    _field("int32", "nativeType"),
    _field("string", "typeName", optional=False),
    _field("string", "typeExpression"),
    _field("string", "charsetName"),
    _field("int32", "length"),
    _field("int32", "scale"),
    _field("int32", "position", optional=False),
    *(_field("boolean", name) for name in ("optional", "autoIncremented", "generated")),
    _field("string", "comment"),
    _field("string", "defaultValueExpression"),
    _array(_TEXT, "enumValues", optional=True),
)
_STRUCTURE = _struct(
    "io.debezium.connector.schema.Table",
    _field("string", "defaultCharsetName"),
    _array(_TEXT, "primaryKeyColumnNames", optional=True),
    _array(_STRUCTURE_COLUMN, "columns"),
    _field("string", "comment"),
    optional=True,
)
_CHANGE = _struct(
    "io.debezium.connector.schema.Change",
    _field("string", "type", optional=False),
    _field("string", "id", optional=False),
    {**_STRUCTURE, "field": "table"},
)


def source(connector: str) -> dict[str, Any]:
    """Return the schema of the ``source`` block. connector: mysql or mariadb."""
    return _struct(f"io.debezium.connector.{connector}.Source", *_SOURCE)


def schema_change_key(connector: str) -> dict[str, Any]:
    """Return the schema of the key of schema changes. connector: mysql or mariadb."""
    name = f"io.debezium.connector.{connector}.SchemaChangeKey"
    return _struct(name, _field("string", "databaseName", optional=False))


def schema_change(connector: str) -> dict[str, Any]:
    """Return the schema of the schema-change topic's values."""
    return _struct(
        f"io.debezium.connector.{connector}.SchemaChangeValue",
        {**source(connector), "field": "source"},
        _field("int64", "ts_ms", optional=False),
        *(_field("string", name) for name in ("databaseName", "schemaName", "ddl")),
        _array(_CHANGE, "tableChanges"),
    )


def key(table: FeedTable, types: Sequence[ConnectType], name: str) -> dict[str, Any]:
    """Return the schema of a table's keys. name: ``source.db.table``."""
    by_name = {column.name: (column, kind) for column, kind in zip(table.columns, types, strict=True)}
    fields = [kind.schema(column, optional=False) for column, kind in (by_name[part] for part in table.key)]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{name}.Key"}


def envelope(table: FeedTable, types: Sequence[ConnectType], name: str, connector: str) -> dict[str, Any]:
    """Return the schema of a table's envelopes. name: ``source.db.table``. connector: mysql or mariadb."""
    fields = [kind.schema(column, optional=column.nullable) for column, kind in zip(table.columns, types, strict=True)]
    row = {"type": "struct", "fields": fields, "optional": True, "name": f"{name}.Value"}
    return _struct(
        f"{name}.Envelope",
        {**row, "field": "before"},
        {**row, "field": "after"},
        {**source(connector), "field": "source"},
        {**TRANSACTION, "field": "transaction"},
        _field("string", "op", optional=False),
        *(_field("int64", moment) for moment in ("ts_ms", "ts_us", "ts_ns")),
        version=2,
    )


def table_changes(change: SchemaChange) -> list[dict[str, Any]]:
    """Return the schema-change topic's description of the tables after a statement."""
    return [_table_change(change.kind, name, schema) for name, schema in change.tables]


def _table_change(kind: str, name: TableName, schema: TableSchema | None) -> dict[str, Any]:
    gone = schema is None and kind != "ALTER TABLE"  # an ALTER TABLE whose result may be unknown isn't a DROP
    word = "DROP" if gone else "CREATE" if kind.startswith("CREATE") else "ALTER"
    change = {"type": word, "id": f'"{name.database}"."{name.table}"'}
    return {**change, "table": None if schema is None else _structure(schema)}


def _structure(schema: TableSchema) -> dict[str, Any]:
    return {
        "defaultCharsetName": schema.charset,
        "primaryKeyColumnNames": list(schema.key),
        "columns": [_column(column, number) for number, column in enumerate(schema.logged, start=1)],
        "comment": None,
    }


def _connect_form(column: Column) -> ConnectForm:
    return REGISTRY[column.type].connect if column.type in REGISTRY else UNKNOWN


def _column(column: Column, position: int) -> dict[str, Any]:
    name, known = column.type.upper() + (" UNSIGNED" if column.unsigned else ""), _connect_form(column)
    return {
        "name": column.name,
        "jdbcType": known.jdbc,
        "nativeType": None,
        "typeName": name,
        "typeExpression": name,
        "charsetName": column.charset,
        "length": known.length(column),
        "scale": column.scale,
        "position": position,
        "optional": column.nullable,
        "autoIncremented": column.auto_increment,
        "generated": column.generated,
        "comment": None,
        "defaultValueExpression": column.default,
        "enumValues": [f"'{value}'" for value in column.values] or None,
    }
