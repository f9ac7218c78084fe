"""Packets of the text protocol in, Arrow out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from binlake.snapshot import resultset

EOF = b"\xfe\x00\x00\x02\x00"


def packets(*payloads: bytes) -> bytes:
    """Payloads as they go over the wire; one of 16 MiB - 1 bytes and more continues in the next packet."""
    wire = bytearray()
    for payload in payloads:
        while len(payload) >= 0xFFFFFF:
            wire += b"\xff\xff\xff\x00" + payload[:0xFFFFFF]
            payload = payload[0xFFFFFF:]
        wire += len(payload).to_bytes(3, "little") + b"\x00" + payload
    return bytes(wire)


def value(text: bytes | None) -> bytes:
    if text is None:
        return b"\xfb"
    size = len(text)
    if size < 0xFB:
        return bytes([size]) + text
    width, mark = (2, b"\xfc") if size < 1 << 16 else (3, b"\xfd") if size < 1 << 24 else (8, b"\xfe")
    return mark + size.to_bytes(width, "little") + text


def row(*values: bytes | None) -> bytes:
    return b"".join(map(value, values))


def arriving(wire: bytes, piece: int) -> Callable[[memoryview], int]:
    """A connection that gives some bytes at a time, and none once all are given."""
    place = 0

    def fill(buffer: memoryview) -> int:
        nonlocal place
        part = wire[place : place + min(piece, len(buffer))]
        buffer[: len(part)] = part
        place += len(part)
        return len(part)

    return fill


def read(wire: bytes, kinds: Sequence[pa.DataType], piece: int = 1 << 16) -> pa.Table:
    schema = pa.schema([pa.field(f"c{number}", kind) for number, kind in enumerate(kinds)])
    pieces = resultset.columns(arriving(wire, piece), len(schema))
    return pa.Table.from_batches([resultset.as_batch(columns, schema) for columns in pieces], schema)


@pytest.mark.parametrize("piece", [1, 7, 1 << 16])
def test_texts_become_the_columns_types(piece: int) -> None:
    wire = packets(row(b"-5", b"1.50", "ä".encode(), b"\xff\x00", b"0.1"), row(None, None, None, None, None), EOF)
    table = read(wire, [pa.int64(), pa.decimal128(10, 2), pa.string(), pa.binary(), pa.float64()], piece)
    assert [list(values.values()) for values in table.to_pylist()] == [
        [-5, pa.scalar("1.50").cast(pa.decimal128(10, 2)).as_py(), "ä", b"\xff\x00", 0.1],
        [None, None, None, None, None],
    ]


def test_a_result_without_rows() -> None:
    assert read(packets(EOF), [pa.int64()]).num_rows == 0


@pytest.mark.parametrize("size", [0, 250, 251, 0xFFFF, 1 << 16, 0xFFFFFF - 4, 0xFFFFFF, 1 << 24, 2 * 0xFFFFFF + 5])
def test_values_of_each_length(size: int) -> None:
    text = bytes(number % 251 for number in range(1000)) * (size // 1000 + 1)
    table = read(packets(row(text[:size], b"behind"), row(b"next", None), EOF), [pa.binary(), pa.binary()], 1 << 20)
    assert table.to_pylist() == [{"c0": text[:size], "c1": b"behind"}, {"c0": b"next", "c1": None}]


def test_many_rows_come_in_batches() -> None:
    rows = 3 * resultset.ROWS + 7
    table = read(packets(*(row(str(number).encode()) for number in range(rows)), EOF), [pa.int64()])
    assert table["c0"].to_pylist() == list(range(rows))
    assert table["c0"].num_chunks == 4


def test_what_the_server_says_within_the_rows_is_told() -> None:
    wire = packets(row(b"1"), b"\xff\x25\x05#70100Query execution was interrupted")
    with pytest.raises(resultset.Refused) as refused:
        read(wire, [pa.int64()])
    assert (refused.value.code, refused.value.text) == (1317, "Query execution was interrupted")


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(packets(row(b"1"))[:-1], id="the connection ends within a row"),
        pytest.param(packets(row(b"1")), id="the connection ends without an end of the rows"),
        pytest.param(packets(row(b"1", b"2"), EOF), id="a value too many"),
        pytest.param(packets(b"", EOF), id="a value too few"),
        pytest.param(packets(b"\x05abc", EOF), id="a value longer than its row"),
        pytest.param(packets(b"\xfc\x05", EOF), id="a length that isn't whole"),
        pytest.param(packets(b"\xfe" + b"\xff" * 8 + b"abc", EOF), id="a length beyond all memory"),
    ],
)
def test_what_is_no_result_set_gives_no_rows(wire: bytes) -> None:
    with pytest.raises(resultset.Truncated):
        read(wire, [pa.binary()])


def test_a_text_of_another_type_is_refused_without_its_value() -> None:
    with pytest.raises(resultset.Truncated, match="c0") as refused:
        read(packets(row(b"secret"), EOF), [pa.int64()])
    assert "secret" not in str(refused.value)
    assert refused.value.__suppress_context__
