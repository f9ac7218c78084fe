"""Histories and logs are compared with the mirror, with what was noted of them, and with their own commits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from begun_alone import begin_alone
from binlake import pipeline
from binlake.config.table_modes import BesideMode
from binlake.delta.file_statistics import Statistics
from binlake.errors import CheckFailed
from binlake.records.status import read_status
from binlake.schema.table import TableName
from binlake.store.metadata import query
from binlake.verify.result import TableResult
from damaged_log import change_statistics
from mirror import Mirror, on_mysql
from servers import Server
from without_spark import repair, sync, verify

pytestmark = on_mysql
STATEMENTS = ("UPDATE t SET v = 'x' WHERE id < 3", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (4, 'd')")


@pytest.fixture
def alone(server: Server, database: str, lake: Any) -> Mirror:
    """A table with a history and a log, of which rows were inserted, updated and deleted."""
    mirror = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    mirror.modes = [{"tables": f"{database}.t", "history": {}, "log": {}}]
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    begin_alone(mirror)
    for statement in STATEMENTS:
        mirror.execute(statement)
        sync(mirror)
    return mirror


def path(mirror: Mirror, mode: BesideMode) -> str:
    return mirror.config.beside_path(TableName(mirror.database, "t"), mode)


def result(mirror: Mirror, mode: BesideMode) -> TableResult:
    (table,) = [table for table in verify(mirror).tables if table.name.table == f"t__{mode}"]
    return table


def written_again(mirror: Mirror, mode: BesideMode, rows: pa.Table) -> None:
    """Let a table have other rows in the same files' names, as damage in a file does: no commit tells of it."""
    log = DeltaTable(path(mirror, mode))
    first, *others = sorted(pa.table(log.get_add_actions())["path"].to_pylist())
    kinds = pa.schema(log.schema().to_arrow())
    for name, part in [(first, rows.cast(kinds)), *((name, rows.cast(kinds).slice(0, 0)) for name in others)]:
        pq.write_table(part, Path(path(mirror, mode), name))
        statistics = Statistics()
        statistics.add(part)
        text = statistics.text()
        _say(mirror, mode, name, text)


def _say(mirror: Mirror, mode: BesideMode, name: str, text: str) -> None:
    for commit in Path(path(mirror, mode), "_delta_log").glob("0*.json"):
        actions = [json.loads(line) for line in commit.read_text().split("\n") if line]
        for action in actions:
            if action.get("add", {}).get("path") == name:
                action["add"] |= {"stats": text, "size": Path(path(mirror, mode), name).stat().st_size}
                action["add"].pop("deletionVector", None)
        commit.write_text("\n".join(map(json.dumps, actions)) + "\n")


def rows_of(mirror: Mirror, mode: BesideMode) -> pa.Table:
    kinds = pa.schema(DeltaTable(path(mirror, mode)).schema().to_arrow())
    return pa.Table.from_pylist(query(path(mirror, mode)).to_pylist(), kinds)


def test_what_batches_wrote_is_equal_and_stays_so(alone: Mirror) -> None:
    assert [(table.name.table, table.equal, table.lake_rows) for table in verify(alone).tables] == [
        ("t", True, 3), ("t__history", True, 3), ("t__log", True, 4),
    ]  # fmt: skip
    alone.execute("UPDATE t SET v = 'y' WHERE id = 1", "DELETE FROM t WHERE id = 4", "INSERT INTO t VALUES (4, 'e')")
    sync(alone)
    assert verify(alone).equal
    alone.execute("ALTER TABLE t ADD n INT DEFAULT 7", "UPDATE t SET n = 8 WHERE id = 1", "TRUNCATE t")
    sync(alone)
    assert verify(alone).equal
    assert verify(alone).equal
    assert read_status(alone.config).beside == ()


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (lambda rows: pc.invert(rows["is_current"]), "its current versions aren't the mirror's rows"),
        (lambda rows: rows["is_current"], "of 3 closed versions that were verified before 0 are there"),
    ],
)
def test_versions_that_are_lost(alone: Mirror, lost: Any, said: str) -> None:
    assert verify(alone).equal
    alone.execute("INSERT INTO t VALUES (9, 'z')")
    sync(alone)
    rows = rows_of(alone, "history")
    written_again(alone, "history", rows.filter(lost(rows)))
    checked = result(alone, "history")
    assert (checked.equal, said in checked.reason) == (False, True), checked.to_text()
    (problem,) = read_status(alone.config).beside
    assert said in problem.problem


