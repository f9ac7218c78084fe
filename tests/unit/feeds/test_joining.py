"""What messages are laid together from: equal to the plain way of Python's, whatever the values are."""

from __future__ import annotations

from json.encoder import encode_basestring

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from binlake.feeds.formats import joining
from binlake.feeds.formats.joining import joined, listed, quoted

TEXTS = st.none() | st.text(max_size=40) | st.text(alphabet='"\\\n\x00\x1f\x7fü😀', max_size=70)
ROWS = st.integers(0, 20)


def column(values: list[str | None], cut: int) -> pa.Array:
    """As a slice of a longer one, whose values don't begin at its buffers' start."""
    return pa.array(["before"] * cut + values + ["behind"], pa.string()).slice(cut, len(values))


@settings(deadline=None)
@given(st.data(), ROWS, st.integers(0, 9))
def test_parts_stand_behind_each_other(data: st.DataObject, rows: int, cut: int) -> None:
    several = [
        data.draw(st.lists(TEXTS, min_size=rows, max_size=rows) | st.text(max_size=40)) for _ in range(cut % 4 + 1)
    ]
    if all(isinstance(part, str) for part in several):
        several.append([None] * rows)
    made = joined(*(part if isinstance(part, str) else column(part, cut) for part in several))
    made.validate(full=True)
    by_row = zip(*([part] * rows if isinstance(part, str) else part for part in several), strict=True)
    assert made.to_pylist() == [None if None in parts else "".join(parts) for parts in by_row]


@settings(deadline=None)
@given(st.lists(TEXTS), st.integers(0, 9))
def test_strings_are_quoted_as_jsons(texts: list[str | None], cut: int) -> None:
    made = quoted(column(texts, cut))
    made.validate(full=True)
    wanted = [None if text is None else encode_basestring(text) for text in texts]
    assert made.to_pylist() == listed(made) == wanted


def test_bytes_stay_bytes_and_what_is_the_same_in_all_is_one() -> None:
    assert joined(b"\x00", pa.array([b"\xff", None]), pa.scalar(b"\x01")).to_pylist() == [b"\x00\xff\x01", None]
    assert joined("a", pa.scalar("b"), "c") == pa.scalar("abc")


def test_what_arrow_has_no_room_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_MOST_BYTES", 9)
    with pytest.raises(pa.ArrowCapacityError, match="a column of 10 bytes"):
        joined(pa.array(["12345"]), "67890")


def test_columns_of_another_kind_are_refused() -> None:
    with pytest.raises(TypeError, match="large_string"):
        joined("a", pa.array(["b"], pa.large_string()))
