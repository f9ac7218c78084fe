"""Writer of Kafka Connect's values as its JsonConverter writes them, whole columns at once.

Source: Kafka's org.apache.kafka.connect.json.JsonConverter: bytes and decimals are base64; a schema is beside its
``payload``.
"""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import pairwise
from json.encoder import encode_basestring
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlake.feeds.formats.connect import Schema, with_epochs
from binlake.feeds.formats.joining import Part, joined, quoted
from binlake.schema.decimals import OCTETS, are_small, numbers_of, unscaled

_LETTERS = np.frombuffer((string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode(), np.uint8)
_QUOTE, _PADDING = ord('"'), ord("=")

_quoted: Callable[[str], str] = encode_basestring
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class JsonWriter:
    """Writer of JSON. schemas: whether each message includes its schema."""

    def __init__(self, *, schemas: bool = False) -> None:
        self._schemas = schemas

    def column(self, schema: Schema, values: pa.Array) -> pa.StringArray:
        """Return a column's values as JSON texts; NULL is ``null``."""
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
        """Return the JSON text of a value that all rows have."""
        return pa.scalar(as_json(value))

    def struct(self, schema: Schema, parts: Sequence[Part], there: pa.Array | None = None) -> Part:
        """Return JSON objects of the fields' texts. there: NULL where the object is ``null``."""
        named: list[Part | str] = []
        for field, part in zip(schema["fields"], parts, strict=True):
            named += [f"{',' if named else '{'}{_quoted(field['field'])}:", part]
        made = joined(*named, "}")
        return made if there is None or not there.null_count else pc.if_else(there.is_valid(), made, "null")

    def message(self, topic: str, schema: Schema, body: Part, *, key: bool = False) -> Part:
        """Return the objects as the bytes of messages, each inside its schema's envelope if schemas are included."""
        if self._schemas:
            body = joined(f'{{"schema":{as_json(schema)},"payload":', body, "}")
        return body.cast(pa.binary())

    def single(self, topic: str, schema: Schema, value: Any, *, key: bool = False) -> bytes:
        """Return one value as the bytes of a message, inside its schema's envelope if schemas are included."""
        text = as_json(value)
        return (f'{{"schema":{as_json(schema)},"payload":{text}}}' if self._schemas else text).encode()


def encoded(data: bytes) -> str:
    """Return bytes as a JSON string in base64, with its quotes."""
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
    made = base64_texts(numbers_of(values))
    return pc.if_else(values.is_valid(), made, None) if values.null_count else made


def _vectors(values: pa.Array) -> pa.StringArray:
    inside = values.values.cast(pa.string()).to_pylist() if len(values) else []
    texts = (f"[{','.join(inside[start:end])}]" for start, end in pairwise(values.offsets.to_pylist()))
    return pc.if_else(values.is_valid(), pa.array(texts, pa.string()), None)


def base64_texts(numbers: np.ndarray[Any, Any]) -> pa.StringArray:
    """Return int64 numbers as JSON strings of base64 (RFC 4648), as Kafka Connect has the unscaled values of Decimal.

    Each is of the shortest big-endian two's complement, as Java's BigInteger returns it.
    """
    bytes_each = np.searchsorted(OCTETS, numbers ^ (numbers >> 63), side="right") + 1
    widths = (bytes_each + 2) // 3 * 4 + 2
    offsets = np.concatenate(([0], np.cumsum(widths))).astype(np.int32)
    data = np.empty(offsets[-1], np.uint8)
    for length in np.unique(bytes_each).tolist():
        rows = np.flatnonzero(bytes_each == length)
        texts = _texts(numbers[rows], length)
        data[offsets[rows][:, None] + np.arange(texts.shape[1])] = texts
    return pa.Array.from_buffers(pa.string(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _texts(numbers: np.ndarray[Any, Any], length: int) -> np.ndarray[Any, Any]:
    """Return the strings of numbers that take ``length`` bytes, one row of characters each."""
    groups, padding = -(-length // 3), -length % 3
    octets = np.zeros((len(numbers), groups * 3), np.uint32)
    octets[:, :length] = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 8 - length :]
    words = octets[:, 0::3] << 16 | octets[:, 1::3] << 8 | octets[:, 2::3]
    made = np.full((len(numbers), groups * 4 + 2), _QUOTE, np.uint8)
    for place, shift in enumerate((18, 12, 6, 0)):
        made[:, 1 + place : -1 : 4] = _LETTERS[words >> shift & 63]
    if padding:
        made[:, -1 - padding : -1] = _PADDING
    return made
