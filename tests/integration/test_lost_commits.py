"""A Delta log that went back: it is told, what was lost is read again, and no number stands for two contents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from begun_alone import begin_alone
from binlake import pipeline
from binlake.errors import UsageError
from binlake.lake.opened_lake import open_lake
from binlake.records.decisions import Reason
from binlake.records.status import read_status
from binlake.report import Report
from binlake.schema.table import TableName
from mirror import Mirror, on_mysql
from servers import Server
from without_spark import no_spark, path, repair, sync, verify

pytestmark = on_mysql


@pytest.fixture
def alone(server: Server, database: str, lake: Any) -> Mirror:
    """A table at Delta version 3, of three batches."""
    mirror = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    begin_alone(mirror)
    for number in (3, 4, 5):
        mirror.execute(f"INSERT INTO t VALUES ({number}, 'new')", f"UPDATE t SET v = 'x{number}' WHERE id = 1")
        sync(mirror)
    return mirror


def lose_newest(mirror: Mirror, count: int = 1) -> None:
    for commit in sorted(Path(path(mirror, "t"), "_delta_log").glob("0*.json"))[-count:]:
        commit.unlink()


def readable(mirror: Mirror, batch: int) -> bool:
    lake = open_lake(mirror.config).at(batch=batch)
    return f"{mirror.database}.t" in {str(name) for name in lake.tables}


def resume(mirror: Mirror) -> str:
    name = TableName(mirror.database, "t")
    return pipeline.resume(mirror.config, mirror.origin, no_spark, Report(), name, Reason("test", "it went back"))


@pytest.mark.parametrize("count", [1, 2])
def test_batches_that_are_lost_are_carried_again(alone: Mirror, count: int) -> None:
    assert readable(alone, 3)
    lose_newest(alone, count)
    alone.execute("INSERT INTO t VALUES (6, 'new')")
    sync(alone)
    (status,) = read_status(alone.config).tables
    assert status.status == "stopped"
    assert "commits are lost" in (status.reason or "")
    assert "binlake table resume" in (status.remedy or "")

    resume(alone)

    assert verify(alone).equal
    assert [readable(alone, batch) for batch in (1, 2, 3)] == [True, count < 2, False]
    alone.execute("INSERT INTO t VALUES (7, 'new')")
    sync(alone)
    assert verify(alone).equal
    assert readable(alone, 5)


def test_a_quiet_table_is_told_by_verify_and_repaired(alone: Mirror) -> None:
    lose_newest(alone)
    compared = verify(alone).tables[0]
    assert (compared.equal, "its Delta log went back, to version 2 from 3" in compared.reason) == (False, True)
    repair(alone).refuse_unrepaired()
    assert verify(alone).equal
    assert [readable(alone, batch) for batch in (1, 2)] == [True, True]
    alone.execute("INSERT INTO t VALUES (6, 'new')")
    sync(alone)
    assert verify(alone).equal


@pytest.mark.parametrize("lose", [lambda mirror: lose_newest(mirror, 4), lambda mirror: lose_newest(mirror, 3)])
def test_what_is_not_known_to_be_whole_is_not_resumed(alone: Mirror, lose: Callable[[Mirror], None]) -> None:
    folder = Path(path(alone, "t"), "_delta_log")
    kept = {file: file.read_bytes() for file in folder.glob("0*.json")}
    lose(alone)
    first = folder / f"{0:020}.json"
    first.write_bytes(kept[first])
    alone.metadata.replace("batches", "batch < 3", [])
    alone.execute("INSERT INTO t VALUES (6, 'new')")
    sync(alone)
    with pytest.raises(UsageError, match="isn't known which batches are lost"):
        resume(alone)
