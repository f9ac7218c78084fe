"""The look for planted secrets finds each, in whatever way it was written."""

from __future__ import annotations

import base64
import gzip
import io
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planted_secrets import found_in

SECRET = "zq01-nobody@mail"


def compressed(content: bytes) -> bytes:
    written = pa.BufferOutputStream()
    with pa.CompressedOutputStream(written, "zstd") as stream:
        stream.write(content)
    return bytes(written.getvalue())


def avro(codec: str) -> bytes:
    kinds = fastavro.parse_schema({"type": "record", "name": "r", "fields": [{"name": "v", "type": "string"}]})
    written = io.BytesIO()
    fastavro.writer(written, kinds, [{"v": f"a {SECRET}"}] * 9, codec=codec)
    return written.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        f"plain {SECRET}".encode(),
        f"a {SECRET}".encode("utf-16-le"),
        f"ab {SECRET}".encode("utf-16-be"),
        SECRET.encode().hex().encode(),
        SECRET.encode().hex().upper().encode(),
        SECRET.encode("utf-16-le").hex().encode(),
        *(base64.b64encode(b"x" * shift + SECRET.encode() + b"behind") for shift in range(3)),
        b"before" + gzip.compress(b"x" * 99 + SECRET.encode() * 9, mtime=0),
        b"before" + compressed(b"x" * 99 + SECRET.encode() * 9),
        avro("null"),
        avro("deflate"),
    ],
)
def test_a_secret_is_found_in_each_form(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert found_in(tmp_path, [SECRET])
    assert not found_in(tmp_path, ["zq02-nobody@mail"])


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
def test_a_secret_is_found_in_pages_of_parquet(tmp_path: Path, compression: str) -> None:
    rows = pa.table({"v": [{"inner": [f"it is {SECRET}", "b"]}]})
    pq.write_table(rows, tmp_path / "rows.parquet", compression=compression, write_statistics=False)
    assert found_in(tmp_path, [SECRET])
