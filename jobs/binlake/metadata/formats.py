"""Format versions: each text in the lease's row says by which it was written, so that an older one stays readable and a
newer one is refused before anything is done with it.

Without a number it is 0, by which binlake wrote before there were numbers; until 1 the row had a position where it has
what stands there since (see lease.Standing). Whoever changes the form of what stands in
metadata raises FORMAT and says here how the form before becomes this one.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from binlake.errors import LakeError, NewerMetadata
from binlake.schema.table import TableSchema
from binlake.serialization import dump, load

FORMAT = 2
T = TypeVar("T")


def written(value: Any) -> str:
    """A dataclass as text that tells its format."""
    return json.dumps({"format": FORMAT, **dump(value)}, ensure_ascii=False)


def number(text: str) -> int:
    """The format that a text tells; 0 for what isn't understood, of which ``read`` says so."""
    try:
        found = json.loads(text).get("format", 0)
    except (ValueError, AttributeError):
        return 0
    return found if isinstance(found, int) else 0


def read(kind: type[T], text: str) -> T:
    """The inverse of ``written``. Raises NewerMetadata, and LakeError for what nobody wrote."""
    try:
        value = json.loads(text)
        found = value.pop("format", 0)
        if found > FORMAT:
            raise NewerMetadata(
                f"a newer binlake has worked on this lake: its metadata have format {found}, this one knows {FORMAT}",
                remedy="update binlake here as it was updated there, then run again",
            )
        return load(kind, value if found else _of_format_0(value))
    except (ValueError, TypeError, AttributeError) as error:
        raise LakeError(
            f"the lease's row isn't what binlake writes: {error}",
            remedy="restore the folder _binlake/lease from a backup, or begin the lake anew",
        ) from error


def _of_format_0(value: dict[str, Any]) -> dict[str, Any]:
    """The open batch had what merge did as one list, of which the places were words of the reasons; the rest is the
    same."""
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
