"""Secrets that are planted in a server's rows, and a look for them in all that was written."""

from __future__ import annotations

import base64
import io
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = (
    "id INT PRIMARY KEY, email VARCHAR(80) DEFAULT 'zq01-in-a-default' COMMENT 'zq02-in-a-comment', phone VARCHAR(30),"
    " born DATE, card BIGINT, token TEXT, doc JSON, kind ENUM('a', 'zq03-in-members'), password VARBINARY(60),"
    " wide VARCHAR(60) CHARACTER SET utf16, plain VARCHAR(40), grade ENUM('a', 'zq04-in-members') DEFAULT 'a',"
    " tags SET('a', 'zq06-in-members'), loud VARCHAR(99) AS (CONCAT(email, 'zq09-in-a-formula')) STORED,"
    " known INT AS (password = 'zq00-in-a-formula') STORED, CHECK (email <> 'zq00-in-a-check')"
)
NAMES = "id, email, phone, born, card, token, doc, kind, password, wide, plain"


def row(number: int) -> str:
    """Return the values of a row whose secrets have its number, from 10 on."""
    return (
        f"{number}, 'zq{number}-email@mail', '555-zq{number}-1234', '1987-06-{number}', 918273645000{number},"
        f' \'zq{number}-is-the-token\', \'{{"k": {{"inner": "zq{number}-in-the-doc", "n": 1}}}}\', \'a\','
        f" 'zq{number}-is-the-password', 'zq{number}-is-wide-text', 'plain {number}'"
    )


def secrets_of(*numbers: int) -> list[Any]:
    """Return the secrets of rows with these numbers."""
    texts: list[Any] = []
    for n in numbers:
        texts += [f"zq{n}-email", f"555-zq{n}", f"zq{n}-is-the-token", f"zq{n}-in-the-doc", f"zq{n}-is-the-password"]
        texts += [f"zq{n}-is-wide-text", f"1987-06-{n}", f"918273645000{n}"]
    return [*texts, *(date(1987, 6, n) for n in numbers), *(int(f"918273645000{n}") for n in numbers)]


SECRETS = [*(f"zq0{number}-in-" for number in range(10)), *secrets_of(*range(10, 21))]
"""Those of rows 10 to 20, and of what the columns' definitions say."""


def withheld(table: str) -> list[dict[str, Any]]:
    """Return the YAML's columns: for a table that has the columns. The name of the hashes' connection is pii_key."""
    hashed = {"hash": {"key": "pii_key", "length": 32}}
    return [
        {"columns": f"{table}.email", **hashed}, {"columns": f"{table}.card", **hashed},
        {"columns": f"{table}.doc", **hashed}, {"columns": f"{table}.wide", **hashed},
        {"columns": f"{table}.phone", "mask": {"keep_last": 4}}, {"columns": f"{table}.born", "truncate": "year"},
        {"columns": f"{table}.token", "null": True}, {"columns": f"{table}.kind", "null": True},
        {"columns": f"{table}.password", "exclude": True}, {"columns": f"{table}.grade", **hashed},
        {"columns": f"{table}.tags", "exclude": True},
    ]  # fmt: skip


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


def said_by_database(path: Path) -> str:
    """Return all that a SQLite database has, as SQL: in its file, a value may lie on several pages."""
    with closing(sqlite3.connect(path)) as database:
        return "\n".join(database.iterdump())


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
