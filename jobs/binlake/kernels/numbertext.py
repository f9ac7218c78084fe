"""Compiled functions that write numbers, decimals and times as the server's text; they return the address after it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
from numba import types

from binlake.kernels.native import act, copy, intrinsic, kernel, load8, store8, store16

_gcvt: Any = types.ExternalFunction("gcvt", types.int64(types.float64, types.int32, types.int64))
_strtod: Any = types.ExternalFunction("strtod", types.float64(types.int64, types.int64))

_TENS = np.array([10.0**power for power in range(23)])
_POWERS = np.array([10**digits for digits in range(10)], np.int64)
_DIGIT_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
_PAIRS = np.array([ord("0") + place // 10 + ((ord("0") + place % 10) << 8) for place in range(100)], np.int64)


def _shortest(value: float) -> tuple[int, int]:
    """Return the shortest digits of a double, and how many of them are before the point."""
    text = repr(value)
    return int(text.partition("e")[0].replace(".", "")), Decimal(text).adjusted() + 1


# Of a power of two the nearest digits may lie outside of what reads back, while others don't: it is nearer to the
# double below than to the one above. By the exponent's bits; subnormal ones aren't among them.
_TWOS, _POINTS_OF_TWOS = np.array([(0, 0)] + [_shortest(2.0**power) for power in range(-1022, 1024)], np.int64).T.copy()


@kernel
def decimal_bytes(digits: int) -> int:
    """Return the bytes of so many digits on one side of a packed DECIMAL's point."""
    return digits // 9 * 4 + int(_DIGIT_BYTES[digits % 9])


