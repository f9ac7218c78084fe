"""Writer of Kafka Connect's values as its JsonConverter writes them, whole columns at once.

Source: Kafka's org.apache.kafka.connect.json.JsonConverter: bytes and decimals are base64, a schema stands beside its
``payload``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import pairwise
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from binlake.feeds.formats import base64_numbers
from binlake.feeds.formats.connect import Schema, with_epochs
from binlake.feeds.formats.decimals import are_small, numbers_of, unscaled
from binlake.feeds.formats.joining import Part, joined, quoted

_quoted: Callable[[str], str] = encode_basestring
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class JsonWriter:
    """Writer of JSON. schemas: whether each message includes its schema."""

    def __init__(self, *, schemas: bool = False) -> None:
        self._schemas = schemas

    def column(self, schema: Schema, values: pa.Array) -> pa.StringArray:
        return pc.fill_null(self._texts(schema, with_epochs(schema, values)), "null")

    def _texts(self, schema: Schema, values: pa.Array) -> pa.StringArray:
        """Return values as JSON; null stays null."""
        if pa.types.is_decimal(values.type):
            return _decimals(values)
        kind = schema["type"]
        if kind == "string":
            return quoted(values)
        if kind == "bytes":
            return _each(values, encoded)
        if kind == "double":
            return _each(values, repr)
        if kind == "array":
            return _vectors(values)
        if kind == "struct":
            parts = [self.column(field, values.field(field["field"])) for field in schema["fields"]]
            return pc.if_else(values.is_valid(), self.struct(schema, parts), None)
        return values.cast(pa.string())  # a single-precision number has its shortest exact text, as in Java

    def constant(self, schema: Schema, value: Any) -> pa.Scalar:
        return pa.scalar(as_json(value))

    def struct(self, schema: Schema, parts: Sequence[Part], there: pa.Array | None = None) -> Part:
        named: list[Part | str] = []
        for field, part in zip(schema["fields"], parts, strict=True):
            named += [f"{',' if named else '{'}{_quoted(field['field'])}:", part]
        made = joined(*named, "}")
        return made if there is None or not there.null_count else pc.if_else(there.is_valid(), made, "null")

    def message(self, topic: str, schema: Schema, body: Part, *, key: bool = False) -> Part:
        if self._schemas:
            body = joined(f'{{"schema":{as_json(schema)},"payload":', body, "}")
        return body.cast(pa.binary())

    def single(self, topic: str, schema: Schema, value: Any, *, key: bool = False) -> bytes:
        text = as_json(value)
        return (f'{{"schema":{as_json(schema)},"payload":{text}}}' if self._schemas else text).encode()


def encoded(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


def as_json(value: Any) -> str:
    """Return a value as JSON without spaces, as the JSON converter writes it."""
    return _ENCODER.encode(value)


def _each(values: pa.Array, write: Callable[[Any], str]) -> pa.StringArray:
    """Write values one by one. NaN and infinities would be invalid JSON, but MySQL doesn't have them."""
    return pa.array([None if value is None else write(value) for value in values.to_pylist()], pa.string())


def _decimals(values: pa.Array) -> pa.StringArray:
    if not are_small(values):
        return _each(values, lambda value: encoded(unscaled(Decimal(value), values.type.scale)))
    made = base64_numbers.quoted(numbers_of(values))
    return pc.if_else(values.is_valid(), made, None) if values.null_count else made


def _vectors(values: pa.Array) -> pa.StringArray:
    inside = values.values.cast(pa.string()).to_pylist() if len(values) else []
    texts = (f"[{','.join(inside[start:end])}]" for start, end in pairwise(values.offsets.to_pylist()))
    return pc.if_else(values.is_valid(), pa.array(texts, pa.string()), None)
