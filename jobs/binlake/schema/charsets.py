"""Character sets: from a collation's number in the log to text, decoded as the server converts to utf8mb4.

The tables of ``charset_tables.npz`` were asked of MySQL itself (tests/integration/make_charset_tables.py): Python's
codecs differ from it in dozens of codes.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Literal

import numpy as np
import numpy.typing as npt

from binlake.caches import remembered

# Numbers as information_schema.collations of MySQL 9.7 and MariaDB 10.11 list them. MariaDB's "no pad" twins are
# the number + 1024; from 2048 on come its UCA 14.0 collations, 256 for each character set.
_COLLATIONS = """
big5 1 84 | latin2 2 9 21 27 77 | dec8 3 69 | cp850 4 80 | latin1 5 8 15 31 47-49 94 | hp8 6 72 | koi8r 7 74
swe7 10 82 | ascii 11 65 | ujis 12 91 | sjis 13 88 | cp1251 14 23 50-52 | hebrew 16 71 | tis620 18 89 | euckr 19 85
latin7 20 41-42 79 | koi8u 22 75 | gb2312 24 86 | greek 25 70 | cp1250 26 34 44 66 99 | gbk 28 87 | cp1257 29 58-59
latin5 30 78 | armscii8 32 64 | utf8mb3 33 76 83 192-223 576-607 | ucs2 35 90 128-159 640-671 | cp866 36 68
keybcs2 37 73 | macce 38 43 | macroman 39 53 | cp852 40 81 | utf8mb4 45-46 224-247 255-323 608-639
utf16 54-55 101-127 672-703 | utf16le 56 62 | cp1256 57 67 | utf32 60-61 160-191 736-767 | binary 63
geostd8 92-93 | cp932 95-96 | eucjpms 97-98 | gb18030 248-250
utf8mb3 2048-2303 | utf8mb4 2304-2559 | ucs2 2560-2815 | utf16 2816-3071 | utf32 3072-3327
"""
_NO_PAD = 1024

_BYTES_PER_CHARACTER = {"utf8mb4": 4, "utf16": 4, "utf16le": 4, "utf32": 4, "gb18030": 4, "utf8mb3": 3, "ujis": 3}
_BYTES_PER_CHARACTER |= {"eucjpms": 3, "ucs2": 2}
_BYTES_PER_CHARACTER |= dict.fromkeys(("big5", "sjis", "euckr", "gb2312", "gbk", "cp932"), 2)

_PYTHON_CODECS = {"utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf16": "utf-16-be", "utf16le": "utf-16-le"}
_PYTHON_CODECS |= {"utf32": "utf-32-be", "ascii": "ascii"}
NOT_ASCII = frozenset({"utf16", "utf16le", "utf32", "ucs2", "swe7"})
"""Character sets in which bytes below 0x80 aren't ASCII."""

_DEFAULTS = {"latin1": 8, "latin2": 9, "latin7": 41, "cp1251": 51, "cp1257": 59, "binary": 63}
"""The default collation's number, of character sets where it isn't the lowest."""

Decode = Callable[[bytes], str]
"""A function from bytes to text. With strict errors it raises UnicodeDecodeError."""
Encode = Callable[[str], bytes]
"""A function from text to bytes. It raises UnicodeEncodeError for a character that the set lacks."""
Codes = npt.NDArray[np.uint16]
Errors = Literal["strict", "replace"]
_QUESTION = ord("?")
NO_CHARACTER = "\ufffd"
"""The replacement for bytes that are no character."""


@cache
def _numbers() -> dict[int, str]:
    numbers: dict[int, str] = {}
    for group in _COLLATIONS.replace("\n", "|").split("|"):
        charset, *spans = group.split() or [""]
        for span in spans:
            first, _, last = span.partition("-")
            for number in range(int(first), int(last or first) + 1):
                numbers[number] = charset
    return numbers


def charset(collation: int) -> str | None:
    """Return the character set of a collation's number; None if neither server has it."""
    numbers = _numbers()
    name = numbers.get(collation)
    if name is None and _NO_PAD < collation < 2 * _NO_PAD:
        name = numbers.get(collation - _NO_PAD)
    return name


def default_collation(name: str) -> int:
    """Return the number of a collation of the character set that both servers know. Raises KeyError."""
    if name in _DEFAULTS:
        return _DEFAULTS[name]
    for number, known in _numbers().items():
        if known == name:
            return number
    raise KeyError(name)


def is_known(name: str) -> bool:
    """Return whether a server has a character set of this name; ``binary`` counts."""
    return name in _numbers().values()


def bytes_per_character(name: str) -> int:
    """Return the greatest number of bytes that a character takes."""
    return _BYTES_PER_CHARACTER.get(name, 1)


