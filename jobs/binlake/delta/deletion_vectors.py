"""Delta's deletion vectors, read and written without a JVM: which rows of a data file count as deleted.

A vector is a set of row numbers of its file as a 64-bit Roaring bitmap. Delta's protocol, "Deletion Vector Format": a
file of vectors begins with its version, one byte; each vector is its length (4 bytes, big endian), the data, and their
CRC-32 (big endian); data are a magic number (4 bytes, little endian) and the bitmap in Roaring's portable form.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from pyroaring import BitMap64

from binlake.errors import LakeError
from binlake.storage import files

_VERSION, _MAGIC = 1, 1681511377
_HEAD = struct.Struct("<i")
_FRAME = struct.Struct(">I")
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
"""The alphabet of Z85 (ZeroMQ's RFC 32)."""
_ID_CHARACTERS = 20

Descriptor = Mapping[str, Any]
"""A vector in an action of Delta's log: storageType, pathOrInlineDv, offset, sizeInBytes, cardinality."""


def read(table_path: str, vector: Descriptor) -> BitMap64:
    """Read the numbers of a file's deleted rows. Raises LakeError where the vector doesn't match its descriptor;
    OSError."""
    data = _data_of(table_path, vector)
    rows = BitMap64.deserialize(data[_HEAD.size :]) if _HEAD.unpack_from(data)[0] == _MAGIC else BitMap64()
    if len(rows) != int(vector["cardinality"]):
        raise LakeError(f"{table_path}: a deletion vector holds {len(rows)} rows, {vector['cardinality']} were noted")
    return rows


def hidden(table_path: str, file: Mapping[str, Any]) -> BitMap64:
    """Return the numbers of the rows that a data file's deletion vector hides; none without one. file: its action.

    Raises what ``read`` does.
    """
    vector = file.get("deletionVector")
    return read(table_path, vector) if vector else BitMap64()


def file_name(vector: Descriptor) -> str | None:
    """Return the name of the file that holds a vector, without its folder; None for one inside the log."""
    kind, place = vector["storageType"], vector["pathOrInlineDv"]
    if kind == "u":
        return f"deletion_vector_{uuid.UUID(bytes=_from_z85(place[-_ID_CHARACTERS:]))}.bin"
    return str(place).rpartition("/")[2] if kind == "p" else None


def framed(table_path: str, vector: Descriptor) -> bytes:
    """Return a vector as its file has it: the length, the data and their checksum. Raises what ``read`` does."""
    data = _data_of(table_path, vector)
    return _FRAME.pack(len(data)) + data + _FRAME.pack(zlib.crc32(data))


def _data_of(table_path: str, vector: Descriptor) -> bytes:
    kind, place, size = vector["storageType"], vector["pathOrInlineDv"], int(vector["sizeInBytes"])
    if kind == "i":
        return _from_z85(place)[:size]
    if kind == "u":
        prefix = place[:-_ID_CHARACTERS]
        path = f"{table_path}/{prefix}{'/' if prefix else ''}{file_name(vector)}"
        return _framed(path, int(vector.get("offset") or 0), size)
    raise LakeError(f"{table_path}: a deletion vector is kept in a way that isn't known here: {kind}")


def _framed(path: str, offset: int, size: int) -> bytes:
    part = files.read_part(path, offset, size + 2 * _FRAME.size)
    data = part[_FRAME.size : -_FRAME.size]
    if len(data) != size or _FRAME.unpack_from(part)[0] != size or _FRAME.unpack(part[-4:])[0] != zlib.crc32(data):
        raise LakeError(f"{path}: the deletion vector at {offset} is damaged")
    return data


def write(table_path: str, vectors: Sequence[BitMap64]) -> list[Descriptor]:
    """Write vectors into one new file of the table's folder, and return their descriptors. Raises OSError."""
    name, content = uuid.uuid4(), bytearray([_VERSION])
    descriptors: list[Descriptor] = []
    for rows in vectors:
        rows.run_optimize()
        data = _HEAD.pack(_MAGIC) + rows.serialize()
        descriptors.append(
            {
                "storageType": "u",
                "pathOrInlineDv": _to_z85(name.bytes),
                "offset": len(content),
                "sizeInBytes": len(data),
                "cardinality": len(rows),
            }
        )
        content += _FRAME.pack(len(data)) + data + _FRAME.pack(zlib.crc32(data))
    files.write_bytes(f"{table_path}/deletion_vector_{name}.bin", bytes(content))
    return descriptors


def _to_z85(data: bytes) -> str:
    text = []
    for (word,) in _FRAME.iter_unpack(data):
        text += [_Z85[word // 85**place % 85] for place in (4, 3, 2, 1, 0)]
    return "".join(text)


def _from_z85(text: str) -> bytes:
    data = bytearray()
    for start in range(0, len(text), 5):
        word = 0
        for character in text[start : start + 5]:
            word = word * 85 + _Z85.index(character)
        data += _FRAME.pack(word)
    return bytes(data)
