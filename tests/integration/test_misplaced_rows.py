"""Rows in another partition than their values say: every read by a range of keys has them, and no key is there twice.

EXCHANGE PARTITION … WITHOUT VALIDATION brings them in, on MySQL, and on MariaDB since 11.4. A server prunes partitions
by a plain condition on the key, and doesn't find them there. MySQL refuses to change them, or to move their partition
(errors 1863 and 1526).
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any, Literal
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from binlake import faults, pipeline
from binlake.config import VerifyConfig
from binlake.errors import TableError
from binlake.phases.bootstrap import KeysAsked
from binlake.phases.verification import RepairRequest, VerifyRequest
from binlake.report import Report
from binlake.snapshot import commit as snapshot_commit, snapshot as snapshot_room
from binlake.snapshot.chunks import plan
from mirror import Mirror
from without_spark import put, rows

MISPLACED = range(2690, 2711)
DEPTH = {"mysql": "cte_max_recursion_depth", "mariadb": "max_recursive_iterations"}
TABLE = "(id INT PRIMARY KEY, v VARCHAR(20))"
PARTITIONS = (
    "PARTITION BY RANGE (id) (PARTITION `p 0` VALUES LESS THAN (1000), PARTITION `p 1` VALUES LESS THAN (2000),"
    " PARTITION `p 2` VALUES LESS THAN MAXVALUE)"
)


def numbers(first: int, behind: int) -> str:
    return f"WITH RECURSIVE n (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {behind}) SELECT"


def make(mirror: Mirror, *, twice: bool = False) -> None:
    """A table of 3,000 rows, of which 21 are in the first partition instead of the last; or in both."""
    mirror.reader = "direct"
    behind = MISPLACED.stop
    mirror.execute(
        f"SET SESSION {DEPTH[mirror.server.kind]} = 10000",
        f"CREATE TABLE t {TABLE} {PARTITIONS}",
        f"CREATE TABLE x {TABLE}",
        f"INSERT INTO t {numbers(1000, 3000)} i, 'in its place' FROM n",
        f"INSERT INTO x {numbers(1, 1000)} i, 'in its place' FROM n",
        f"INSERT INTO x {numbers(MISPLACED.start, behind)} i, 'misplaced' FROM n",
        *([] if twice else [f"DELETE FROM t WHERE id BETWEEN {MISPLACED.start} AND {behind - 1}"]),
        "ALTER TABLE t EXCHANGE PARTITION `p 0` WITH TABLE x WITHOUT VALIDATION",
        "DROP TABLE x",
        "ANALYZE TABLE t",
    )


@pytest.fixture
def in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots cut tables of some hundred rows."""

    def small(*given: Any, **options: Any) -> Any:
        return plan(*given, **{**options, "chunk_rows": 500})

    monkeypatch.setattr(snapshot_room, "plan", small)


def chunks(mirror: Mirror) -> int:
    return len({row["chunk"] for row in mirror.metadata.read("snapshots") if row["table"] == "t"})


@pytest.mark.usefixtures("in_chunks")
@pytest.mark.parametrize("reader", ["direct", "jdbc"])
def test_a_snapshot_in_chunks_has_them(mirror: Mirror, reader: Literal["direct", "jdbc"]) -> None:
    make(mirror)
    mirror.reader = reader
    mirror.snapshot()
    assert chunks(mirror) == 3
    mirror.assert_equal("t")
    mirror.execute("UPDATE t SET v = 'changed' WHERE id IN (5, 1500, 2650)", "DELETE FROM t WHERE id = 2651")
    mirror.sync()
    mirror.assert_equal("t")


@pytest.mark.usefixtures("in_chunks")
def test_a_snapshot_whose_partitions_change_begins_anew(mirror: Mirror) -> None:
    make(mirror)
    mirror.options = {"snapshot": {"reader": "direct", "connections": 1}}
    changes = iter(
        [
            "ALTER TABLE t REORGANIZE PARTITION `p 2` INTO (PARTITION a VALUES LESS THAN (2500), PARTITION b VALUES"
            " LESS THAN (5000), PARTITION c VALUES LESS THAN MAXVALUE)"
        ]
    )

    def at_point(reached: faults.FaultPoint) -> None:
        if reached == "chunks written" and (change := next(changes, "")):
            mirror.execute(change, "INSERT INTO t VALUES (6000, 'in a new partition')")

    with mock.patch.object(faults, "at_point", at_point):
        mirror.snapshot()
    mirror.assert_equal("t")
    read = [json.loads(row["partitions"]) for row in mirror.metadata.read("snapshots") if row["table"] == "t"]
    assert sorted(name for names in read for name in names) == ["a", "b", "c", "p 0", "p 1"]


