"""Writing dataclasses as JSON and reading them again, for everything that metadata and staging hold.

All fields are written under their names. A missing field gets its default when it is read: an older version may have
written the text before the field existed. Pydantic checks the types strictly; dataclasses need no declaration for it.
"""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError

from binlake.caches import remembered

T = TypeVar("T")


def _decoded(value: Any) -> Any:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


Base64 = Annotated[bytes, BeforeValidator(_decoded), PlainSerializer(_encoded, return_type=str)]
"""Bytes that are base64 of the standard alphabet in JSON."""


@remembered("forms of dataclasses")
def _adapter(kind: type) -> TypeAdapter[Any]:
    """Return the adapter that reads and writes a class: making it takes as long as reading a thousand values with it
    (tens of milliseconds)."""
    return TypeAdapter(kind)


def dump(value: Any) -> Any:
    """Convert a dataclass to a value for json.dumps."""
    return _adapter(type(value)).dump_python(value, mode="json")


def dumps(value: Any) -> str:
    """Return a dataclass as JSON text."""
    return str(_adapter(type(value)).dump_json(value), "utf-8")


def load(kind: type[T], value: Any) -> T:
    """Read what ``dump`` returned. Raises ValueError, which names the field but not its value."""
    return loads(kind, json.dumps(value))


def loads(kind: type[T], text: str) -> T:
    """Read what ``dumps`` returned. Raises ValueError, which names the field but not its value."""
    try:
        value: T = _adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise ValueError(f"it holds no {kind.__name__}: {place}: {first['msg']}") from None
    return value
