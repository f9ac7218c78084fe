"""No statement that somebody may write keeps a source from being mirrored."""

from __future__ import annotations

import time

import pytest

from binlake.source import catalog
from mirror import Mirror

NESTED = "ABS(" * 200 + "id" + ")" * 200
CHAIN = ", ".join(f"g{number} INT AS (g{number - 1} + 1) VIRTUAL" for number in range(1, 110))
DOUBLED = ", ".join(f"h{number} INT AS (h{number - 1} + h{number - 1}) VIRTUAL" for number in range(1, 25))
ODD = f"g0 INT AS (id) VIRTUAL, {CHAIN}, h0 INT AS (id) VIRTUAL, {DOUBLED}"


def test_expressions_of_any_depth(mirror: Mirror) -> None:
    """In a database that isn't mirrored they cost nothing; in a mirrored one the columns are left out or told."""
    other = f"{mirror.database}_other"
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    mirror.snapshot()
    try:
        mirror.execute(
            f"CREATE DATABASE {other}",
            f"CREATE TABLE {other}.x (id INT PRIMARY KEY, v INT AS ({NESTED}) VIRTUAL, {ODD})",
            "INSERT INTO t VALUES (2, 2)",
            f"CREATE TABLE deep (id INT PRIMARY KEY, v INT AS ({NESTED}) VIRTUAL, n INT)",
            "INSERT INTO deep (id, n) VALUES (1, 1)",
            f"CREATE TABLE chained (id INT PRIMARY KEY, {ODD})",
            "INSERT INTO chained (id) VALUES (1), (2)",
            "ALTER TABLE deep ADD COLUMN m INT DEFAULT 3",
        )
        began = time.process_time()
        mirror.sync()
        assert time.process_time() - began < 60
    finally:
        mirror.execute(f"DROP DATABASE IF EXISTS {other}")
    for table in ("t", "deep", "chained"):
        assert mirror.watermark(table)["status"] == "following"
    mirror.assert_equal("t")
    mirror.assert_equal("deep", without=["v"])
    mirror.snapshot(f"{mirror.database}.deep")
    mirror.assert_equal("deep", without=["v"])


def test_a_shape_that_cannot_be_read_costs_its_table(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.execute(
        "CREATE TABLE odd (id INT PRIMARY KEY) COMMENT 'odd'", "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
    )  # fmt: skip
    with_key = catalog.with_key

    def failing(schema: catalog.TableSchema, *keys: object) -> catalog.TableSchema:
        if schema.comment == "odd":
            raise RecursionError
        return with_key(schema, *keys)  # type: ignore[arg-type]

    with monkeypatch.context() as broken:
        broken.setattr(catalog, "with_key", failing)
        with pytest.raises(Exception, match="odd: its shape can't be read: RecursionError"):
            mirror.snapshot()
        mirror.assert_equal("t")
    mirror.snapshot()
    mirror.assert_equal("t", "odd")
