"""Secrets that are planted in a server's rows, and a look for them in all that was written."""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq


def traces_of(secret: str) -> list[bytes]:
    """Return what shows a text: its bytes in UTF-8 and UTF-16, their hexadecimal digits in either case, and the inside
    of their base64."""
    plain = secret.encode()
    if len(plain) < 9:  # too short for traces of its own
        return [plain]
    wide = secret.encode("utf-16-le")  # its bytes are within those of the other order, but for the last
    return [*_traces_of(plain), *_traces_of(wide[:-1])]


def _traces_of(plain: bytes) -> list[bytes]:
    shifted = (base64.b64encode(b"x" * shift + plain + b"x" * (-(len(plain) + shift) % 3)) for shift in range(3))
    inside = [text[4:-4] for text in shifted]
    return [plain, plain.hex().encode(), plain.hex().upper().encode(), *inside]


def found_in(folder: Path, secrets: Iterable[Any], also: str = "") -> list[str]:
    """Return where secrets are below a folder, in the files' bytes and in the values of Parquet, or in a text."""
    values = set(secrets)
    traces = [trace for value in values if isinstance(value, str) for trace in traces_of(value)]
    others = {value for value in values if not isinstance(value, str)}
    found = [f"said: {trace!r}" for trace in _in(also.encode(), traces)]
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        contents = [*unpacked(path.read_bytes())]
        if path.suffix == ".parquet":
            there = [*_values(path)]
            contents.append(b"\n".join(text for value in there if (text := _bytes_of(value)) is not None))
            found += [f"{path}: {value!r}" for value in there if _is_among(value, others)]
        found += [f"{path}: {trace!r}" for content in contents for trace in _in(content, traces)]
    return found


def _in(content: bytes, traces: Iterable[bytes]) -> list[bytes]:
    return [trace for trace in traces if trace in content]


def unpacked(content: bytes) -> Iterator[bytes]:
    """Yield a file's bytes, and those that are compressed in it: by gzip or zstd, anywhere, and the blocks of an Avro
    file. The pages of Parquet are read as values."""
    yield content
    if content.startswith(b"Obj\x01"):
        yield from _blocks_of(content)
    for begin in _begins(content, b"\x1f\x8b\x08"):
        with suppress(zlib.error):
            yield zlib.decompressobj(31).decompress(content[begin:])
    if not content.startswith(b"PAR1"):
        for begin in _begins(content, b"\x28\xb5\x2f\xfd"):
            packed = pa.BufferReader(content[begin:])
            with suppress(OSError, pa.ArrowException), pa.CompressedInputStream(packed, "zstd") as stream:
                yield stream.read()


def _begins(content: bytes, magic: bytes) -> Iterator[int]:
    begin = content.find(magic)
    while begin >= 0:
        yield begin
        begin = content.find(magic, begin + 1)


def _blocks_of(content: bytes) -> Iterator[bytes]:
    """Yield the blocks of an Avro file, whose codec is deflate or none. Raises for another."""
    for block in fastavro.block_reader(io.BytesIO(content)):
        yield repr(list(block)).encode()


def _values(path: Path) -> Iterator[Any]:
    for row in pq.read_table(path).to_pylist():
        yield from _leaves(row)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _bytes_of(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else None


def _is_among(value: Any, others: set[Any]) -> bool:
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
    return isinstance(value, date | int | float) and value in others