@intrinsic  # type: ignore[untyped-decorator]
def _bits_to_double(typing_context: Any, value: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(types.int64), build


@kernel
def put_unsigned(to: int, value: int) -> int:
    """Write the decimal digits of a non-negative number. Returns the address after them."""
    digits = 1
    limit = 10
    while digits < 19 and value >= limit:
        digits += 1
        if digits < 19:
            limit *= 10
    at = to + digits
    while value >= 100:
        at -= 2
        store16(at, _PAIRS[value % 100])
        value //= 100
    if value >= 10:
        store16(at - 2, _PAIRS[value])
    else:
        store8(at - 1, 48 + value)
    return to + digits


@kernel
def put_signed(to: int, value: int) -> int:
    """Write a whole number in decimal digits; return the address after it."""
    if value < 0:
        store8(to, 45)
        to += 1
        if value == -(1 << 63):
            to = put_unsigned(to, 922337203685477580)
            store8(to, 56)
            return to + 1
        value = -value
    return put_unsigned(to, value)


@kernel
def put_uint64(to: int, bits: int) -> int:
    """Write an unsigned number of 64 bits."""
    if bits >= 0:
        return put_unsigned(to, bits)
    half = bits >> 1 & 0x7FFFFFFFFFFFFFFF
    tenth = half // 5
    to = put_unsigned(to, tenth)
    store8(to, 48 + (bits - tenth * 10))
    return to + 1


@kernel
def _put_digits(to: int, digits: int, count: int, point: int) -> int:
    """Write ``count`` digits at the address ``digits``, the point after ``point`` of them, as the server's my_gcvt."""
    if point <= -15 or point > 15:
        store8(to, load8(digits))
        to += 1
        if count > 1:
            store8(to, 46)
            copy(to + 1, digits + 1, count - 1)
            to += count
        store8(to, 101)
        return put_signed(to + 1, point - 1)
    if point <= 0:
        store16(to, 0x2E30)
        to += 2
        for _ in range(-point):
            store8(to, 48)
            to += 1
        copy(to, digits, count)
        return to + count
    if count <= point:
        copy(to, digits, count)
        to += count
        for _ in range(point - count):
            store8(to, 48)
            to += 1
        store16(to, 0x302E)
        return to + 2
    copy(to, digits, point)
    store8(to + point, 46)
    copy(to + point + 1, digits + point, count - point)
    return to + count + 1


@act
def _few_digits(value: float, digits: int) -> tuple[int, int]:
    """Try a whole number of up to 15 digits over a power of ten, which is then the shortest form.

    Returns how many digits it has, and how many of them before the point; 0 digits if the value has no such form.
    """
    if 1e-7 <= value < 1e15:
        for power in range(23):
            scaled = value * _TENS[power]
            if scaled >= 1e15:
                break
            whole = int(scaled + 0.5)
            if float(whole) / _TENS[power] == value:
                count = put_unsigned(digits, whole) - digits
                return count, count - power
    return 0, 0


@act
def _printed(value: float, least: int, digits: int) -> tuple[int, int]:
    """Return the C library's digits, as few as read back the same, at least ``least``. As _few_digits."""
    for precision in range(least, 18):
        _gcvt(value, precision, digits)
        if _strtod(digits, 0) == value:
            break
    # d.ddde±xx or 0.000ddd or ddd.ddd: digits and exponent out of it
    at, count, point, seen_point = digits, 0, 0, False
    while load8(at) and load8(at) != 101:
        byte = load8(at)
        at += 1
        if byte == 46:
            seen_point = True
        elif count or byte != 48:
            store8(digits + count, byte)  # the digits move to the front; they never overtake what is read
            count += 1
            point += 0 if seen_point else 1
        elif seen_point:
            point -= 1
    exponent = 0
    if load8(at):
        sign = load8(at + 1)
        at += 2
        while load8(at):
            exponent = exponent * 10 + load8(at) - 48
            at += 1
        exponent = -exponent if sign == 45 else exponent
    return count, point + exponent


@kernel
def put_double(to: int, bits: int, scratch: int) -> int:
    """Write a double as the server does in JSON: the shortest digits that read back the same, of those the nearest.

    Returns 0 if it is no number. scratch: address of 48 bytes."""
    value = _bits_to_double(bits)
    if value != value or value - value != 0:
        return 0
    if bits < 0:
        store8(to, 45)
        to += 1
        value = -value
    if value == 0:
        store16(to, 0x2E30)
        store8(to + 2, 48)
        return to + 3
    count, point = _few_digits(value, scratch)
    if count == 0:
        exponent = bits >> 52 & 0x7FF
        if bits & 0xFFFFFFFFFFFFF == 0:
            count, point = put_unsigned(scratch, _TWOS[exponent]) - scratch, _POINTS_OF_TWOS[exponent]
        else:
            count, point = _printed(value, 15 if exponent else 1, scratch)  # subnormal ones have fewer digits
    while count > 1 and load8(scratch + count - 1) == 48:
        count -= 1
    return _put_digits(to, scratch, count, point)


@kernel
def _group(address: int, size: int, flip: int, mask: int) -> int:
    """Return up to nine digits of a packed DECIMAL. flip: 0x80 if they include the sign's bit."""
    value = 0
    for place in range(size):
        value = value << 8 | load8(address + place)
    if flip and size:
        value ^= 0x80 << 8 * (size - 1)
    return value ^ ((1 << 8 * size) - 1) if mask else value


@kernel
def put_decimal(to: int, address: int, precision: int, scale: int) -> int:
    """Write a packed DECIMAL as the server: the whole fraction, a zero before the point. Returns 0 if malformed."""
    mask = 0 if load8(address) & 0x80 else 1
    start = to
    if mask:
        store8(to, 45)
        to += 1
    flip = 0x80
    anything = 0
    shown = False
    for part in range(2):
        left = precision - scale if part == 0 else scale
        if part == 1:
            if not shown:
                store8(to, 48)
                to += 1
            if scale:
                store8(to, 46)
                to += 1
            shown = True
        while left > 0:
            group = min(left, 9) if part or left % 9 == 0 else left % 9
            size = _DIGIT_BYTES[group]
            value = _group(address, size, flip, mask)
            flip = 0
            anything |= value
            address += size
            left -= group
            if value >= _POWERS[group]:
                return 0
            if shown:
                for place in range(group):
                    store8(to + group - 1 - place, 48 + value % 10)
                    value //= 10
                to += group
            elif value:
                to = put_unsigned(to, value)
                shown = True
    if mask and anything == 0:  # there is no -0
        copy(start, start + 1, to - start - 1)
        to -= 1
    return to


@kernel
def decimals(raw: int, validity: Any, nullable: bool, shape: Any, target: int, converted: Any) -> int:
    """Convert a column of packed DECIMALs, shape = (precision, scale, bytes). Returns a malformed row, or -1."""
    used = 0
    for row in range(len(converted) - 1):
        if not nullable or validity[row >> 3] >> (row & 7) & 1:
            end = put_decimal(target + used, raw + row * shape[2], shape[0], shape[1])
            if end == 0:
                return row
            used = end - target
        converted[row + 1] = used
    return -1


@kernel
def _put_pair(to: int, value: int, mark: int) -> int:
    """Write two digits, with a character before them if that isn't 0."""
    if mark:
        store8(to, mark)
        to += 1
    store16(to, _PAIRS[value])
    return to + 2


@kernel
def put_temporal(to: int, packed: int, kind: int) -> int:
    """Write a DATE (10), TIME (11), DATETIME (12) or TIMESTAMP (7) from the packed form in JSON."""
    store8(to, 34)
    to += 1
    if packed < 0:
        if kind == 11:  # the server shows no other sign
            store8(to, 45)
            to += 1
        packed = -packed
    whole, micro = packed >> 24, packed & 0xFFFFFF
    hour = whole >> 12 & 0x3FF if kind == 11 else whole >> 12 & 31
    if kind != 11:
        day = whole >> 17
        year, month = (day >> 5) // 13, (day >> 5) % 13
        if not 0 <= year <= 9999:
            return 0
        to = _put_pair(to, year // 100, 0)
        to = _put_pair(to, year % 100, 0)
        to = _put_pair(to, month, 45)
        to = _put_pair(to, day & 31, 45)
        if kind != 10:
            store8(to, 32)
            to += 1
    if kind != 10:
        if micro > 999_999:
            return 0
        if hour > 99:
            store8(to, 48 + hour // 100)
            to += 1
            if hour > 999:
                return 0
        to = _put_pair(to, hour % 100, 0)
        to = _put_pair(to, whole >> 6 & 63, 58)
        to = _put_pair(to, whole & 63, 58)
        to = _put_pair(to, micro // 10_000, 46)
        to = _put_pair(to, micro // 100 % 100, 0)
        to = _put_pair(to, micro % 100, 0)
    store8(to, 34)
    return to + 1
