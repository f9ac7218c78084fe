"""What masks make of values."""

from __future__ import annotations

import hashlib
import hmac
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from binlake.errors import ConfigurationError
from binlake.schema import hash_key
from binlake.schema.datatypes import arrow_type
from binlake.schema.hash_key import HashKey
from binlake.schema.kept_characters import kept
from binlake.schema.keyed_hashes import hashed
from binlake.schema.mask import Mask
from binlake.schema.masked_shapes import may_have_left, uncovered, unmaskable, with_masks
from binlake.schema.masking import masked, refusal
from binlake.schema.table import Column, TableSchema, Virtual
from binlake.serialization import dumps, loads

KEY = HashKey.of("a key")
HASH = Mask("hash", 32, KEY.fingerprint)


@pytest.fixture(autouse=True)
def known_key() -> None:
    hash_key.use([KEY])


def of(column: Column, values: list[Any]) -> list[Any]:
    made: list[Any] = masked(pa.array(values, arrow_type(column)), column).to_pylist()
    return made


@pytest.mark.parametrize("size", [0, 1, 54, 55, 56, 63, 64, 65, 118, 119, 120, 127, 128, 1000])
def test_a_hash_is_the_hmac_that_everybody_computes(size: int) -> None:
    text = "é" * (size // 2) + "x" * (size % 2)
    expected = hmac.new(b"a key", text.encode(), hashlib.sha256).hexdigest()
    rows = pa.array([None, text, "other"]).slice(0, 2)
    assert hashed(rows, KEY, 64).to_pylist() == [None, expected]
    assert hashed(rows.slice(1), KEY, 12).to_pylist() == [expected[:12]]


@pytest.mark.parametrize("digits", [8, 9, 63, 64])
@pytest.mark.parametrize(
    "sizes", [(3,), (3, 55), (3, 56), (56, 3), (3, 4, 5), (3, 200, 4), (200, 3, 4, 64, 5), (0, 0, 55, 119, 1, 1)]
)
def test_values_of_one_block_and_longer_ones_are_hashed_in_their_order(sizes: tuple[int, ...], digits: int) -> None:
    texts = [str(number) * size for number, size in enumerate(sizes)]
    expected = [hmac.new(b"a key", text.encode(), hashlib.sha256).hexdigest()[:digits] for text in texts]
    made = hashed(pa.array(texts), KEY, digits)
    assert made.to_pylist() == expected
    assert made.buffers()[2].size == digits * len(texts)


@pytest.mark.parametrize(("first", "last"), [(0, 4), (3, 0), (2, 2), (5, 9)])
@pytest.mark.parametrize("fill", ["*", "€", "😀"])
def test_characters_are_kept_as_python_counts_them(first: int, last: int, fill: str) -> None:
    texts = [
        None,
        "",
        "a",
        "1234",
        "12345",
        "héllo wörld",
        "😀😀😀😀😀😀",
        "ab€",
        "0170 1234567",
        None,
        "漢字かな交じり文",
    ]

    def expected(text: str | None) -> str | None:
        if text is None or len(text) <= first + last:
            return text and fill * len(text)
        return text[:first] + fill * (len(text) - first - last) + text[len(text) - last :]

    rows = pa.array(["skipped", *texts])
    assert kept(rows.slice(1), first, last, fill).to_pylist() == [expected(text) for text in texts]
    assert kept(rows.slice(2, 0), first, last, fill).to_pylist() == []
    assert kept(rows.slice(1, 1), first, last, fill).to_pylist() == [None]


def test_a_key_longer_than_a_block_is_hashed_first() -> None:
    expected = hmac.new(b"k" * 200, b"x", hashlib.sha256).hexdigest()
    assert hashed(pa.array(["x"]), HashKey.of("k" * 200), 64).to_pylist() == [expected]


def test_a_key_is_shown_nowhere() -> None:
    assert "a key" not in repr(KEY)
    with pytest.raises(ConfigurationError, match="isn't there"):
        hash_key.key_of("0123456789ab")


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (Column("c", "varchar"), "é", "é"),
        (Column("c", "int"), -5, "-5"),
        (Column("c", "decimal", precision=9, scale=2), Decimal("1.50"), "1.50"),
        (Column("c", "date"), date(2024, 1, 2), "2024-01-02"),
        (Column("c", "datetime"), datetime(2024, 1, 2, 3, 4, 5), "2024-01-02 03:04:05"),
        (Column("c", "timestamp", fraction=3), datetime(2024, 1, 2, 3, 4, 5, 6000), "2024-01-02 03:04:05.006"),
        (Column("c", "bit", length=1), True, "1"),
        (Column("c", "varbinary"), b"raw", "raw"),
    ],
    ids=lambda part: part.type if isinstance(part, Column) else "",
)
def test_hashed_is_the_text_of_a_value(column: Column, value: Any, text: str) -> None:
    column = Column(**{**vars(column), "mask": HASH})
    expected = hmac.new(b"a key", text.encode(), hashlib.sha256).hexdigest()[:32]
    assert of(column, [value, None]) == [expected, None]