def test_other_values_of_a_closed_version(alone: Mirror) -> None:
    assert verify(alone).equal
    alone.execute("INSERT INTO t VALUES (9, 'z')")
    sync(alone)
    rows = rows_of(alone, "history")
    place = rows.column_names.index("v")
    written_again(alone, "history", rows.set_column(place, "v", pc.if_else(rows["is_current"], rows["v"], "other")))
    assert "closed versions aren't what they were" in result(alone, "history").reason
    with pytest.raises(CheckFailed):
        repair(alone).refuse_unrepaired()


def test_two_current_versions_and_an_overlap(alone: Mirror) -> None:
    rows = rows_of(alone, "history")
    twin = rows.filter(pc.and_(rows["is_current"], pc.equal(rows["id"], 3)))
    written_again(alone, "history", pa.concat_tables([rows, twin]))
    checked = result(alone, "history")
    assert "rows with two current versions: 1" in checked.reason
    repair(alone).refuse_unrepaired()
    assert verify(alone).equal
    rows = rows_of(alone, "history")
    place = rows.column_names.index("to_position")
    later = pc.if_else(pc.is_null(rows["to_position"]), rows["to_position"], "999999:000000000001")
    written_again(alone, "history", rows.set_column(place, "to_position", later))
    assert "end behind the beginning of the next one" in result(alone, "history").reason


def test_current_versions_are_brought_to_the_mirrors_rows(alone: Mirror) -> None:
    rows = rows_of(alone, "history")
    place = rows.column_names.index("v")
    written_again(alone, "history", rows.set_column(place, "v", pc.if_else(rows["is_current"], "wrong", rows["v"])))
    checked = result(alone, "history")
    assert {(row.kind, row.columns) for row in checked.rows} == {("changed", ("v",))}
    planned = [table.repair for table in repair(alone, dry_run=True).tables if table.repair]
    assert [plan.state for plan in planned] == ["planned"]
    repair(alone).refuse_unrepaired()
    assert verify(alone).equal
    assert read_status(alone.config).beside == ()
    alone.execute("UPDATE t SET v = 'later' WHERE id = 3")
    sync(alone)
    assert verify(alone).equal


def test_rows_that_a_log_lost(alone: Mirror) -> None:
    rows = rows_of(alone, "log").sort_by("position")
    written_again(alone, "log", rows.slice(1))
    checked = result(alone, "log")
    assert (checked.equal, checked.source_rows, checked.lake_rows) == (False, 4, 3)
    assert "1 of 2 of batch 1" in checked.reason
    report = repair(alone)
    with pytest.raises(CheckFailed):
        report.refuse_unrepaired()
    (left,) = [table.repair for table in report.tables if table.repair]
    assert f"move {path(alone, 'log')} away" in left.remedy
    shutil.rmtree(path(alone, "log"))
    alone.execute("INSERT INTO t VALUES (9, 'z')")
    sync(alone)
    assert verify(alone).equal
    assert rows_of(alone, "log").num_rows == 1


def test_rows_that_a_log_lost_since_it_was_verified(alone: Mirror) -> None:
    assert verify(alone).equal
    alone.execute("INSERT INTO t VALUES (9, 'z')")
    sync(alone)
    DeltaTable(path(alone, "log")).optimize.compact()
    DeltaTable(path(alone, "log")).create_checkpoint()
    written_again(alone, "log", rows_of(alone, "log").sort_by("position").slice(1))
    assert "of 3 rows that were verified before 2 are there" in result(alone, "log").reason


