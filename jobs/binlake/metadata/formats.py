"""Format versions: each text in the lease's row says in which format it was written.

So older texts stay readable, and a newer one is refused before anything is done with it. A text without a number has
format 0, from before there were numbers. Until format 1 the row held a position where it holds the recorded state (see
lease.RecordedState). Whoever changes a form raises FORMAT, and adds here how the form before becomes the new one.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, TypeVar

from binlake.errors import LakeError, NewerMetadata
from binlake.schema.table import TableSchema
from binlake.serialization import dump, load

FORMAT = 2
T = TypeVar("T")


def written(value: Any) -> str:
    """Return a dataclass as JSON that says its format."""
    return json.dumps({"format": FORMAT, **dump(value)}, ensure_ascii=False)


def number(text: str) -> int:
    """Return the format that a text says; 0 for one that isn't understood, which ``read`` refuses."""
    try:
        version = json.loads(text).get("format", 0)
    except (ValueError, AttributeError):
        return 0
    return version if isinstance(version, int) else 0


def read(kind: type[T], text: str) -> T:
    """Read what ``written`` wrote. Raises NewerMetadata, and LakeError for any other text."""
    value: T = _read(kind, text)  # type: ignore[arg-type]  # mypy takes no type[T] for Hashable
    return value


@lru_cache(8)  # each step of a batch reads the row
def _read(kind: type[Any], text: str) -> Any:
    try:
        value = json.loads(text)
        version = value.pop("format", 0)
        if version > FORMAT:
            raise NewerMetadata(
                f"a newer binlake has worked on this lake: its metadata have format {version}, this one knows {FORMAT}",
                remedy="update binlake here as it was updated there, then run again",
            )
        return load(kind, value if version else _of_format_0(value))
    except (ValueError, TypeError, AttributeError) as error:
        raise LakeError(
            f"the lease's row isn't what binlake writes: {error}",
            remedy="restore the folder _binlake/lease from a backup, or begin the lake anew",
        ) from error


def _of_format_0(value: dict[str, Any]) -> dict[str, Any]:
    """Return a value of format 0 in today's form. An open batch had merge's outcome as one list, with places as words
    in the reasons."""
    if not isinstance(value.get("outcome"), list):
        return value
    rows, charsets = value["outcome"], value["charsets"]
    outcome = {
        "lives": [_life_of_format_0(row) for row in rows if not row.get("lifeless")],
        "lifeless": [{**row, "name": _name(row)} for row in rows if row.get("lifeless")],
        "prepared": value["prepared"],
        "charsets": charsets and [{"database": database, "charset": charset} for database, charset in charsets],
    }
    return {**value, "outcome": outcome}


def _life_of_format_0(row: dict[str, Any]) -> dict[str, Any]:
    standstill = {key: row[key] for key in ("reason", "remedy", "raw")} if row["reason"] else None
    fingerprint = load(TableSchema, row["schema"]).fingerprint
    return {**row, "name": _name(row), "standstill": standstill, "fingerprint": fingerprint}


def _name(row: dict[str, Any]) -> dict[str, Any]:
    return {"database": row["database"], "table": row["table"]}
