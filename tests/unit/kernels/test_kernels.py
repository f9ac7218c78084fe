"""The compiled kernels against the plain Python forms of the same."""

from __future__ import annotations

import datetime
import itertools
import os
import struct
import zlib
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import plain_forms
from binlake.kernels import jsontext, layouts, native, numbertext, row_kernels, scalars
from binlake.schema import charsets, strings

settings.register_profile("kernels", deadline=None, max_examples=200)
settings.load_profile("kernels")


def padded(data: bytes) -> np.ndarray[Any, Any]:
    return np.frombuffer(bytearray(data + bytes(layouts.SLACK)), np.uint8)


@given(st.binary(max_size=2000))
@example(b"")
@example(bytes(31))
@example(bytes(32))
@example(bytes(range(191)))
@example(os.urandom(4099))
def test_crc32_is_zlibs(data: bytes) -> None:
    array, scratch = padded(data), np.zeros(native.SCRATCH, np.uint8)
    assert native.crc32(array.ctypes.data, len(data), scratch.ctypes.data) == zlib.crc32(data)


# binary JSON, written as the server's documentation has it -----------------------------------------------------------


@dataclass(frozen=True)
class Opaque:
    """A value that JSON keeps as its column had it."""

    kind: int
    data: bytes


def _length(size: int) -> bytes:
    out = b""
    while True:
        out += bytes([size & 127 | (128 if size > 127 else 0)])
        size >>= 7
        if not size:
            return out


def _scalar(value: Any) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2])
    if isinstance(value, int):
        for kind, layout, low, high in (
            (5, "<h", -(2**15), 2**15),
            (7, "<i", -(2**31), 2**31),
            (9, "<q", -(2**63), 2**63),
        ):
            if low <= value < high:
                return kind, struct.pack(layout, value)
        return 10, struct.pack("<Q", value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, Opaque):
        return 15, bytes([value.kind]) + _length(len(value.data)) + value.data
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        scale = -int(exponent)
        precision = max(len(digits), scale, 1)
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        packed = bytes([precision, scale]) + pack_decimal(unscaled, precision, scale)
        return 15, b"\xf6" + _length(len(packed)) + packed
    raw = value.encode()
    return 12, _length(len(raw)) + raw


def encode(value: Any, large: bool) -> tuple[int, bytes]:
    if not isinstance(value, list | dict):
        return _scalar(value)
    number, width = ("<I", 4) if large else ("<H", 2)
    names = [name.encode() for name in value] if isinstance(value, dict) else []
    members = list(value.values()) if isinstance(value, dict) else value
    header = 2 * width + len(names) * (width + 2) + len(members) * (1 + width)
    body, keys, entries = b"", b"", b""
    for name in names:
        keys += struct.pack(number, header + len(body)) + struct.pack("<H", len(name))
        body += name
    for member in members:
        kind, data = encode(member, large)
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            entries += bytes([kind]) + data.ljust(width, b"\0")
        else:
            entries += bytes([kind]) + struct.pack(number, header + len(body))
            body += data
    total = header + len(body)
    head = struct.pack(number, len(members)) + struct.pack(number, total)
    return (0 if isinstance(value, dict) else 2) + large, head + keys + entries + body


def pack_decimal(unscaled: int, precision: int, scale: int) -> bytes:
    digits = str(abs(unscaled)).rjust(precision, "0")
    whole, fraction = digits[: precision - scale], digits[precision - scale :]
    first = len(whole) % 9
    groups = ([whole[:first]] if first else []) + [whole[at : at + 9] for at in range(first, len(whole), 9)]
    groups += [fraction[at : at + 9] for at in range(0, len(fraction), 9)]
    raw = bytearray(b"".join(int(g).to_bytes((0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[len(g)], "big") for g in groups))
    if unscaled < 0:
        raw = bytearray(byte ^ 255 for byte in raw)
    raw[0] ^= 128
    return bytes(raw)


finite = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1074, 1023).map(lambda power: 2.0**power)


