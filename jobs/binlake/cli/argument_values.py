"""The values of the command line's arguments: each is read, or refused with what to write."""

from __future__ import annotations

import argparse
import math

from binlake.config.units import seconds_of

_LAST_PORT = 65_535


def duration(text: str) -> float:
    """Return the seconds of a duration, such as 10min."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def minutes(text: str) -> float:
    """Return a number of minutes above 0."""
    try:
        return positive(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text} is no time; write a number of minutes, such as 5") from None


def positive(text: str) -> float:
    """Return a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0; write one, such as 5 or 0.5")
    return number


def whole_number(text: str) -> int:
    """Return a whole number from 0 on."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on; write one, such as 60")
    return int(text)


def pattern(text: str) -> str:
    """Return a pattern of tables, which has a dot."""
    if "." not in text:
        raise argparse.ArgumentTypeError(f"{text!r} has no dot; write database.table, such as shop.*")
    return text


def reason(text: str) -> str:
    """Return a reason, which isn't empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("no reason was given; write it in a few words: it is recorded")
    return text


def port(text: str) -> int:
    """Return the number of a port."""
    if not text.isdecimal() or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text} is no port; write a number up to {_LAST_PORT}")
    return int(text)


def batch(text: str) -> str:
    """Return start, now, or a batch's number as text."""
    if text not in ("start", "now") and not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no batch; write start, now or a batch's number")
    return text