def lost_in_the_lake(mirror: Mirror) -> None:
    """The lake as one that read by ranges of keys had it."""
    mirror.snapshot()
    there = rows(mirror, "t").cast(pa.schema([("id", pa.int32()), ("v", pa.string())]))
    put(mirror, "t", there.filter(pc.not_equal(there["v"], "misplaced")))


@pytest.mark.parametrize("by", ["read", "hash"])
def test_verify_finds_what_is_lost_and_repair_brings_it(mirror: Mirror, by: Literal["read", "hash"]) -> None:
    make(mirror)
    lost_in_the_lake(mirror)
    config = mirror.config.model_copy(update={"verify": VerifyConfig(by=by)})
    with ExitStack() as small:
        for module in ("lake_rows", "key_cells"):
            small.enter_context(mock.patch(f"binlake.verify.reading.{module}.ROWS_PER_CHUNK", 100))
        small.enter_context(mock.patch("binlake.verify.hashing.server_side.ROWS_PER_RANGE", 500))
        small.enter_context(mock.patch("binlake.verify.reading.server_rows._FEWEST_ROWS", 500))

        def verified() -> Any:
            asked = VerifyRequest()
            (table,) = pipeline.verify(config, mirror.origin, lambda _: mirror.spark, Report(), asked).tables
            return table

        found = verified()
        assert found.equal is False
        assert (found.source_rows, found.lake_rows) == (2999, 2999 - len(MISPLACED))
        pipeline.repair(mirror.config, mirror.origin, lambda _: mirror.spark, Report(), RepairRequest())
        assert verified().equal
        mirror.assert_equal("t")
        if by == "read":  # what changed since is looked for in its own chunks alone
            mirror.execute("UPDATE t SET v = 'changed' WHERE id = 2680")
            mirror.sync()
            changed = VerifyRequest(changed=True)
            assert pipeline.verify(config, mirror.origin, lambda _: mirror.spark, Report(), changed).equal


def test_a_range_of_keys_that_is_read_anew_has_them(mirror: Mirror) -> None:
    make(mirror)
    mirror.snapshot()
    asked = KeysAsked([f"{mirror.database}.t"], f"{MISPLACED.start}..{MISPLACED[-1]}")
    (result,) = pipeline.snapshot_keys(mirror.config, mirror.origin, lambda _: mirror.spark, Report(), asked)
    assert result.rows == len(MISPLACED)
    mirror.assert_equal("t")


def test_a_table_that_has_a_key_twice_is_refused_by_name(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_commit, "_ROWS_AT_ONCE", 500)  # several passes
    make(mirror, twice=True)
    mirror.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    with pytest.raises(TableError, match=rf"{mirror.database}\.t: 21 keys of several rows") as refused:
        mirror.snapshot()
    assert "CHECK PARTITION ALL" in refused.value.remedy
    mirror.execute("ALTER TABLE t TRUNCATE PARTITION `p 0`")
    mirror.snapshot()
    mirror.assert_equal("t", "other")


@pytest.mark.parametrize("in_the_lake", [1, 2])
def test_verify_names_keys_of_several_rows(mirror: Mirror, in_the_lake: int) -> None:
    """A row is written whose key is in the table already, in a partition where the server doesn't look for it. The lake
    has one of both, or both."""
    make(mirror)
    mirror.snapshot()
    mirror.execute(f"INSERT INTO t VALUES ({MISPLACED.start}, 'again'), ({MISPLACED[-1]}, 'again')")
    mirror.sync()
    if in_the_lake == 2:
        keys = pa.array([MISPLACED.start, MISPLACED[-1]], pa.int32())
        more = pa.table({"id": keys, "v": pa.array(["misplaced"] * 2)})
        there = rows(mirror, "t").cast(more.schema)
        put(mirror, "t", pa.concat_tables([there, more]))
    for _ in range(2):  # it isn't noted as equal
        asked = VerifyRequest(changed=True)
        (compared,) = pipeline.verify(mirror.config, mirror.origin, lambda _: mirror.spark, Report(), asked).tables
        assert compared.equal is False
        assert compared.reason.startswith("2 keys of several rows, which are in different partitions")
        assert [(row.kind, row.key, row.count) for row in compared.rows[:2]] == [
            ("twice", (("id", str(MISPLACED.start)),), 2),
            ("twice", (("id", str(MISPLACED[-1])),), 2),
        ]
    (repaired,) = pipeline.repair(
        mirror.config, mirror.origin, lambda _: mirror.spark, Report(), RepairRequest()
    ).tables
    assert repaired.repair is not None
    assert repaired.repair.state == "refused"
    assert "CHECK PARTITION ALL" in repaired.repair.remedy