def _packed_moment(moment: datetime.datetime) -> bytes:
    day = moment.year * 13 + moment.month << 5 | moment.day
    clock = moment.hour << 12 | moment.minute << 6 | moment.second
    return struct.pack("<q", (day << 17 | clock) << 24 | moment.microsecond)


def _packed_time(time: tuple[int, int, int, int]) -> bytes:
    hour, minute, second, microsecond = time
    packed = (abs(hour) << 12 | minute << 6 | second) << 24 | microsecond
    return struct.pack("<q", -packed if hour < 0 else packed)


times = st.tuples(st.integers(-838, 838), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999_999))
opaque = (
    st.builds(Opaque, st.sampled_from([13, 14, 16, 249, 252, 254, 255]), st.integers(0, 240).map(range).map(bytes))
    | st.builds(Opaque, st.sampled_from([7, 10, 12]), st.datetimes().map(_packed_moment))
    | st.builds(Opaque, st.just(11), times.map(_packed_time))
)
# A literal may have more digits than a column: nine words of nine
decimals = st.builds(
    lambda unscaled, scale: Decimal(unscaled.as_tuple()._replace(exponent=-scale)),
    st.integers(-(10**81) + 1, 10**81 - 1).map(Decimal), st.integers(0, 72),
)  # fmt: skip
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | finite | st.text(st.characters(codec="utf-8"))
    | opaque | decimals,
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=6)
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.lists(st.tuples(documents, st.booleans()), max_size=5))
def test_json_is_the_plain_forms(written: list[tuple[Any, bool]]) -> None:
    raw = [b""]
    for value, large in written:
        kind, data = encode(value, large)
        raw.append(bytes([kind]) + data)
    offsets = np.cumsum([0, *map(len, raw)]).astype(np.int32)
    new_offsets, made = strings.json(offsets, padded(b"".join(raw)), None)
    texts = [bytes(made[a:b]).decode() for a, b in itertools.pairwise(new_offsets)]
    assert texts == [plain_forms.json_text(text) for text in raw]


@given(finite)
@example(0.0)
@example(-0.0)
@example(5e-324)
@example(2.0**-44)
@example(1e15)
@example(999999999999999.9)
@example(1e-15)
@example(123456789012345680.0)
@example(0.1 + 0.2)
def test_double_text(value: float) -> None:
    target, scratch = np.zeros(128, np.uint8), np.zeros(16, np.int64)
    bits = struct.unpack("<q", struct.pack("<d", value))[0]
    start = target.ctypes.data
    end = numbertext.put_double(start, bits, scratch.ctypes.data)
    assert bytes(target[: end - start]).decode() == plain_forms.double_text(value)
    assert float(plain_forms.double_text(value)) == value


@given(st.integers(1, 65).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, min(p, 30)))), st.data())
def test_decimals(shape: tuple[int, int], data: st.DataObject) -> None:
    precision, scale = shape
    unscaled = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    raw = pack_decimal(unscaled, precision, scale)
    assert plain_forms.decimal_unscaled(raw, 0, precision, scale) == unscaled
    array, target = padded(raw), np.zeros(128, np.uint8)
    end = numbertext.put_decimal(target.ctypes.data, array.ctypes.data, precision, scale)
    assert bytes(target[: end - target.ctypes.data]).decode() == plain_forms.decimal_text(unscaled, scale)
    assert Decimal(plain_forms.decimal_text(unscaled, scale)).scaleb(scale) == unscaled or precision > 28
    if precision <= 38:
        assert scalars.store_decimal(target.ctypes.data, array.ctypes.data, precision, scale)
        assert int.from_bytes(target[:16].tobytes(), "little", signed=True) == unscaled


