"""Columns of VECTOR are copied, merged and verified by the process itself, as Spark and other readers see them."""

from __future__ import annotations

import io
from dataclasses import replace

import duckdb
import pytest

from binlake import pipeline
from binlake.report import Report
from mirror import Mirror, on_mysql, sync_alone
from without_spark import no_spark, result, rows

pytestmark = on_mysql


@pytest.fixture
def notes(mirror: Mirror) -> Mirror:
    mirror.options = {"snapshot": {"reader": "direct"}, "merge": {"without_spark_mb": 16}}
    mirror.execute(
        "CREATE TABLE notes (id INT PRIMARY KEY, v VECTOR(3), name VARCHAR(9))",
        "INSERT INTO notes VALUES (1, TO_VECTOR('[1,-0,0.5]'), 'a'), (2, NULL, 'b'), (3, TO_VECTOR('[3]'), 'c')",
    )
    return mirror


def alone(mirror: Mirror) -> Mirror:
    """Return the mirror with a copy that must not start Spark."""
    copied = replace(mirror)
    pipeline.bootstrap(copied.config, copied.origin, no_spark, Report(io.StringIO()))
    return copied


def test_rows_with_vectors_need_no_spark(notes: Mirror) -> None:
    mirror = alone(notes)
    mirror.assert_equal("notes")
    mirror.execute(
        "INSERT INTO notes VALUES (4, TO_VECTOR('[4,5,9]'), 'd'), (5, NULL, 'e')",
        "UPDATE notes SET v = TO_VECTOR('[7,8,9]') WHERE id = 2",
        "UPDATE notes SET id = 9, v = NULL WHERE id = 1",
        "DELETE FROM notes WHERE id = 3",
    )
    sync_alone(mirror)
    mirror.assert_equal("notes")
    mirror.execute("ALTER TABLE notes ADD w VECTOR(2)", "UPDATE notes SET w = TO_VECTOR('[1,2]') WHERE id > 4")
    sync_alone(mirror)
    mirror.assert_equal("notes")
    assert result(mirror, "notes").equal
    read = rows(mirror, "notes")  # noqa: F841 -- DuckDB finds it by its name
    by_distance = "SELECT id FROM read WHERE len(v) = 3 ORDER BY array_distance(v::FLOAT[3], [4, 5, 7]::FLOAT[3])"
    assert duckdb.sql(by_distance).fetchall() == [(4,), (2,)]


def test_logs_with_vectors_need_no_spark(notes: Mirror) -> None:
    notes.modes = [{"tables": "*.*", "log": {}}]
    mirror = alone(notes)
    mirror.execute("UPDATE notes SET v = TO_VECTOR('[7,8,9]') WHERE id = 2", "DELETE FROM notes WHERE id = 3")
    sync_alone(mirror)
    mirror.assert_equal("notes")
    logged = rows(mirror, "notes__log")
    vectors = [[7.0, 8.0, 9.0], None], [None, [3.0]]
    assert (logged["after_v"].to_pylist(), logged["before_v"].to_pylist()) == vectors