@cache
def tables() -> dict[str, Codes]:
    """Return code points by ``{charset}{length}``, where length is that of the codes in bytes.

    Index 0 is the one-byte code 0, the two-byte code 0x8000, or the three-byte code 0x8f8080 (whose second and third
    byte count 128 values each). 0 is no character; codes that the server stores and converts to ``?`` have that.
    """
    data = (resources.files(__package__) / "charset_tables.npz").read_bytes()
    with np.load(io.BytesIO(data)) as stored:
        return {name: stored[name] for name in stored.files}


@remembered("decoders of charsets")
def decoder(name: str, errors: Errors = "strict") -> Decode:
    """Return a decoder from a statement's or definition's bytes to text. Raises KeyError for an unknown name.

    A code that the server would convert to ``?`` counts as no character. errors: ``replace`` puts NO_CHARACTER in the
    place of bytes that are no character.
    """
    if name == "gb18030":
        return lambda data: _decode_gb18030(data, errors)
    if name == "ucs2":
        return lambda data: _decode_ucs2(data, errors)
    if name in _PYTHON_CODECS:
        codec = _PYTHON_CODECS[name]
        return lambda data: data.decode(codec, errors)
    known = tables()
    single = [int(code) for code in known[f"{name}1"]]
    double, triple = known.get(f"{name}2"), known.get(f"{name}3")
    ascii_first = name not in NOT_ASCII

    def is_character(code: int, lead: int) -> bool:
        return bool(code) and (code != _QUESTION or lead == _QUESTION)

    def decode(data: bytes) -> str:
        if ascii_first and data.isascii():
            return data.decode("ascii")
        text: list[str] = []
        at, end = 0, len(data)
        while at < end:
            lead = data[at]
            code, size = single[lead], 1
            if not is_character(code, lead) and lead:
                if double is not None and at + 1 < end:
                    code, size = int(double[(lead - 0x80) << 8 | data[at + 1]]), 2
                if not is_character(code, lead) and triple is not None and lead == 0x8F and at + 2 < end:
                    second, third = data[at + 1], data[at + 2]
                    if second >= 0x80 and third >= 0x80:
                        code, size = int(triple[(second - 0x80) << 7 | third - 0x80]), 3
                known_code = is_character(code, lead)
                if not known_code and errors == "strict":
                    raise UnicodeDecodeError(name, data, at, at + 1, "no such character")
                code, size = (code, size) if known_code else (ord(NO_CHARACTER), 1)
            text.append(chr(code))
            at += size
        return "".join(text)

    return decode


def _decode_ucs2(data: bytes, errors: Errors) -> str:
    text = data.decode("utf-16-be", errors)
    if 2 * len(text) < len(data) and errors == "strict":
        raise UnicodeDecodeError("ucs2", data, 0, len(data), "a pair of surrogates")
    return "".join(letter if letter <= "\uffff" else 2 * NO_CHARACTER for letter in text)


def _decode_gb18030(data: bytes, errors: Errors) -> str:
    # Python has the standard's edition of 2000, the server the one of 2005: two codes changed places.
    if b"\xa8\xbc" not in data and b"\x81\x35\xf4\x37" not in data:
        return data.decode("gb18030", errors)
    return data.decode("gb18030", errors).translate({0xE7C7: 0x1E3F, 0x1E3F: 0xE7C7})


@remembered("encoders to charsets")
def encoder(name: str) -> Encode:
    """Return an encoder from text to a character set's bytes, ``decoder``'s inverse. Of two codes the lower wins."""
    if name == "gb18030":
        return lambda text: text.translate({0xE7C7: 0x1E3F, 0x1E3F: 0xE7C7}).encode("gb18030")
    if name == "ucs2":
        return _encode_ucs2
    if name in _PYTHON_CODECS:
        codec = _PYTHON_CODECS[name]
        return lambda text: text.encode(codec)
    codes = _codes(name)
    ascii_first = name not in NOT_ASCII

    def encode(text: str) -> bytes:
        if ascii_first and text.isascii():
            return text.encode("ascii")
        try:
            return b"".join([codes[letter] for letter in text])
        except KeyError as error:
            at = text.index(error.args[0])
            raise UnicodeEncodeError(name, text, at, at + 1, "no such character") from None

    return encode


def _encode_ucs2(text: str) -> bytes:
    for at, letter in enumerate(text):
        if letter > "\uffff":
            raise UnicodeEncodeError("ucs2", text, at, at + 1, "beyond the basic plane")
    return text.encode("utf-16-be")


def _codes(name: str) -> dict[str, bytes]:
    """Return the bytes of each character of a set that the tables contain."""
    known = tables()
    codes: dict[str, bytes] = {"?": b"?"}
    for size in (1, 2, 3):
        for place, code in enumerate(known.get(f"{name}{size}", ())):
            if not code and (size > 1 or place):
                continue
            single = bytes([place & 0xFF])
            double = bytes([0x80 + (place >> 8) & 0xFF, place & 0xFF])
            triple = bytes([0x8F, 0x80 + (place >> 7) & 0xFF, 0x80 + (place & 0x7F)])
            codes.setdefault(chr(code), (single, double, triple)[size - 1])
    return codes
