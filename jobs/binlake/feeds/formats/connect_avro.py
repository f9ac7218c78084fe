"""Writer of Kafka Connect's values as Confluent's AvroConverter writes them, whole columns at once.

    0 | id of the schema, 4 bytes, big-endian | datum          subjects {topic}-key, {topic}-value

Schemas are converted as AvroData does it: a struct becomes a record with its schema's name; an optional type becomes a
union with null first, or with null last if it has a default that isn't null. ``connect.version``,
``connect.parameters``, ``connect.default``, ``connect.name`` and ``connect.type`` hold what Avro can't express, so that
a sink connector gets Connect's types back. Decimals also have Avro's logical type.

Names that Avro doesn't allow are adjusted as with Debezium's ``schema.name.adjustment.mode=avro`` and
``field.name.adjustment.mode=avro``: other letters become ``_``, and a leading digit gets ``_`` before it (in each part
of a schema's name, since readers refuse it there, too). Two columns with the same adjusted name are an error.

Columns' defaults are left out, unlike in Debezium. So a registry with compatibility BACKWARD refuses a new column that
is NOT NULL, and several tables in one topic; ``compatibility: NONE`` allows them.

A null in a column that is NOT NULL (text that isn't valid in its character set) is an error.

Sources: io.confluent.connect.avro.AvroData (fromConnectSchema, addAvroRecordField); Confluent's "Wire format";
io.debezium.schema.SchemaNameAdjuster and FieldNameUnderscoreReplacementFunction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from binlake.config.feed_config import Subjects
from binlake.errors import FeedError
from binlake.feeds.contract import Register
from binlake.feeds.formats import avro
from binlake.feeds.formats.connect import Schema, with_epochs
from binlake.feeds.formats.joining import Part, joined
from binlake.schema.types.connect_form import DECIMAL

_PRIMITIVES = {"int16": "int", "int32": "int", "int64": "long"}
"""Avro's names of primitive types, where they differ from Connect's."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")


# schemas --------------------------------------------------------------------------------------------------------------
def valid_name(name: str) -> str:
    """Return a field's name, or a part of a schema's name, as Avro allows it."""
    adjusted = _NOT_IN_NAMES.sub("_", name)
    return f"_{adjusted}" if adjusted[:1].isdigit() else adjusted


def avro_schema(schema: Schema) -> dict[str, Any]:
    """Return the Avro schema of a key's or value's struct. Raises FeedError if two columns get the same name."""
    made: dict[str, Any] = _type(schema, "", set())
    return made


def _type(schema: Schema, space: str, known: set[str]) -> Any:
    """Return the Avro type of a schema. space: the enclosing namespace. known: records defined before, used by name."""
    base = _record(schema, space, known) if schema["type"] == "struct" else _plain_type(schema, space, known)
    if not schema.get("optional"):
        return base
    return ["null", base] if schema.get("default") is None else [base, "null"]


def _plain_type(schema: Schema, space: str, known: set[str]) -> Any:
    kind = schema["type"]
    made: dict[str, Any] = {"type": _PRIMITIVES.get(kind, kind)}
    if kind == "array":
        made["items"] = _type(schema["items"], space, known)
    if schema.get("name") == DECIMAL:
        parameters = schema["parameters"]
        made |= {"scale": int(parameters["scale"]), "precision": int(parameters["connect.decimal.precision"])}
    made |= _connect_properties(schema)
    if kind == "int16":
        made["connect.type"] = kind
    if schema.get("name") == DECIMAL:
        made["logicalType"] = "decimal"
    return made["type"] if len(made) == 1 else made


def _record(schema: Schema, around: str, known: set[str]) -> Any:
    full = ".".join(map(valid_name, schema["name"].split(".")))
    space, _, name = full.rpartition(".")
    if full in known:
        return name if space == around else full
    known.add(full)
    fields: list[dict[str, Any]] = []
    for field in schema["fields"]:
        made = {"name": valid_name(field["field"]), "type": _type(field, space, known)}
        if any(made["name"] == other["name"] for other in fields):
            raise FeedError(
                f"{schema['name']} has two columns of the name that {field['field']!r} is in Avro, {made['name']!r}",
                remedy="exclude the table from the feed, or write encoding: json",
            )
        if field.get("optional") or "default" in field:
            made["default"] = field.get("default")
        fields.append(made)
    named = {"type": "record", "name": name, **({} if space == around else {"namespace": space})}
    return {**named, "fields": fields, **_connect_properties(schema)}


def _connect_properties(schema: Schema) -> dict[str, Any]:
    words = ("version", "parameters", "default", "name")
    return {f"connect.{word}": schema[word] for word in words if schema.get(word) is not None}


