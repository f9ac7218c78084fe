"""Dataclasses as JSON."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from binlake.serialization import Base64, dump, dumps, load, loads


@dataclass(frozen=True)
class Part:
    name: str
    raw: Base64 = b""


@dataclass(frozen=True)
class Whole:
    number: int
    parts: tuple[Part, ...] = ()
    ranges: dict[str, tuple[int, int]] | None = None


WHOLE = Whole(2**64 - 1, (Part("ä", b"\xfb\xff"), Part("")), {"id": (-(2**63), 2**64 - 1)})


def test_values_come_back() -> None:
    assert loads(Whole, dumps(WHOLE)) == WHOLE
    assert load(Whole, dump(WHOLE)) == WHOLE


def test_bytes_are_base64_of_the_standard_alphabet() -> None:
    assert dumps(WHOLE.parts[0]) == '{"name":"ä","raw":"+/8="}'


def test_a_field_that_is_not_told_has_its_default() -> None:
    assert loads(Whole, '{"number": 1}') == Whole(1)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"number": "1"}', "number"),
        ("{}", "number"),
        ('{"number": 1, "parts": [{"name": "secret", "raw": "sécret"}]}', "parts.0.raw"),
        ('{"number": 1, "parts": [{"name": 17}]}', "parts.0.name"),
        ('"secret"', "the whole"),
        ("secret", "the whole"),
    ],
)
def test_what_is_something_else_is_named_without_its_value(text: str, place: str) -> None:
    with pytest.raises(ValueError, match=f"no Whole: {place}: ") as refused:
        loads(Whole, text)
    assert "cret" not in str(refused.value)