def test_characters_are_kept_and_short_texts_are_masked_whole() -> None:
    last = Column("c", "varchar", mask=Mask("keep", last=4, fill="*"))
    assert of(last, ["0123456789", "äöü€𝄞x", "1234", "", None]) == ["******6789", "**ü€𝄞x", "****", "", None]
    both = Column("c", "varchar", mask=Mask("keep", first=1, last=2, fill="#"))
    assert of(both, ["abcdef", "abc", None]) == ["a###ef", "###", None]


@pytest.mark.parametrize(
    ("column", "mask", "before", "after"),
    [
        (Column("c", "int"), 3, [12345, -12345, 999, None], [12000, -12000, 0, None]),
        (Column("c", "tinyint"), 3, [127, -128], [0, 0]),
        (Column("c", "bigint", unsigned=True), 3, [Decimal(2**64 - 1)], [Decimal(18446744073709551000)]),
        (Column("c", "decimal", precision=9, scale=2), 3, [Decimal("12345.67"), Decimal("-1.5")], [12000, 0]),
        (Column("c", "decimal", precision=9, scale=2), 7, [Decimal("12345.67"), None], [0, None]),
        (Column("c", "double"), 2, [12345.67, -0.5], [12300.0, 0.0]),
        (Column("c", "text"), 2, ["é€x", "a", None], ["é€", "a", None]),
        (Column("c", "date"), "year", [date(1969, 5, 6), date(1, 2, 3)], [date(1969, 1, 1), date(1, 1, 1)]),
        (Column("c", "date"), "day", [date(1969, 5, 6)], [date(1969, 5, 6)]),
        (Column("c", "datetime"), "hour", [datetime(9999, 12, 31, 23, 59)], [datetime(9999, 12, 31, 23)]),
    ],
)
def test_truncated_values(column: Column, mask: Any, before: list[Any], after: list[Any]) -> None:
    made = Mask("truncate", mask) if isinstance(mask, int) else Mask("truncate", unit=mask)
    assert of(Column(**{**vars(column), "mask": made}), before) == after


@pytest.mark.parametrize(
    ("column", "mask", "why"),
    [
        (Column("c", "json"), Mask("keep", last=1, fill="*"), "can't be kept"),
        (Column("c", "json"), Mask("truncate", 3), "can't be truncated"),
        (Column("c", "uuid"), HASH, "aren't hashed"),
        (Column("c", "vector"), HASH, "aren't hashed"),
        (Column("c", "int"), Mask("truncate", unit="year"), "number of digits"),
        (Column("c", "date"), Mask("truncate", 3), "year, month, day or hour"),
        (Column("c", "date"), Mask("truncate", unit="hour"), "no hour"),
        (Column("c", "time"), Mask("truncate", 3), "can't be truncated"),
        (Column("c", "varchar"), Mask("truncate", unit="day"), "number of characters"),
    ],
)
def test_a_mask_that_makes_no_sense_is_refused(column: Column, mask: Mask, why: str) -> None:
    assert why in refusal(column, mask, in_key=False)


def test_a_column_of_the_key_is_hashed_with_enough_digits_alone() -> None:
    column = Column("c", "varchar")
    assert not refusal(column, HASH, in_key=True)
    assert "32 digits" in refusal(column, Mask("hash", 16, KEY.fingerprint), in_key=True)
    assert "not masked otherwise" in refusal(column, Mask("nothing"), in_key=True)


