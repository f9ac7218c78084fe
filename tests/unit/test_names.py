"""Names are data, wherever they go."""

import pytest
from hypothesis import given, strategies as st

from binlake import names


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("orders", "orders"),
        ("we ird", "we ird"),
        ("a.b", "a.b"),
        ("日本'\"`;", "日本'\"`;"),
        ("a/b", "a~2Fb"),
        ("50%", "50~25"),
        ("~", "~7E"),
        ("_delta_log", "~5Fdelta_log"),
        (".hidden", "~2Ehidden"),
        ("..", "~2E."),
        ("tab\t", "tab~09"),
        ("what?", "what~3F"),
        ("c#", "c~23"),
        ("a[x]^|b", "a~5Bx~5D~5E~7Cb"),
    ],
)
def test_folder_keeps_names_and_writes_odd_characters_as_bytes(name: str, folder: str) -> None:
    assert names.folder(name) == folder


def test_a_plain_folder_has_ascii_s_letters_and_digits_alone() -> None:
    assert names.folder("späß #1[]=x.y-z_", plain=True) == "sp~C3~A4~C3~9F~20~231~5B~5D=x.y-z_"


@given(st.text(min_size=1), st.text(min_size=1), st.booleans())
def test_two_names_never_share_a_folder(first: str, second: str, plain: bool) -> None:
    assert (names.folder(first, plain=plain) == names.folder(second, plain=plain)) == (first == second)


@given(st.text(min_size=1))
def test_a_folder_is_one_visible_folder(name: str) -> None:
    folder = names.folder(name)
    assert "/" not in folder
    assert folder[0] not in "._"


def test_quotes_double() -> None:
    assert names.mysql_quote("a`; DROP TABLE x; --") == "`a``; DROP TABLE x; --`"


def test_patterns_are_shell_style_and_the_first_dot_parts() -> None:
    assert names.matches("shop.*", "shop", "a.b")
    assert names.matches("shop_?.order*", "shop_1", "orders")
    assert not names.matches("shop.*", "shops", "a")
    assert not names.matches("shop.*", "Shop", "a")


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_table_has_a_pattern_of_its_own(database: str, table: str) -> None:
    assert names.matches(names.pattern_of(database, table), database, table)


def test_a_tables_pattern_matches_no_other_of_its_database() -> None:
    pattern = names.pattern_of("d", "t[a]*?")
    assert not any(names.matches(pattern, "d", other) for other in ("ta", "t[a]x?", "t[a]*x", "t"))


def test_a_databases_name_in_a_grant_is_no_pattern() -> None:
    assert names.grant_quote("my_shop%`\\") == r"`my\_shop\%``\\`"


def test_a_word_of_a_shell_may_hold_quotes() -> None:
    assert names.shell_quote("it's $HOME") == "'it'\\''s $HOME'"