@given(st.dates())
@example(datetime.date(1, 1, 1))
@example(datetime.date(9999, 12, 31))
@example(datetime.date(1900, 2, 28))
def test_dates(day: datetime.date) -> None:
    raw = padded((day.year << 9 | day.month << 5 | day.day).to_bytes(3, "little"))
    assert row_kernels.temporal(row_kernels.DATE, raw.ctypes.data, 0) == (day - datetime.date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("year", "month", "day"), [(0, 1, 1), (2020, 0, 1), (2020, 1, 0), (2021, 2, 29), (1900, 2, 29)]
)
def test_days_that_no_calendar_has(year: int, month: int, day: int) -> None:
    raw = padded((year << 9 | month << 5 | day).to_bytes(3, "little"))
    assert row_kernels.temporal(row_kernels.DATE, raw.ctypes.data, 0) == -(1 << 63)


@given(st.lists(st.binary(max_size=12) | st.text(max_size=12).map(lambda text: text.encode("utf-8", "ignore"))))
def test_utf8_is_checked_as_python_does(pieces: list[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, pieces)]).astype(np.int32)
    data = padded(b"".join(pieces))
    row = strings.utf8_error_row(offsets, data.ctypes.data)
    wrong = []
    for number, piece in enumerate(pieces):
        try:
            piece.decode()
        except UnicodeDecodeError:
            wrong.append(number)
    assert row == (wrong[0] if wrong else -1)


def by_tables(name: str, piece: bytes) -> str | None:
    """Code by code; None where one can't be stored."""
    of_one_byte, of_two_bytes, of_three_bytes = (charsets.tables().get(f"{name}{size}") for size in (1, 2, 3))
    assert of_one_byte is not None
    text = ""
    while piece:
        lead, size = piece[0], 1
        code = int(of_one_byte[lead])
        if not code and lead:
            if of_two_bytes is not None and lead >= 0x80 and len(piece) > 1:
                code, size = int(of_two_bytes[(lead - 0x80) << 8 | piece[1]]), 2
            if not code and of_three_bytes is not None and lead == 0x8F and len(piece) > 2 and min(piece[1:3]) >= 0x80:
                code, size = int(of_three_bytes[(piece[1] - 0x80) << 7 | piece[2] - 0x80]), 3
            if not code:
                return None
        text, piece = text + chr(code), piece[size:]
    return text


@pytest.mark.parametrize("name", sorted({name[:-1] for name in charsets.tables()}))
def test_charsets(name: str) -> None:
    strict, convert = charsets.decoder(name), strings.converter(name)
    random = np.random.default_rng(1)
    pieces = [bytes(random.integers(0, 256, size)) for size in (1, 2, 3) for _ in range(300)]
    for piece in pieces:
        offsets = np.array([0, len(piece)], np.int32)
        try:
            decoded: str | None = strict(piece)
        except UnicodeDecodeError:
            decoded = None
        try:
            ends, data = convert(offsets, padded(piece))
            got: str | None = bytes(data[: ends[1]]).decode()
        except strings.BadValue:
            got = None
        assert got == (decoded if name == "gb18030" else by_tables(name, piece)), (name, piece)
        assert decoded in (None, got)  # a statement's text has no ? that isn't written there


def test_damaged_json_is_refused_not_read() -> None:
    kind, data = encode({"a": [1, "x", {"b": 2.5}], "c": "text" * 40, "d": Opaque(252, bytes(60))}, False)
    document = bytes([kind]) + data
    random = np.random.default_rng(2)
    stack = np.empty(jsontext.STACK_BYTES, np.uint8)
    for _ in range(3000):
        broken = bytearray(document)
        for place in random.integers(0, len(broken), 3):
            broken[place] = random.integers(0, 256)
        source, target = padded(bytes(broken)), np.empty(jsontext.most_bytes(len(broken)) + 64, np.uint8)
        end = jsontext.document(source.ctypes.data, len(broken), target.ctypes.data, stack.ctypes.data)
        if end:
            text = bytes(target[: end - target.ctypes.data])
            assert len(text) <= jsontext.most_bytes(len(broken))
            assert text.decode() == plain_forms.json_text(bytes(broken))