def schema(*columns: Column) -> TableSchema:
    return TableSchema((Column("id", "int", nullable=False), *columns), ("id",), "primary")


def test_a_shape_without_masks_is_as_it_was() -> None:
    plain = schema(Column("email", "varchar", length=20))
    assert with_masks(plain, {}) is plain
    assert plain.unmasked is plain
    assert '"mask"' not in str(plain.uncommented()["columns"])
    assert with_masks(plain, {"email": HASH}).unmasked == plain
    assert with_masks(plain, {"email": HASH}).fingerprint != plain.fingerprint


def test_the_lake_has_a_hash_as_text_and_no_default_or_comment_of_it() -> None:
    masked_shape = with_masks(schema(Column("n", "int", default="5", comment="secret 7")), {"n": HASH})
    assert [(column.type, column.length) for column in masked_shape.logged] == [("int", None), ("char", 32)]
    assert (masked_shape.column("n").type, masked_shape.column("n").default) == ("int", None)
    assert "secret" not in dumps(masked_shape)
    assert loads(TableSchema, dumps(masked_shape)) == masked_shape


def test_a_generated_column_over_a_masked_one_goes_unless_it_is_masked() -> None:
    plain = schema(
        Column("email", "varchar"),
        Column("loud", "varchar", generated=True, stored=Virtual("upper(`email`)", "mysql")),
        Column("louder", "varchar", generated=True, virtual=Virtual("concat(`loud`,'!')", "mysql")),
        Column("other", "varchar", generated=True, stored=Virtual("`id`", "mysql")),
        Column("old", "varchar", generated=True),
    )
    assert with_masks(plain, {"email": HASH}).excluded == {"loud", "louder", "old"}
    assert with_masks(plain, {"email": HASH, "loud": HASH}).excluded == {"louder", "old"}


def test_a_masked_column_may_not_get_a_name_that_shows_it() -> None:
    after = schema(Column("mail", "varchar"))
    assert "is called mail now" in uncovered({"email"}, ("id", "email"), after, set())
    assert not uncovered({"email"}, ("id", "email"), after, {"mail"})
    assert "another name now" in uncovered({"mail"}, ("id", "mail"), after, set())


@pytest.mark.parametrize(
    ("before", "now", "withheld", "may"),
    [
        ("id pin name", "id name pin", "pin", True),
        ("id pin name", "id pin name", "pin", False),
        ("id pin name", "id pin name more", "pin", False),
        ("id pin name", "id name code", "pin", True),
        ("id a b c", "id x y z", "a b c", True),
        ("id pin name", "number code place", "pin", False),
    ],
    ids=["swapped", "same", "added", "renamed", "all renamed", "another table"],
)
def test_a_table_may_be_one_that_was_called_otherwise(before: str, now: str, withheld: str, may: bool) -> None:
    there, here = (TableSchema(tuple(Column(name, "int") for name in names.split())) for names in (before, now))
    assert may_have_left(there, here, set(withheld.split())) == may


def test_values_of_a_masked_column_follow_no_other_type_and_no_constant() -> None:
    before = with_masks(schema(Column("c", "int")), {"c": HASH})
    wider, date_ = (with_masks(schema(Column("c", kind)), {"c": HASH}) for kind in ("bigint", "date"))
    assert unmaskable(before, wider, ("id", "c"), (), ()) == ()
    assert unmaskable(before, date_, ("id", "c"), (), ()) == ("the masked column 'c' has another type",)
    assert unmaskable(before, wider, ("id", None), {"c"}, ()) == ("old rows got a constant in the masked column 'c'",)
    assert "masked otherwise" in unmaskable(before.unmasked, wider, ("id", "c"), (), ())[0]


def test_values_of_a_masked_enum_follow_no_other_members_which_nothing_records() -> None:
    before = with_masks(schema(Column("c", "enum", charset="utf8mb4", values=("a", "b"))), {"c": HASH})
    assert before.column("c").values == ()
    assert unmaskable(before, before, ("id", "c"), (), ()) == ()
    assert unmaskable(before, before, ("id", "c"), (), {"c"}) == ("the masked column 'c' has another type",)
