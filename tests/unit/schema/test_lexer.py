"""Words of statements: quotes, numbers, comments."""

from __future__ import annotations

import pytest

from binlake.position import Flavour
from binlake.schema.lexer import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, Lexer


def words(text: str, sql_mode: int = 0, flavour: Flavour = "mysql") -> list[tuple[str, str]]:
    lexer = Lexer(text, sql_mode, flavour)
    while lexer.step():
        pass
    assert lexer.tokens[-1].kind == "end"
    return [(token.kind, token.text) for token in lexer.tokens[:-1]]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'a''b'", "a'b"),
        ("'a\"b'", 'a"b'),
        (r"'a\'b'", "a'b"),
        (r"'\\'", "\\"),
        (r"'\0\b\n\r\t\Z\q'", "\0\b\n\r\t\x1aq"),
        (r"'\%\_'", r"\%\_"),
        ('"a""b"', 'a"b'),
        ("'日本 🙂'", "日本 🙂"),
        ("'a\nb'", "a\nb"),
        ("''", ""),
    ],
)
def test_strings(text: str, value: str) -> None:
    assert words(text) == [("string", value)]


@pytest.mark.parametrize("name", ["\u00a0b", "\u3000b\u2003", "\u0663", "1\u0663"])
def test_blanks_and_digits_beyond_ascii_are_letters_of_a_name(name: str) -> None:
    assert words(f"a INT, {name} INT") == [
        *(("word", "a"), ("word", "INT"), ("symbol", ",")),
        *(("word", name), ("word", "INT")),
    ]


def test_quotes_mean_what_sql_mode_says() -> None:
    assert words('"a""b"', ANSI_QUOTES) == [("quoted", 'a"b')]
    assert words(r"'\' x", NO_BACKSLASH_ESCAPES) == [("string", "\\"), ("word", "x")]
    # Backslashes never escape in names.
    assert words(r"`a\` x") == [("quoted", "a\\"), ("word", "x")]
    assert words(r'"a\" x', ANSI_QUOTES) == [("quoted", "a\\"), ("word", "x")]
    assert words("`a``b.c`") == [("quoted", "a`b.c")]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("12", "number", "12"),
        ("1.5", "number", "1.5"),
        (".5", "number", ".5"),
        ("1e5", "number", "1e5"),
        ("1.5e-3", "number", "1.5e-3"),
        ("0x1F", "bytes", "1f"),
        ("0xABC", "bytes", "0abc"),
        ("x'0a'", "bytes", "0a"),
        ("X''", "bytes", ""),
        ("b'101'", "bytes", "05"),
        ("0b100000000", "bytes", "0100"),
        ("1st", "word", "1st"),
        ("0xyz", "word", "0xyz"),
        ("$x_é", "word", "$x_é"),
    ],
)
def test_numbers_and_names(text: str, kind: str, value: str) -> None:
    assert words(text) == [(kind, value)]


def test_what_follows_a_dot_is_a_name() -> None:
    assert words("a.1b") == [("word", "a"), ("symbol", "."), ("word", "1b")]
    assert words("a.12") == [("word", "a"), ("symbol", "."), ("word", "12")]
    assert words("`a`.0x1") == [("quoted", "a"), ("symbol", "."), ("word", "0x1")]


@pytest.mark.parametrize(
    "text", ["a /* b */ c", "a -- b\nc", "a # b\nc", "a--\nc", "a/**/c", "a /* ' */ c", "a /*+ b */ c", "a-- b\tb\nc"]
)
def test_comments_are_left_out(text: str) -> None:
    assert [value for _, value in words(text)] == ["a", "c"]


def test_two_dashes_need_a_space_to_be_a_comment() -> None:
    assert words("5--3") == [("number", "5"), ("symbol", "-"), ("symbol", "-"), ("number", "3")]


def test_versioned_comments_count_where_they_are_executed() -> None:
    def bare(text: str, flavour: Flavour) -> str:
        return "".join(value for _, value in words(text, flavour=flavour))

    assert bare("a /*!50000 b */ c", "mysql") == bare("a /*! b */ c", "mariadb") == "abc"
    assert bare("a /*!80000b*/ c", "mysql") == "abc"
    assert bare("a /*!80000 b */ c", "mariadb") == "ac"
    assert bare("a /*!100100 b */ c", "mariadb") == "abc"
    assert bare("a /*M!100100 b */ c", "mariadb") == "abc"
    assert bare("a /*M!100100 b */ c", "mysql") == "ac"
    assert bare("a /*!50000 b /* x */ d */ c", "mysql") == "abdc"


@pytest.mark.parametrize("text", ["'a", "`a", '"a', "/* a", "/*!50000 a", r"'a\'", "'"])
def test_what_never_ends_is_broken(text: str) -> None:
    assert words(text)[-1][0] == "broken"