# values ---------------------------------------------------------------------------------------------------------------
def _branches(schema: Schema) -> tuple[bytes, bytes]:
    """Return the bytes before a value, and those of null, in a type's union; empty if it isn't optional."""
    if not schema.get("optional"):
        return b"", b""
    return (b"\x02", b"\x00") if schema.get("default") is None else (b"\x00", b"\x02")


def subject_of(strategy: Subjects, topic: str, schema: Mapping[str, Any], part: str) -> str:
    """Return the subject by Confluent's naming strategies. part: key or value."""
    if strategy == "TopicName":
        return f"{topic}-{part}"
    name = ".".join(filter(None, (schema.get("namespace"), schema["name"])))
    return name if strategy == "RecordName" else f"{topic}-{name}"


class AvroWriter:
    """Writer of Avro in Confluent's wire format."""

    def __init__(self, register: Register, subjects: Subjects = "TopicName") -> None:
        self._register, self._subjects = register, subjects
        self._heads: dict[tuple[str, bool], tuple[Schema, bytes]] = {}

    def column(self, schema: Schema, values: pa.Array) -> pa.BinaryArray:
        """Return a field's values, written; null in a field that isn't optional stays, and ``struct`` refuses it."""
        there, null = _branches(schema)
        if not null:
            return self._datums(schema, with_epochs(schema, values))
        return pc.fill_null(joined(there, self._datums(schema, values)), null)

    def _datums(self, schema: Schema, values: pa.Array) -> pa.BinaryArray:
        """Return values as Avro, without a union's branch; null stays null."""
        if pa.types.is_decimal(values.type):
            return avro.decimals(values)
        kind = schema["type"]
        if kind in ("string", "bytes"):
            return avro.strings(values)
        if kind == "boolean":
            return avro.flags(values)
        if kind in ("float", "double"):
            return avro.floats(values)
        if kind == "array":
            return avro.vectors(values)
        if kind == "struct":
            parts = [self.column(field, values.field(field["field"])) for field in schema["fields"]]
            return pc.if_else(values.is_valid(), joined(*parts), pa.scalar(None, pa.binary()))
        return avro.whole(values)

    def constant(self, schema: Schema, value: Any) -> pa.Scalar:
        """Return the Avro bytes of a value that all rows have."""
        return pa.scalar(self._datum(schema, value), pa.binary())

    def _datum(self, schema: Schema, value: Any) -> bytes:
        there, null = _branches(schema)
        if value is None:
            return null
        kind = schema["type"]
        if kind == "struct":
            return there + b"".join(self._datum(field, value.get(field["field"])) for field in schema["fields"])
        if kind == "array":
            items = b"".join(self._datum(schema["items"], item) for item in value)
            block = self._datum({"type": "int64"}, len(value)) + items if value else b""
            return there + block + b"\x00"
        made: bytes = self._datums(schema, pa.array([value]))[0].as_py()
        return there + made

    def struct(self, schema: Schema, parts: Sequence[Part], there: pa.Array | None = None) -> Part:
        """Return records of the fields' bytes.

        there: NULL where the record is null. Raises FeedError for a NULL in a column that is NOT NULL.
        """
        before, null = _branches(schema)
        made = joined(before, *parts)
        if there is None:
            return made
        if pc.any(pc.and_(there.is_valid(), made.is_null())).as_py():
            raise FeedError(
                f"a row of {schema['name']} has NULL in a column that is NOT NULL: {_columns_with_null(schema, there)}",
                remedy="exclude the table from the feed, or write encoding: json",
            )
        return pc.if_else(there.is_valid(), made, pa.scalar(null, pa.binary()))

    def message(self, topic: str, schema: Schema, body: Part, *, key: bool = False) -> Part:
        """Return the records as messages, each with the wire format's magic byte and schema id before it."""
        return joined(self._head(topic, schema, key), body)

    def single(self, topic: str, schema: Schema, value: Any, *, key: bool = False) -> bytes:
        """Return one value as a message in the wire format."""
        return self._head(topic, schema, key) + self._datum(schema, value)

    def _head(self, topic: str, schema: Schema, key: bool) -> bytes:
        """Return the bytes before a record, with its schema's id. Raises FeedError for a refused schema."""
        known = self._heads.get((topic, key))
        if known is None or known[0] is not schema:
            made = avro_schema(schema)
            subject = subject_of(self._subjects, topic, made, "key" if key else "value")
            head = b"\x00" + self._register(subject, made).to_bytes(4, "big")
            known = self._heads[topic, key] = schema, head
        return known[1]


def _columns_with_null(schema: Schema, there: pa.StructArray) -> str:
    rows = there.filter(there.is_valid())
    names = [field["field"] for field in schema["fields"] if not field.get("optional")]
    return ", ".join(name for name in names if rows.field(name).null_count) or "?"
