"""Statistics in a table's Delta log that its rows contradict: every reader leaves rows out by them, so verify tells of
them, and repair puts them right."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest

from begun_alone import begin_alone
from binlake import pipeline
from binlake.phases.verification import VerifyRequest
from binlake.records.status import read_status
from binlake.report import Report
from damaged_log import change_statistics
from mirror import Mirror, on_mysql
from servers import Server
from without_spark import no_spark, path, put, repair, result, rows, sync, verify

pytestmark = on_mysql


@pytest.fixture
def begun(server: Server, database: str, lake: Any) -> Mirror:
    """A table of 3,000 rows."""
    mirror = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    mirror.execute(
        "SET SESSION cte_max_recursion_depth = 3000",
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO t WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 3000)"
        " SELECT n, 'v' FROM s",
        "ANALYZE TABLE t",
    )
    begin_alone(mirror)
    return mirror


@pytest.fixture
def alone(begun: Mirror) -> Mirror:
    """The same, once it was verified."""
    assert verify(begun).equal
    return begun


def through(mirror: Mirror) -> Any:
    (status,) = read_status(mirror.config).tables
    return status.verified_through


def test_a_bound_that_is_too_low_is_found_and_put_right(alone: Mirror) -> None:
    change_statistics(path(alone, "t"), lambda statistics: statistics["maxValues"].update(id=2000))
    lake_alone = pipeline.verify_lake(alone.config).tables[0]
    assert (lake_alone.equal, [wrong.what for wrong in lake_alone.statistics]) == (False, [("maxValues of id",)])
    changed = pipeline.verify(alone.config, alone.origin, no_spark, Report(), VerifyRequest(changed=True))
    assert [wrong.what for wrong in changed.tables[0].statistics] == [("maxValues of id",)]
    compared = result(alone, "t")
    assert (compared.equal, compared.differing, compared.rows) == (False, 0, ())
    assert "statistics of 1 data file are wrong" in compared.to_text()
    assert through(alone) is None
    planned = repair(alone, dry_run=True).tables[0]
    assert planned.repair
    assert (planned.repair.state, planned.repair.counts) == ("planned", {"data files' statistics": 1})
    version = alone.version("t")

    repaired = repair(alone)

    repaired.refuse_unrepaired()
    assert alone.version("t") == version + 1
    assert alone.metadata.read("repairs", ["kind", "columns"]) == [
        {"kind": "statistics", "columns": '["maxValues of id"]'}
    ]
    assert verify(alone).equal
    assert through(alone)
    alone.execute("UPDATE t SET v = 'new' WHERE id = 2900", "DELETE FROM t WHERE id = 2901")
    sync(alone)
    assert verify(alone).equal


def test_rows_and_statistics_are_put_right_in_one_run(begun: Mirror) -> None:
    """Also where files of several chunks are chosen by the statistics, which then leave out the wrong ones."""
    put(begun, "t", rows(begun, "t").slice(1))
    change_statistics(path(begun, "t"), lambda statistics: statistics["maxValues"].update(id=10))
    with (
        mock.patch("binlake.verify.reading.lake_rows.ROWS_PER_CHUNK", 100),
        mock.patch("binlake.verify.reading.key_cells.ROWS_PER_CHUNK", 100),
        mock.patch("binlake.verify.reading.by_read._TOGETHER", 2),
        mock.patch("binlake.verify.reading.lake_rows._MOST_TIMES", 99),
    ):
        compared = result(begun, "t")
        assert [row.kind for row in compared.rows] == ["missing"]
        assert compared.lake_rows == 2999
        repair(begun).refuse_unrepaired()
        assert verify(begun).equal


@pytest.mark.parametrize("counted", [0, 1, 2999, 9000])
def test_a_file_whose_rows_are_counted_wrongly_is_repaired(alone: Mirror, counted: int) -> None:
    """And no row of it is lost where another one is put right by a deletion vector."""
    alone.execute("DELETE FROM t WHERE id = 7")
    with mock.patch("binlake.delta.layout.FEW_BYTES", 0):  # the row is marked as in large files
        sync(alone)
    alone.execute("SET SESSION sql_log_bin = 0", "UPDATE t SET v = 'silent' WHERE id = 890")
    change_statistics(path(alone, "t"), lambda statistics: statistics.update(numRecords=counted))
    compared = result(alone, "t")
    assert [wrong.what for wrong in compared.statistics] == [("numRecords",)]
    assert [row.kind for row in compared.rows] == ["changed"]
    repaired = repair(alone)
    repaired.refuse_unrepaired()
    assert repaired.tables[0].repair
    assert repaired.tables[0].repair.counts == {"changed": 1, "data files' statistics": 1}
    assert verify(alone).equal
    assert json.loads(json.dumps(repaired.to_json()))["tables"][0]["statistics"]
