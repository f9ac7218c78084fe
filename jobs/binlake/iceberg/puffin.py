"""Puffin files: deletion vectors of data files, as Iceberg's readers take them.

A vector has the same bytes as in Delta's files, but no file can be of both formats: the first byte of Delta's is 1.
Each vector has a file of its own. Of a file with several, some readers (pyiceberg 0.12, polars 2.1) also take those
that don't count any more, and DuckDB 1.5 was seen to take a neighbour's bytes out of its cache of files. Source:
Iceberg's "Puffin Spec".
"""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
from dataclasses import dataclass

from binlake.delta.delta_actions import Add
from binlake.storage import files

_MAGIC = b"PFA1"
_END = struct.Struct("<ii4s")
"""Size of the description, flags, magic."""
_KIND, _ROW_POSITION = "deletion-vector-v1", 2147483645
_ENDING = ".puffin"


@dataclass(frozen=True)
class PuffinVector:
    """A deletion vector in a file of its own. name: the file's. size: its bytes."""

    name: str
    size: int
    offset: int
    vector_size: int


def key_of(add: Add | None) -> str:
    """Return the identity of a data file's deletion vector, which is part of its file's name; empty without one."""
    vector = add.vector if add else None
    if not vector:
        return ""
    place = f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset') or 0}"
    return hashlib.blake2b(place.encode(), digest_size=12).hexdigest()


def key_in(address: str) -> str:
    """Return the identity of the vector in a file."""
    return address.removesuffix(_ENDING).rpartition("-")[2]


def write(folder: str, address: str, add: Add, framed: bytes) -> PuffinVector:
    """Write the vector of a data file. address: the data file's. framed: the vector's bytes. Raises OSError."""
    described = json.dumps(
        {
            "blobs": [
                {
                    "type": _KIND, "fields": [_ROW_POSITION], "snapshot-id": -1, "sequence-number": -1,
                    "offset": len(_MAGIC), "length": len(framed),
                    "properties": {"referenced-data-file": address, "cardinality": str(add.hidden)},
                }
            ],
            "properties": {},
        }
    ).encode()  # fmt: skip
    content = _MAGIC + framed + _MAGIC + described + _END.pack(len(described), 0, _MAGIC)
    name = f"{uuid.uuid4().hex}-{key_of(add)}{_ENDING}"
    files.write_bytes(f"{folder}/{name}", content)
    return PuffinVector(name, len(content), len(_MAGIC), len(framed))
