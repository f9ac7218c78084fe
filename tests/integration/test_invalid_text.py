"""Text that isn't valid in its character set: by either way the table stops with its column's name, never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from binlake.errors import InvalidText
from mirror import on_mariadb

if TYPE_CHECKING:
    from mirror import Mirror

HALF = "x'61EDA08062'"
"""Half a surrogate pair in UTF-8, which MariaDB takes."""


def refused(mirror: Mirror) -> InvalidText:
    with pytest.raises(InvalidText) as raised:
        mirror.snapshot()
    return raised.value


@on_mariadb
@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("VARCHAR(9) CHARACTER SET utf8mb4", HALF),
        ("TEXT CHARACTER SET utf8mb3", HALF),
        ("LONGTEXT COMPRESSED", HALF),
        ("CHAR(9) CHARACTER SET utf32", "x'0000D800'"),
    ],
)
def test_half_a_pair_stops_its_table_by_both_ways(mirror: Mirror, declared: str, value: str) -> None:
    assert_refused_by_both_ways(mirror, declared, value)


@pytest.mark.parametrize("value", ["x'0061D800'", "x'D83DDC00'", "x'DC00D83D'"])
def test_ucs2_has_no_pairs(mirror: Mirror, value: str) -> None:
    assert_refused_by_both_ways(mirror, "VARCHAR(9) CHARACTER SET ucs2", value)


def assert_refused_by_both_ways(mirror: Mirror, declared: str, value: str) -> None:
    mirror.execute(
        f"CREATE TABLE copied (id INT PRIMARY KEY, v {declared})",
        f"CREATE TABLE logged (id INT PRIMARY KEY, v {declared})",
        "CREATE TABLE other (id INT PRIMARY KEY, v VARCHAR(9))",
        f"INSERT INTO copied VALUES (1, {value}), (2, NULL), (3, 'fine')",
        "INSERT INTO logged VALUES (1, 'fine'), (2, NULL)",
        "INSERT INTO other VALUES (1, '\ufffd'), (2, NULL)",
    )
    error = refused(mirror)
    assert error.message == f"{mirror.database}.copied: a value of column 'v' isn't valid in its character set"
    assert error.remedy
    mirror.execute(f"INSERT INTO logged VALUES (3, {value})", "INSERT INTO other VALUES (3, 'goes on')")
    mirror.sync()
    assert mirror.watermark("logged")["status"] == "stopped"
    assert "'v'" in mirror.watermark("logged")["reason"]
    mirror.assert_equal("other")
    assert "logged" not in {one.name.table for one in mirror.verify().tables if one.equal}
    mirror.execute("UPDATE copied SET v = 'mended' WHERE id = 1", "DELETE FROM logged WHERE id = 3")
    mirror.snapshot(f"{mirror.database}.copied", f"{mirror.database}.logged")
    mirror.execute("INSERT INTO logged VALUES (4, 'later')")
    mirror.sync()
    mirror.assert_equal("copied", "logged", "other")