@pytest.mark.parametrize("mode", ["history", "log"])
def test_statistics_beside_a_mirror_are_checked_and_put_right(alone: Mirror, mode: BesideMode) -> None:
    columns = {"id", "after_id"}

    def lower(statistics: dict[str, Any]) -> None:
        statistics["maxValues"].update(dict.fromkeys(columns & statistics["maxValues"].keys(), 0))

    change_statistics(path(alone, mode), lower)
    assert result(alone, mode).statistics
    repair(alone).refuse_unrepaired()
    assert verify(alone).equal


@pytest.mark.parametrize("mode", ["history", "log"])
def test_one_that_stands_still_goes_on_from_the_mirror_behind_a_repair(alone: Mirror, mode: BesideMode) -> None:
    assert verify(alone).equal
    max(Path(path(alone, mode), "_delta_log").glob("0*.json")).unlink()
    alone.execute("UPDATE t SET v = 'unseen' WHERE id = 3")
    sync(alone)
    checked = result(alone, mode)
    assert (checked.state, "commits are lost" in checked.reason) == ("stopped", True)
    assert "binlake repair --config FILE" in checked.remedy
    repair(alone).refuse_unrepaired()
    assert read_status(alone.config).beside == ()
    alone.execute("UPDATE t SET v = 'seen' WHERE id = 3")
    sync(alone)
    assert verify(alone).equal
    rows = rows_of(alone, mode).to_pylist()
    if mode == "log":
        assert [row["operation"] for row in sorted(rows, key=lambda row: row["position"])][-2:] == ["gap", "update"]
    else:
        assert {(row["id"], row["v"]) for row in rows if row["is_current"]} == {(1, "x"), (3, "seen"), (4, "d")}


def by_itself(mirror: Mirror) -> dict[str, TableResult]:
    return {table.name.table: table for table in pipeline.verify_lake(mirror.config).tables}


def test_the_lake_is_checked_by_itself(alone: Mirror) -> None:
    assert verify(alone).equal
    assert {name: (table.equal, table.lake_rows) for name, table in by_itself(alone).items()} == {
        "t": (True, 3), "t__history": (True, 3), "t__log": (True, 4),
    }  # fmt: skip
    rows = rows_of(alone, "log").sort_by("position")
    written_again(alone, "log", rows.slice(1))
    rows = rows_of(alone, "history")
    written_again(alone, "history", rows.filter(pc.invert(pc.equal(rows["id"], 3))))
    checked = by_itself(alone)
    assert "that were verified before 2 are there" in checked["t__log"].reason
    assert "its current versions aren't the mirror's rows" in checked["t__history"].reason
    assert [table.equal for table in checked.values()] == [True, False, False]
    assert {problem.table.rpartition(".")[2] for problem in read_status(alone.config).beside} == {
        "t__history", "t__log",
    }  # fmt: skip


def test_while_a_batch_is_open_what_is_beside_mirrors_is_named_as_left_out(
    alone: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verify(alone).equal
    monkeypatch.setattr("binlake.verify.lake_check._LOOKS", 2)
    alone.execute("UPDATE t SET v = 'y' WHERE id = 1")
    with alone.cut_off_at("epoch committed"):
        sync(alone)
    report = pipeline.verify_lake(alone.config)
    left = {table.name.table: table.reason for table in report.tables if table.state == "catching up"}
    assert left == dict.fromkeys(("t__history", "t__log"), "batch 4 is open: it may be ahead of its mirror")
    report.refuse_unequal()
    sync(alone)
    assert all(table.equal for table in by_itself(alone).values())


def test_a_history_that_cannot_be_read(alone: Mirror) -> None:
    for file in Path(path(alone, "history")).glob("part-*.parquet"):
        file.unlink()
    checked = result(alone, "history")
    assert (checked.state, checked.is_unreadable) == ("failed", True)
    assert "can't be read" in read_status(alone.config).beside[0].problem
