"""Histories of tables whose key or columns become others: SQL in, versions out, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from binlake import pipeline
from binlake.report import Report
from binlake.schema.table import TableName
from mirror import WAYS, Mirror, on_mysql, sync_alone
from no_session import NoSession
from servers import Server

ROWS = "INSERT INTO t VALUES (1, 1), (2, 1), (3, 3)"


@pytest.fixture
def followed(server: Server, database: str, lake: Path) -> Mirror:
    modes = [{"tables": "*.t", "history": {}}]
    mirror = Mirror(server, database, lake, None, modes=modes, options={"merge": WAYS[0]})  # type: ignore[arg-type]
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", ROWS)
    sync_alone(mirror)
    return mirror


def versions(mirror: Mirror, *columns: str) -> list[tuple[Any, ...]]:
    """The columns of each version and whether it is current, in the order of their beginnings and values."""
    path = mirror.config.beside_path(TableName(mirror.database, "t"), "history")
    read = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t").read_all()
    rows = [
        (
            row["from_position"],
            str([row[name] for name in columns]),
            (*(row[name] for name in columns), row["is_current"]),
        )
        for row in pa.table(read).to_pylist()
    ]
    return [version for _, _, version in sorted(rows)]


@on_mysql
def test_a_key_of_another_type_ends_all_versions_and_begins_new_ones(followed: Mirror) -> None:
    followed.execute("ALTER TABLE t MODIFY id BIGINT", "UPDATE t SET v = 2 WHERE id = 2")
    sync_alone(followed)
    assert versions(followed, "id__1", "id", "v") == [
        (1, None, 1, False), (2, None, 1, False), (3, None, 3, False),
        (None, 1, 1, True), (None, 2, 1, False), (None, 3, 3, True), (None, 2, 2, True),
    ]  # fmt: skip
    followed.assert_equal("t")


@on_mysql
def test_a_table_with_another_key_takes_the_name(followed: Mirror) -> None:
    """By its key the versions of the former table can't be distinguished: ``v`` is 1 in two of them."""
    followed.execute(
        "CREATE TABLE other (id INT NOT NULL, v INT PRIMARY KEY)",
        "INSERT INTO other VALUES (3, 3), (4, 1)",
        "RENAME TABLE t TO gone, other TO t",
        "UPDATE t SET id = 5 WHERE v = 1",
    )
    sync_alone(followed)
    assert versions(followed, "id", "v") == [
        (1, 1, False), (2, 1, False), (3, 3, True), (4, 1, False), (5, 1, True)
    ]  # fmt: skip
    followed.assert_equal("t")


@on_mysql
@pytest.mark.parametrize("column", ["id", "v"])
def test_a_column_gets_another_name_and_type_at_once(followed: Mirror, column: str) -> None:
    followed.execute(f"ALTER TABLE t CHANGE {column} n BIGINT NOT NULL", "INSERT INTO t VALUES (4, 4)")
    sync_alone(followed)
    other = {"id": "v", "v": "id"}[column]
    current = [row[:-1] for row in versions(followed, "n", other) if row[-1]]
    assert sorted(current) == sorted(followed.server.execute(f"SELECT n, {other} FROM t", database=followed.database))
    assert versions(followed, "n__1")[0][0] == 1
    followed.assert_equal("t")


@on_mysql
def test_a_column_gets_the_name_of_one_that_was_dropped(followed: Mirror) -> None:
    followed.execute("ALTER TABLE t ADD w INT, DROP v")
    sync_alone(followed)
    followed.execute("ALTER TABLE t RENAME COLUMN w TO v", "UPDATE t SET v = 9 WHERE id = 1")
    sync_alone(followed)
    assert versions(followed, "id", "v__1", "v") == [
        (1, 1, None, False), (2, 1, None, True), (3, 3, None, True), (1, None, 9, True)
    ]  # fmt: skip
    followed.assert_equal("t")


@on_mysql
def test_spark_compares_with_a_widened_mirror(followed: Mirror) -> None:
    """deltalake doesn't read it."""
    followed.options["type_widening"] = True
    followed.execute("ALTER TABLE t MODIFY v BIGINT")
    with pytest.raises(pytest.fail.Exception, match=r"Spark was asked for: .*type_widening"):
        pipeline.sync(followed.config, followed.origin, NoSession(), Report())


@on_mysql
def test_a_column_that_comes_again_has_none_of_its_former_values(followed: Mirror) -> None:
    followed.execute("ALTER TABLE t ADD w INT, DROP v", "ALTER TABLE t ADD v INT", "UPDATE t SET v = 9 WHERE id = 1")
    sync_alone(followed)
    assert [row[:-1] for row in versions(followed, "id", "v") if row[-1]] == [(2, None), (3, None), (1, 9)]
    followed.assert_equal("t")


@on_mysql
def test_a_column_of_the_key_is_dropped_and_another_of_its_name_comes(followed: Mirror) -> None:
    """The new column is in the key: by it the row continues with its default."""
    followed.execute(
        "DROP TABLE t",
        "CREATE TABLE t (id INT NOT NULL, k INT NOT NULL, v INT, UNIQUE (id, k))",
        "INSERT INTO t VALUES (1, 1, 1)",
        "ALTER TABLE t DROP k, ADD k INT NOT NULL DEFAULT 5",
        "INSERT INTO t (id, k, v) VALUES (1, 6, 2)",
        "UPDATE t SET v = 3 WHERE k = 5",
    )
    sync_alone(followed)
    assert versions(followed, "id", "k", "v")[3:] == [
        (1, 1, 1, False),
        (1, 5, 1, False),
        (1, 6, 2, True),
        (1, 5, 3, True),
    ]
    followed.assert_equal("t")
