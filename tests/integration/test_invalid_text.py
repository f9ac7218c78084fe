"""Text that isn't valid in its character set: by either way the table stops with its column's name, never changed; or
its bytes are kept in a column beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from binlake.errors import InvalidText
from mirror import in_the_soak, on_mariadb, on_mysql

if TYPE_CHECKING:
    from mirror import Mirror

HALF = "x'61EDA08062'"
"""Half a surrogate pair in UTF-8, which MariaDB takes."""


def refused(mirror: Mirror) -> InvalidText:
    with pytest.raises(InvalidText) as raised:
        mirror.snapshot()
    return raised.value


HALVES = [
    ("VARCHAR(9) CHARACTER SET utf8mb4", HALF),
    ("TEXT CHARACTER SET utf8mb3", HALF),
    ("LONGTEXT COMPRESSED", HALF),
    ("CHAR(9) CHARACTER SET utf32", "x'0000D800'"),
]
IN_UCS2 = ["x'0061D800'", "x'D83DDC00'", "x'DC00D83D'"]


@on_mariadb
@pytest.mark.parametrize(("declared", "value"), [HALVES[0], HALVES[3], *in_the_soak(HALVES[1], HALVES[2])])
def test_half_a_pair_stops_its_table_by_both_ways(mirror: Mirror, declared: str, value: str) -> None:
    assert_refused_by_both_ways(mirror, declared, value)


@on_mysql
@pytest.mark.parametrize("value", [IN_UCS2[1], *in_the_soak(IN_UCS2[0], IN_UCS2[2])])
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
    mirror.execute(f"INSERT INTO logged VALUES (3, {value})", "INSERT INTO other VALUES (3, 'continues')")
    mirror.sync()
    assert mirror.watermark("logged")["status"] == "stopped"
    assert "'v'" in mirror.watermark("logged")["reason"]
    mirror.assert_equal("other")
    assert "logged" not in {table.name.table for table in mirror.verify().tables if table.equal}
    mirror.execute("UPDATE copied SET v = 'fixed' WHERE id = 1", "DELETE FROM logged WHERE id = 3")
    mirror.snapshot(f"{mirror.database}.copied", f"{mirror.database}.logged")
    mirror.execute("INSERT INTO logged VALUES (4, 'later')")
    mirror.sync()
    mirror.assert_equal("copied", "logged", "other")


KEEP = {"invalid_text": "keep_bytes"}


def in_lake(mirror: Mirror, table: str, row: int) -> dict[str, Any]:
    """One row of the Delta table, by its id."""
    rows = mirror.spark.read.format("delta").load(mirror.path(table))
    return rows.where(f"id = {row}").collect()[0].asDict()


def fields(mirror: Mirror, table: str) -> list[str]:
    return [field.name for field in DeltaTable(mirror.path(table)).schema().fields]


@on_mariadb
def test_half_a_pair_is_kept_by_both_ways(mirror: Mirror) -> None:
    assert_kept_by_both_ways(mirror, HALVES)


@on_mysql
def test_so_is_half_a_pair_in_ucs2(mirror: Mirror) -> None:
    assert_kept_by_both_ways(mirror, [("VARCHAR(9) CHARACTER SET ucs2", value) for value in IN_UCS2])


def assert_kept_by_both_ways(mirror: Mirror, kinds: list[tuple[str, str]]) -> None:
    """The first of them in a table without a key, too."""
    mirror.options = KEEP
    tables = {f"t{number}": kind for number, kind in enumerate(kinds)} | {"without_key": kinds[0]}
    for table, (declared, value) in tables.items():
        mirror.execute(
            f"CREATE TABLE {table} (id INT {'PRIMARY KEY' if table[0] == 't' else ''}, v {declared})",
            f"INSERT INTO {table} VALUES (1, {value}), (2, NULL), (3, 'fine'), (4, {value})",
        )
    mirror.snapshot()
    mirror.assert_equal(*tables)
    assert mirror.verify().equal
    for number, (_, value) in enumerate(kinds):
        stored = bytes.fromhex(value[2:-1])
        assert in_lake(mirror, f"t{number}", 1) == {"id": 1, "v": None, "v__bytes": stored}
        assert in_lake(mirror, f"t{number}", 3) == {"id": 3, "v": "fine", "v__bytes": None}
    for table, (_, value) in tables.items():
        mirror.execute(
            f"INSERT INTO {table} VALUES (5, {value}), (6, 'é'), (7, '')",
            f"UPDATE {table} SET v = 'fixed' WHERE id = 1",
            f"UPDATE {table} SET v = {value} WHERE id = 3",
            f"DELETE FROM {table} WHERE id = 4",
        )
    mirror.sync()
    mirror.assert_equal(*tables)
    assert mirror.verify().equal
    for number, (_, value) in enumerate(kinds):
        stored = bytes.fromhex(value[2:-1])
        assert in_lake(mirror, f"t{number}", 1) == {"id": 1, "v": "fixed", "v__bytes": None}
        assert in_lake(mirror, f"t{number}", 3) == {"id": 3, "v": None, "v__bytes": stored}
    mirror.spark.sql(f"UPDATE delta.`{mirror.path('t0')}` SET v__bytes = X'EDA081' WHERE id = 3")
    assert [table.name.table for table in mirror.verify("*.t0").tables if not table.equal] == ["t0"]


@on_mariadb
def test_the_bytes_follow_their_column(mirror: Mirror) -> None:
    mirror.options = KEEP
    kind = "CHARACTER SET ucs2"
    mirror.execute(
        f"CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) {kind}, l VARCHAR(9) CHARACTER SET latin1, e ENUM('a'))",
        "INSERT INTO t VALUES (1, x'0061D800', x'FF', 'a'), (2, 'fine', '', 'a')",
    )
    mirror.snapshot()
    assert fields(mirror, "t") == ["id", "v", "v__bytes", "l", "e"]
    mirror.execute(
        "ALTER TABLE t RENAME COLUMN v TO w",
        f"ALTER TABLE t MODIFY w TEXT {kind} FIRST",
        f"ALTER TABLE t ADD v VARCHAR(9) {kind} DEFAULT 'old'",
        "UPDATE t SET v = w, w = 'moved' WHERE id = 1",
        "INSERT INTO t (id, w) VALUES (3, x'DC00')",
    )
    mirror.sync()
    mirror.assert_equal("t")
    assert mirror.verify().equal
    assert fields(mirror, "t") == ["w", "w__bytes", "id", "l", "e", "v", "v__bytes"]
    mirror.execute("ALTER TABLE t DROP w", "INSERT INTO t (id, v) VALUES (4, x'D800')")
    mirror.sync()
    mirror.assert_equal("t")
    assert mirror.verify().equal
    assert {row["status"] for row in mirror.metadata.read("watermarks")} == {"following"}
    assert {row["action"] for row in mirror.history()} == {"followed"}


def test_a_character_set_that_lets_them_in_brings_the_column_of_their_bytes(mirror: Mirror) -> None:
    mirror.options = KEEP
    half, wide = ("x'61EDA08062'", "utf8mb4") if mirror.server.kind == "mariadb" else ("x'0061D800'", "ucs2")
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET latin1, w VARCHAR(9) CHARACTER SET latin1)",
        "INSERT INTO t VALUES (1, 'é', 'é'), (2, NULL, NULL)",
    )
    mirror.snapshot()
    mirror.execute(
        f"ALTER TABLE t MODIFY v VARCHAR(9) CHARACTER SET {wide}",
        f"INSERT INTO t VALUES (3, {half}, 'new')",
        f"ALTER TABLE t CONVERT TO CHARACTER SET {wide}",
        f"INSERT INTO t VALUES (4, 'fine', {half})",
        "UPDATE t SET v = 'é' WHERE id = 2",
    )
    mirror.sync()
    mirror.assert_equal("t")
    assert mirror.verify().equal
    assert fields(mirror, "t") == ["id", "v", "v__bytes", "w", "w__bytes"]
    assert {row["action"] for row in mirror.history()} == {"followed"}


@on_mysql
@pytest.mark.parametrize("other", ["VARCHAR(9) CHARACTER SET utf16", "VARBINARY(18)"])
def test_what_another_character_set_made_of_them_is_asked_of_the_server(mirror: Mirror, other: str) -> None:
    mirror.options = KEEP
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET ucs2)",
        "INSERT INTO t VALUES (1, x'0061D800'), (2, 'fine')",
    )
    mirror.snapshot()
    mirror.execute("SET sql_mode = ''", f"ALTER TABLE t MODIFY v {other}", "INSERT INTO t VALUES (3, 'new')")
    mirror.sync()
    (altered,) = mirror.history()
    assert altered["action"] == "resnapshot asked"
    assert "what became of invalid text isn't known" in altered["reason"]
    mirror.assert_equal("t")
    assert mirror.verify().equal
    assert fields(mirror, "t") == ["id", "v"]


@on_mariadb
def test_a_key_of_invalid_text_is_refused_by_both_ways(mirror: Mirror) -> None:
    mirror.options = KEEP
    for table in ("copied", "logged"):
        mirror.execute(f"CREATE TABLE {table} (k VARCHAR(9) CHARACTER SET ucs2 PRIMARY KEY)")
    mirror.execute("INSERT INTO copied VALUES (x'D800')")
    assert (
        refused(mirror).message == f"{mirror.database}.copied: a value of column 'k' isn't valid in its character set"
    )
    mirror.execute("INSERT INTO logged VALUES ('fine')", "INSERT INTO logged VALUES (x'D800')")
    mirror.sync()
    assert mirror.watermark("logged")["status"] == "stopped"
    assert "isn't valid in its character set in column 'k' of the key" in mirror.watermark("logged")["reason"]


@on_mariadb
@pytest.mark.parametrize(
    ("policy", "declared", "side"),
    [({"invalid_dates": "keep_text"}, "DATE", "v__text"), (KEEP, "VARCHAR(10)", "v__bytes")],
)
def test_another_policy_asks_for_a_new_snapshot(
    mirror: Mirror, policy: dict[str, str], declared: str, side: str
) -> None:
    value = "'2024-02-29'"
    mirror.execute(f"CREATE TABLE t (id INT PRIMARY KEY, v {declared})", f"INSERT INTO t VALUES (1, {value})")
    mirror.snapshot()
    for options, expected in ((policy, ["id", "v", side]), ({}, ["id", "v"])):
        mirror.options = options
        (table,) = mirror.sync().tables
        assert (table.status, "rows were read under" in table.reason) == ("copied", True)
        assert fields(mirror, "t") == expected
        mirror.assert_equal("t")


@on_mariadb
def test_or_stops_a_table_of_which_an_older_lake_does_not_say_its_policy(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v DATE)", "INSERT INTO t VALUES (1, '2024-02-29')")
    mirror.snapshot()
    (row,) = mirror.metadata.read("schemas")
    older = {key: value for key, value in json.loads(row["schema"]).items() if key != "invalid"}
    mirror.metadata.replace("schemas", "true", [{**row, "schema": json.dumps(older)}])
    mirror.options = {"invalid_dates": "keep_text"}
    assert not mirror.sync().tables
    mirror.execute("UPDATE t SET v = NULL")
    (table,) = mirror.sync().tables
    assert (table.status, "column 'v__text' differs" in table.reason) == ("stopped", True)


@on_mysql
def test_a_new_column_with_the_name_of_a_side_column_stops_its_table(mirror: Mirror) -> None:
    mirror.options["invalid_dates"] = "keep_text"
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, d DATE)", "INSERT INTO t VALUES (1, '2020-01-02')")
    mirror.snapshot()
    mirror.execute(
        "ALTER TABLE t ADD d__text VARCHAR(9) DEFAULT 'x'",
        "CREATE TABLE born (id INT PRIMARY KEY, e DATE, e__TEXT INT)",
    )
    mirror.sync()
    stopped = mirror.watermark("t")
    assert stopped["status"] == "stopped"
    assert "'d__text' has the name of the side column that keeps another's invalid values" in stopped["reason"]
    assert stopped["remedy"].startswith("rename the column")
    (born,) = [row for row in mirror.history() if row["table"] == "born"]
    assert born["action"] == "stopped"
    assert "'e__text' has the name of the side column" in born["reason"]
