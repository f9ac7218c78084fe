"""Puffin files: deletion vectors of data files, as Iceberg's format 3 has them.

A vector has the same bytes as in Delta's files, but no file can be of both formats: the first byte of Delta's is 1.
Source: Iceberg's "Puffin Spec".
"""

from __future__ import annotations

import json
import struct

from binlake.storage import files

_MAGIC = b"PFA1"
_END = struct.Struct("<ii4s")
"""Size of the description, flags, magic."""
_KIND, _ROW_POSITION = "deletion-vector-v1", 2147483645
ENDING = ".puffin"
OFFSET = len(_MAGIC)
"""The offset of the vector."""


def write(path: str, address: str, framed: bytes, cardinality: int | None) -> int:
    """Write the vector of a data file, and return the file's bytes. address: the data file's. framed: the vector's
    bytes. cardinality: how many rows are deleted. Raises OSError."""
    described = json.dumps(
        {
            "blobs": [
                {
                    "type": _KIND, "fields": [_ROW_POSITION], "snapshot-id": -1, "sequence-number": -1,
                    "offset": OFFSET, "length": len(framed),
                    "properties": {"referenced-data-file": address, "cardinality": str(cardinality)},
                }
            ],
            "properties": {},
        }
    ).encode()  # fmt: skip
    content = _MAGIC + framed + _MAGIC + described + _END.pack(len(described), 0, _MAGIC)
    files.write_bytes(path, content)
    return len(content)
