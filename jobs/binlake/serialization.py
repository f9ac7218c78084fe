"""How a dataclass is written as JSON and read again: the one way for all that stands in metadata and staging.

Fields are written under their names, all of them. A field that isn't there gets its default when it is read: what was
written before the field was thought of. Pydantic checks the types, strictly; it needs no word of it in the dataclass.
"""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError

T = TypeVar("T")


def _decoded(value: Any) -> Any:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


Base64 = Annotated[bytes, BeforeValidator(_decoded), PlainSerializer(_encoded, return_type=str)]
"""Bytes, in JSON as base64 of the standard alphabet."""

_adapters: dict[type, TypeAdapter[Any]] = {}
"""Making one costs as much as reading a thousand values with it (tens of milliseconds)."""


def _adapter(kind: type) -> TypeAdapter[Any]:
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def dump(value: Any) -> Any:
    """What json.dumps takes for a dataclass."""
    return _adapter(type(value)).dump_python(value, mode="json")


def dumps(value: Any) -> str:
    """A dataclass as JSON text."""
    return str(_adapter(type(value)).dump_json(value), "utf-8")


def load(kind: type[T], value: Any) -> T:
    """The inverse of ``dump``. Raises ValueError, which names the field and not what stands in it."""
    return loads(kind, json.dumps(value))


def loads(kind: type[T], text: str) -> T:
    """The inverse of ``dumps``. Raises ValueError, which names the field and not what stands in it."""
    try:
        found: T = _adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise ValueError(f"it holds no {kind.__name__}: {place}: {first['msg']}") from None
    return found
