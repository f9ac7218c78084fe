"""Compiled decoding of single values in row images to numbers: dates and times, decimals.

Formats: MySQL source documentation, my_time.cc and decimal.cc (the same in MariaDB).
"""

from __future__ import annotations

import numpy as np

from binlake.kernels.native import kernel, load8, load32, load64, store64, swap64

_POWERS = np.array([10**digits for digits in range(19)], np.int64)
_DIGIT_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
_DAYS_IN_MONTH = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_FRACTION = np.array([1, 10_000, 100, 1], np.int64)
_DAY_US = 86_400_000_000
BAD = -(1 << 63)
"""A date that no calendar has."""
MALFORMED = BAD + 1
"""A value that no server writes."""


@kernel
def _days(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01, or BAD if there is no such day or the year is 0."""
    if month < 1 or month > 12 or day < 1 or year < 1 or year > 9999:
        return BAD
    leap = (year & 3 == 0 and year % 100 != 0) or year % 400 == 0
    if day > _DAYS_IN_MONTH[month] + (1 if leap and month == 2 else 0):
        return BAD
    # Years that begin in March: the leap day is the last
    shifted = year if month > 2 else year - 1
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + day_of_year - 719_468


@kernel
def _big(address: int, size: int) -> int:
    """Return a big-endian unsigned number of 0 … 7 bytes."""
    return 0 if size == 0 else (swap64(load64(address)) >> 8 & 0xFFFFFFFFFFFFFF) >> (56 - 8 * size)


@kernel
def _fraction(address: int, size: int) -> int:
    return _big(address, size) * int(_FRACTION[size])


@kernel
def date(address: int) -> int:
    """Return the days of a DATE, or BAD."""
    raw = load32(address) & 0xFFFFFF
    return _days(raw >> 9, raw >> 5 & 15, raw & 31)


@kernel
def timestamp(address: int, digits: int) -> int:
    """Return the microseconds of a TIMESTAMP; BAD for zero, which is no time. digits: of the fraction, as below."""
    seconds = _big(address, 4)
    micro = _fraction(address + 4, (digits + 1) >> 1)
    return BAD if seconds == 0 and micro == 0 else seconds * 1_000_000 + micro


@kernel
def datetime(address: int, digits: int) -> int:
    """Return the microseconds of a DATETIME, or BAD, or MALFORMED."""
    raw = _big(address, 5) - 0x8000000000
    micro = _fraction(address + 5, (digits + 1) >> 1)
    day, clock = raw >> 17, raw & 0x1FFFF
    if raw < 0 or clock >> 12 > 23 or clock >> 6 & 63 > 59 or clock & 63 > 59 or micro > 999_999:
        return MALFORMED
    month = day >> 5
    number = _days(month // 13, month % 13, day & 31)
    if number == BAD:
        return BAD
    return number * _DAY_US + ((clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)) * 1_000_000 + micro


@kernel
def time(address: int, digits: int) -> int:
    """Return the microseconds of a TIME, which may be negative, or MALFORMED."""
    size = (digits + 1) >> 1
    raw = _big(address, 3 + size) - (0x800000 << 8 * size)
    magnitude = -raw if raw < 0 else raw
    whole = magnitude >> 8 * size
    micro = (magnitude & (1 << 8 * size) - 1) * int(_FRACTION[size])
    if whole >> 6 & 63 > 59 or whole & 63 > 59 or micro > 999_999 or whole >> 22:
        return MALFORMED
    total = ((whole >> 12) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)) * 1_000_000 + micro
    return -total if raw < 0 else total


@kernel
def store_decimal(target: int, address: int, precision: int, scale: int) -> bool:
    """Store a packed DECIMAL of up to 38 digits as a 128-bit number. Returns False if a digit is above 9."""
    flip = 0x80
    mask = 0 if load8(address) & 0x80 else -1
    low, high = 0, 0
    for part in range(2):
        digits = precision - scale if part == 0 else scale
        left = digits
        while left > 0:
            # the odd digits are before the point's first group, and after the fraction's last
            group = min(left, 9) if part or left % 9 == 0 else left % 9
            size = _DIGIT_BYTES[group]
            value = _big(address, size)
            if flip:
                value ^= 0x80 << 8 * (size - 1)
                flip = 0
            if mask:
                value ^= (1 << 8 * size) - 1
            power = _POWERS[group]
            if value >= power:
                return False
            if precision <= 18:
                low = low * power + value
            else:
                first = (low & 0xFFFFFFFF) * power + value
                second = (low >> 32 & 0xFFFFFFFF) * power + (first >> 32)
                low = first & 0xFFFFFFFF | second << 32
                high = high * power + (second >> 32)
            address += size
            left -= group
    if mask:
        low = -low
        high = ~high + (1 if low == 0 else 0) if precision > 18 else (-1 if low else 0)
    store64(target, low)
    store64(target + 8, high)
    return True
