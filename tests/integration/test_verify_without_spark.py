"""Verify by reading, in a process that must not start Spark, on tables that it copied and merged by itself."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from begun_alone import begin_alone
from binlake import pipeline
from binlake.config.table_modes import BesideMode
from binlake.delta import opened_tables, plain_tables
from binlake.errors import CheckFailed, ConnectionFailed, UsageError
from binlake.faults import FaultPoint
from binlake.phases.verification import VerifyRequest
from binlake.records.status import TableStatus, read_status
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.source.server import Source
from binlake.store.metadata import query
from binlake.verify.planted_faults import FaultKind, planted
from binlake.verify.reading.by_read import ByRead
from binlake.verify.reading.key_cells import ComparedColumns
from binlake.verify.result import DifferingRow, TableResult
from mirror import Mirror, on_mysql
from odd_values import SampleTable
from server_shape import read_schema
from servers import Server
from without_spark import no_spark, path, put, repair, result, rows, sync, verify


@pytest.fixture
def alone(server: Server, database: str, lake: Path) -> Mirror:
    return Mirror(server, database, lake, None)  # type: ignore[arg-type]


def test_every_type_at_odd_values(alone: Mirror) -> None:
    """Invalid dates and texts among them, in side columns."""
    alone.options |= {"invalid_dates": "keep_text", "invalid_text": "keep_bytes"}
    table = SampleTable.of(alone.server.kind, "odd", invalid_dates=True)
    table.create(alone.server, alone.database)
    begin_alone(alone)
    compared = result(alone, "odd")
    assert compared.equal, compared.to_text()
    assert compared.source_rows == table.rows
    tested = pipeline.self_test(alone.config)
    assert not tested.tables[0].missed, tested.to_text()
    tested.refuse_missed()


def test_chunks_are_ranges_of_keys(alone: Mirror) -> None:
    alone.execute(
        "CREATE TABLE t (id BIGINT UNSIGNED, part INT, v VARCHAR(20), PRIMARY KEY (id, part))",
        "INSERT INTO t WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 900)"
        " SELECT n, n % 3, CONCAT('v', n) FROM s",
        "ANALYZE TABLE t",
    )
    begin_alone(alone)
    alone.execute(
        "DELETE FROM t WHERE id % 10 = 0",
        "INSERT INTO t VALUES (18446744073709551615, 0, 'end')",
        "UPDATE t SET v = NULL WHERE id = 77",
    )
    with mock.patch("binlake.verify.reading.lake_rows.ROWS_PER_CHUNK", 100):
        compared = result(alone, "t")
        assert compared.equal, compared.to_text()
        assert compared.source_rows == 811
        assert compared.chunks is not None
        assert compared.chunks > 4
        table = rows(alone, "t")
        ids = [int(number) for number in table["id"].to_pylist()]
        words = ["w" if number == 333 else word for number, word in zip(ids, table["v"].to_pylist(), strict=True)]
        there = [place for place, number in enumerate(ids) if number != 451]
        put(alone, "t", table.set_column(2, "v", pa.array(words)).take(pa.array([*there, ids.index(7)])))
        compared = result(alone, "t")
    assert (compared.source_rows, compared.lake_rows) == (811, 811)
    assert compared.differing == 3
    assert set(compared.rows) == {
        DifferingRow("changed", (("id", "333"), ("part", "0")), columns=("v",)),
        DifferingRow("missing", (("id", "451"), ("part", "1"))),
        DifferingRow("extra", (("id", "7"), ("part", "1"))),
    }


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("VARCHAR(20) COLLATE utf8mb4_general_ci", ("'b'", "'B '", "'ä'", "''", "'zz'")),
        ("DATE", ("'2020-01-01'", "'1000-01-01'", "'9999-12-31'")),
        ("TIMESTAMP(3)", ("'2020-01-01 00:00:00.001'", "'2020-06-01 10:00:00'")),
        ("DECIMAL(12,3)", ("-1.5", "0", "99.125")),
        ("ENUM('z', 'a', 'm')", ("'z'", "'a'", "'m'")),
        ("VARBINARY(8)", ("x'00'", "x'FF00'", "''")),
        ("DOUBLE", ("-0.5", "1e300", "3")),
        ("TIME", ("'-10:00:00'", "'00:00:01'")),
    ],
)
@on_mysql
def test_keys_of_any_type_pair(alone: Mirror, key: str, values: tuple[str, ...]) -> None:
    listed = ", ".join(f"({value}, {number})" for number, value in enumerate(values))
    alone.execute("SET SESSION sql_mode = ''", f"CREATE TABLE t (k {key} PRIMARY KEY, v INT)")
    alone.execute(f"INSERT IGNORE INTO t VALUES {listed}")
    begin_alone(alone)
    assert result(alone, "t").equal
    table = rows(alone, "t")
    put(alone, "t", table.set_column(1, "v", pa.array([1000, *table["v"].to_pylist()[1:]], pa.int32())))
    (row,) = result(alone, "t").rows
    assert (row.kind, row.columns) == ("changed", ("v",))


def planted_in(mirror: Mirror, table: str, kinds: Iterator[str], count: int) -> list[str]:
    """Plant so many faults of the next kinds in a table's rows, each in other rows; return the kinds planted."""
    with Source.open(mirror.endpoint) as source:
        schema = read_schema(source, TableName(mirror.database, table))
    compared = ComparedColumns(schema)
    values = [column.name for column in compared.columns if not column.is_side]
    (whole,) = rows(mirror, table).select(values).combine_chunks().to_batches()
    there = [
        whole.column(column.name).cast(column.arrow) if not column.is_side else pa.nulls(len(whole), column.arrow)
        for column in compared.columns
    ]
    batch = pa.RecordBatch.from_arrays(there, schema=compared.arrow)
    share = len(batch) // count
    parts, chosen = [], []
    for number in range(count):
        part = batch.slice(number * share, share if number < count - 1 else None)
        possible = {fault.kind: fault for fault in planted(compared, part) if fault.column not in schema.key}
        kind = next(kind for kind in kinds if kind in possible)
        fault = possible[kind]
        parts.append(fault.rows)
        chosen.append(kind)
    faulty = pa.Table.from_batches(parts)
    keep = [number for number, column in enumerate(compared.columns) if not column.is_side]
    put(mirror, table, faulty.select(keep))
    return chosen


@pytest.mark.parametrize("server", [pytest.param("mysql", marks=pytest.mark.soak), "mariadb"], indirect=True)
def test_a_hundred_faults_in_twenty_tables_are_repaired(alone: Mirror) -> None:
    """Of eight kinds, in tables with and without keys; nothing else is touched, and the tables follow on."""
    keys = ("PRIMARY KEY (id)", "PRIMARY KEY (name)", "PRIMARY KEY (at, id)", "KEY (id)")
    alone.execute(
        *(
            f"CREATE TABLE t{number} (id INT NOT NULL, name VARCHAR(40) NOT NULL, at DATETIME(6) NOT NULL,"
            f" note VARCHAR(40), price DECIMAL(30,2), ratio DOUBLE, {keys[number % 4]})"
            for number in range(20)
        ),
        *(
            f"INSERT INTO t{number} WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 100)"
            " SELECT n, CONCAT('name ', n), TIMESTAMP'2024-05-06 07:08:09.123456' + INTERVAL n HOUR,"
            " IF(n % 3, CONCAT('é', n), ''), n / 4, n / 7 FROM s"
            for number in range(20)
        ),
        "CREATE TABLE untouched (id INT PRIMARY KEY)",
        "INSERT INTO untouched VALUES (1)",
    )
    begin_alone(alone)
    kinds = itertools.cycle(get_args(FaultKind))
    chosen = [kind for number in range(20) for kind in planted_in(alone, f"t{number}", kinds, 5)]
    assert len(chosen) == 100
    assert set(chosen) == set(get_args(FaultKind))
    assert len(verify(alone).differing) == 20
    planned = repair(alone, dry_run=True)
    assert {table.repair.state for table in planned.differing if table.repair} == {"planned"}
    assert len(verify(alone).differing) == 20

    repaired = repair(alone)

    repaired.refuse_unrepaired()
    assert len(repaired.differing) == 20
    assert verify(alone).equal
    assert opened_tables.opened(path(alone, "untouched")).version() == 0
    noted = alone.metadata.read("repairs")
    assert {row["table"] for row in noted} == {f"t{number}" for number in range(20)}
    assert all(row["before"] is None for row in noted)
    assert all(json.loads(row["key"]).keys() < {"key hash", "row hash"} for row in noted)
    counts = Counter[str]()
    for row in noted:
        counts[row["kind"]] += row["rows"]
    rows_of = {"swapped pair": 2}
    assert counts["missing"] + counts["changed"] + counts["extra"] >= sum(rows_of.get(kind, 1) for kind in chosen)
    alone.execute(*(f"UPDATE t{number} SET note = 'later' WHERE id = 7" for number in range(20)), "DELETE FROM t0")
    assert verify(alone).equal


@on_mysql
def test_a_repair_keeps_what_was_there_if_it_is_asked(alone: Mirror) -> None:
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    begin_alone(alone)
    put(alone, "t", rows(alone, "t").set_column(1, "v", pa.array(["a", "wrong"])))
    (table,) = repair(alone, keep_values=True).tables
    assert table.repair is not None
    assert (table.repair.state, table.repair.counts) == ("repaired", {"changed": 1})
    (noted,) = alone.metadata.read("repairs")
    assert (noted["key"], noted["columns"]) == ('{"id": "2"}', '["v"]')
    assert json.loads(noted["before"])[0]["v"] == "wrong"
    assert noted["delta_version"] == table.repair.delta_version
    assert sorted(rows(alone, "t").to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "v": "a"},
        {"id": 2, "v": "b"},
    ]


@on_mysql
def test_masked_columns_stand_in_no_message_and_no_note(alone: Mirror) -> None:
    alone.execute(
        "CREATE TABLE t (email VARCHAR(40), n INT, v VARCHAR(9), PRIMARY KEY (email, n))",
        "INSERT INTO t VALUES ('ann@example.org', 1, 'a'), ('bob@example.org', 2, 'b')",
    )
    begin_alone(alone)
    alone.options["page"] = {"mask_columns": [f"{alone.database}.t.email"]}
    put(alone, "t", rows(alone, "t").set_column(2, "v", pa.array(["a", "wrong"])))
    compared = verify(alone)
    assert [dict(row.key) for table in compared.tables for row in table.rows] == [{"email": "***", "n": "2"}]
    repair(alone, keep_values=True).refuse_unrepaired()
    (noted,) = alone.metadata.read("repairs")
    assert json.loads(noted["key"]) == {"email": "***", "n": "2"}
    (before,) = json.loads(noted["before"])
    assert before == {**before, "email": "***", "n": 2, "v": "wrong"}
    assert "example.org" not in str(noted)


@on_mysql
def test_a_repair_leaves_the_bounds_of_a_files_values_as_they_are(alone: Mirror) -> None:
    """Readers leave files out by them: of decimals as exact as they are, and of characters that JSON escapes in two."""
    alone.execute(
        "CREATE TABLE t (id DECIMAL(38,10) PRIMARY KEY, v VARCHAR(9), n INT)",
        "INSERT INTO t VALUES (1, '𠀀', 1), (2, '𠀁', 2), (1234567890123456789012345678.1234567891, '𠮷', 3)",
    )
    begin_alone(alone)
    put(alone, "t", rows(alone, "t").set_column(2, "n", pa.array([1, 7, 3], pa.int32())))

    def bounds() -> dict[str, Any]:
        added = pa.table(opened_tables.opened(path(alone, "t")).get_add_actions())
        return {row["path"]: (row["num_records"], row["min"], row["max"]) for row in added.to_pylist()}

    (before,) = bounds().items()
    repair(alone).refuse_unrepaired()
    assert len(bounds()) == 2
    assert before in bounds().items()


@on_mysql
def test_rows_that_deltalake_changed_are_repaired_and_the_table_follows_on(alone: Mirror) -> None:
    """It writes texts and bytes as views."""
    alone.execute(
        "CREATE TABLE t (id VARCHAR(9) PRIMARY KEY, v VARCHAR(9), b VARBINARY(9))",
        "INSERT INTO t VALUES ('a', 'one', x'01'), ('b', 'two', x'02'), ('c', 'three', NULL)",
    )
    begin_alone(alone)
    opened_tables.opened(path(alone, "t")).update(predicate="id = 'b'", updates={"v": "'wrong'", "b": "NULL"})
    assert [row.columns for row in result(alone, "t").rows] == [("v", "b")]
    repair(alone).refuse_unrepaired()
    noted = sorted(alone.metadata.read("verifications"), key=lambda row: int(row["at_us"]))
    assert [(row["equal"], row["differing_rows"]) for row in noted] == [(False, 1), (False, 1), (True, None)]
    alone.execute("UPDATE t SET v = 'again' WHERE id = 'a'", "DELETE FROM t WHERE id = 'c'")
    assert verify(alone).equal


@on_mysql
@pytest.mark.parametrize("point", ["data file written", "rows committed"])
def test_a_killed_repair_is_repeated(alone: Mirror, point: FaultPoint) -> None:
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    begin_alone(alone)
    put(alone, "t", rows(alone, "t").set_column(1, "v", pa.array([1, 3], pa.int32())))
    with alone.cut_off_at(point):
        repair(alone)
    repair(alone).refuse_unrepaired()
    assert verify(alone).equal


def lake_alone(mirror: Mirror) -> TableResult:
    (table,) = pipeline.verify_lake(mirror.config).tables
    return table


@on_mysql
@pytest.mark.parametrize("key", ["PRIMARY KEY (id)", "PRIMARY KEY (v)", "KEY (id)"])
def test_the_lake_is_checked_without_the_server(alone: Mirror, key: str) -> None:
    alone.execute(f"CREATE TABLE t (id INT, v VARCHAR(9), {key})", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    begin_alone(alone)
    assert "never verified" in lake_alone(alone).reason
    assert not pipeline.verify_lake(alone.config).equal
    with mock.patch("binlake.verify.reading.key_cells.ROWS_PER_CHUNK", 1):
        assert verify(alone).equal
    (status,) = read_status(alone.config).tables
    assert status.verified_through is not None
    assert status.verified_through.batch == status.batch
    assert lake_alone(alone).equal
    kept = rows(alone, "t").set_column(1, "v", pa.array(["a", "x"]))
    put(alone, "t", kept)
    assert "somebody else changed it" in lake_alone(alone).reason
    repair(alone).refuse_unrepaired()
    assert verify(alone).equal
    assert lake_alone(alone).equal


@on_mysql
def test_a_pattern_that_matches_no_table_is_refused(alone: Mirror) -> None:
    """What is equal beside it would stand for it."""
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    begin_alone(alone)
    wanted, missed = f"{alone.database}.t", f"{alone.database}.nothing"
    with pytest.raises(UsageError, match=f"no included table that has a mirror matches {missed}"):
        verify(alone, wanted, missed)
    assert verify(alone, wanted).equal


@on_mysql
def test_a_table_that_was_merged_since_is_checked_as_it_was_verified(alone: Mirror) -> None:
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    begin_alone(alone)
    assert verify(alone).equal
    verified = lake_alone(alone)
    alone.execute("UPDATE t SET v = 3 WHERE id = 2")
    pipeline.sync(alone.config, alone.origin, no_spark, Report())
    again = lake_alone(alone)
    assert again.equal
    assert again.delta_version == verified.delta_version
    data_file = min(Path(path(alone, "t")).glob("part-*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array([1, 7], pa.int32())}), data_file)
    damaged = lake_alone(alone)
    assert (damaged.equal, damaged.differing) == (False, 1)
    assert "other rows than were verified" in damaged.reason


@on_mysql
@pytest.mark.parametrize("gone", ["data files", "the log before an OPTIMIZE"])
def test_a_version_that_upkeep_let_go_is_to_be_verified_anew(alone: Mirror, gone: str) -> None:
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    begin_alone(alone)
    assert verify(alone).equal
    alone.execute("UPDATE t SET v = 3 WHERE id = 2")
    pipeline.sync(alone.config, alone.origin, no_spark, Report())
    place = path(alone, "t")
    log = opened_tables.opened(place)
    there = {uri.rpartition("/")[2] for uri in log.file_uris()}
    if gone == "data files":
        left = [file for file in Path(place).glob("part-*.parquet") if file.name not in there]
    else:
        plain_tables.commit_layout(place, log, {}, {}, [])
        opened_tables.opened(place).create_checkpoint()
        left = sorted(Path(place, "_delta_log").glob("0*.json"))[:-1]
    assert left
    for file in left:
        file.unlink()
    checked = lake_alone(alone)
    assert (checked.equal, checked.state, checked.remedy) == (None, "failed", "run binlake verify")
    assert "isn't kept any more" in checked.reason
    for name in there:
        Path(place, name).unlink()
    broken = lake_alone(alone)
    assert ("can't be read" in broken.reason, "binlake snapshot" in broken.remedy) == (True, True)


def test_a_self_test_without_rows_proves_nothing(alone: Mirror) -> None:
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    begin_alone(alone)
    with pytest.raises(CheckFailed, match="no fault was planted"):
        pipeline.self_test(alone.config).refuse_missed()


@on_mysql
def test_the_pace_is_limited(alone: Mirror) -> None:
    alone.options["verify"] = {"rows_per_second": 100, "connections": 1}
    listed = ", ".join(f"({number})" for number in range(200))
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY)", f"INSERT INTO t VALUES {listed}")
    begin_alone(alone)
    report = verify(alone)
    assert report.equal
    assert report.seconds >= 2


@on_mysql
def test_a_table_that_only_delta_can_read_is_hashed(alone: Mirror) -> None:
    """And Spark is asked for, with the reason."""
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    begin_alone(alone)
    with (
        mock.patch("binlake.verify.reading.lake_rows.FEATURES", frozenset()),
        pytest.raises(pytest.fail.Exception, match=r"hashes rows: .*[.]t: the table has .*deletionVectors"),
    ):
        verify(alone)


ROWS = (
    "INSERT INTO {} WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 900) SELECT n, 'v' FROM s"
)


def beside(mirror: Mirror, table: str, mode: BesideMode) -> list[dict[str, Any]]:
    rows = query(mirror.config.beside_path(TableName(mirror.database, table), mode)).to_pylist()
    return sorted(rows, key=lambda row: row["position" if mode == "log" else "from_position"])


@pytest.fixture
def unlogged(alone: Mirror) -> Mirror:
    """A table with a history and a log, of which the server has other rows than its log told."""
    alone.modes = [{"tables": f"{alone.database}.t", "history": {}, "log": {}}]
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    begin_alone(alone)
    alone.execute("INSERT INTO t VALUES (3, 'c')")
    sync(alone)
    alone.execute(
        "SET sql_log_bin = 0",
        "UPDATE t SET v = 'unlogged' WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (4, 'unlogged')",
    )
    return alone


@on_mysql
def test_the_tables_beside_a_mirror_get_what_a_repair_put_right(unlogged: Mirror) -> None:
    repair(unlogged).refuse_unrepaired()
    (place,) = {row["to_position"] for row in beside(unlogged, "t", "history") if not row["is_current"]}
    versions = [
        (row["id"], row["v"], row["is_current"], row["from_position"] == place)
        for row in beside(unlogged, "t", "history")
    ]
    assert sorted(versions) == [
        (1, "a", False, False), (1, "unlogged", True, True), (2, "b", False, False), (3, "c", True, False),
        (4, "unlogged", True, True),
    ]  # fmt: skip
    log = [row for row in beside(unlogged, "t", "log") if row["operation"] == "repair"]
    images = [(row["before_id"], row["before_v"], row["after_id"], row["after_v"]) for row in log]
    assert sorted(images, key=str) == [
        (1, "a", 1, "unlogged"), (2, "b", None, None), (None, None, 4, "unlogged"),
    ]  # fmt: skip
    assert len({row["position"] for row in log} | {place}) == 4
    unlogged.execute("SET sql_log_bin = 0", "DELETE FROM t WHERE id = 4")
    repair(unlogged).refuse_unrepaired()
    unlogged.execute("UPDATE t SET v = 'logged' WHERE id = 3")
    sync(unlogged)
    log = beside(unlogged, "t", "log")
    assert [row["operation"] for row in log] == ["insert", *["repair"] * 4, "update"]
    assert len({row["position"] for row in log}) == len(log)
    assert current(unlogged) == [(1, "unlogged"), (3, "logged")]


def current(mirror: Mirror) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for row in beside(mirror, "t", "history") if row["is_current"])


@on_mysql
def test_the_next_batch_makes_good_what_a_repair_left_of_a_history(unlogged: Mirror) -> None:
    with unlogged.cut_off_at("rows committed"):
        repair(unlogged)
    unlogged.execute("UPDATE t SET v = 'logged' WHERE id = 3")
    sync(unlogged)
    assert current(unlogged) == [(1, "unlogged"), (3, "logged"), (4, "unlogged")]


@pytest.fixture
def small_chunks(alone: Mirror) -> Iterator[Mirror]:
    """Two tables of 900 rows: ``t`` in nine chunks or so, ``named`` in shares, which only whole tables are read of."""
    alone.options["verify"] = {"share": "1%"}
    alone.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE named (id VARCHAR(20) PRIMARY KEY, v VARCHAR(20))",
        *map(ROWS.format, ("t", "named")),
        "ANALYZE TABLE t, named",
    )
    begin_alone(alone)
    with ExitStack() as stack:
        for module in ("lake_rows", "changed_chunks", "key_cells"):
            stack.enter_context(mock.patch(f"binlake.verify.reading.{module}.ROWS_PER_CHUNK", 100))
        stack.enter_context(mock.patch("binlake.verify.reading.by_read._TOGETHER", 2))
        stack.enter_context(mock.patch("binlake.verify.reading.lake_rows._MOST_TIMES", 9))  # the lake has one file
        stack.enter_context(mock.patch("binlake.delta.layout.FEW_BYTES", 0))  # rows are marked as in large files
        yield alone


def verify_changed(mirror: Mirror, **options: Any) -> dict[str, TableResult]:
    report = pipeline.verify(mirror.config, mirror.origin, no_spark, Report(), VerifyRequest(changed=True, **options))
    return {table.name.table: table for table in report.tables}


@on_mysql
def test_only_what_may_have_changed_is_compared_again(small_chunks: Mirror) -> None:
    first = {table.name.table: table for table in verify(small_chunks).tables}
    chunks = first["t"].chunks
    assert (chunks, first["t"].looked, first["named"].looked) == (9, 9, 9)
    again = verify_changed(small_chunks)
    assert (again["t"].looked, again["named"].looked) == (0, 9), "the share: those that were compared first"
    small_chunks.execute(
        "UPDATE t SET v = 'new' WHERE id IN (5, 707)",
        "DELETE FROM t WHERE id = 210",
        "INSERT INTO t WITH RECURSIVE s (n) AS (SELECT 1001 UNION ALL SELECT n + 1 FROM s WHERE n < 1300)"
        " SELECT n, 'late' FROM s",
    )
    again = verify_changed(small_chunks)
    compared = again["t"]
    assert all(table.equal for table in again.values())
    assert (compared.source_rows, compared.lake_rows) == (1199, 1199)
    assert compared.chunks is not None
    assert compared.looked is not None
    assert compared.chunks >= 11, "the last chunk, which grew, is divided"
    assert 3 + (compared.chunks - 8) <= compared.looked <= 4 + (compared.chunks - 8)
    statuses = read_status(small_chunks.config).tables
    assert {status.verified_through and status.verified_through.batch for status in statuses} == {statuses[0].batch}
    assert all(table.equal for table in pipeline.verify_lake(small_chunks.config).tables)
    put(small_chunks, "t", rows(small_chunks, "t").slice(1))
    result = verify_changed(small_chunks)["t"]
    assert (result.equal, [row.kind for row in result.rows]) == (False, ["missing"])
    assert status_of(small_chunks, "t").verified_through is None
    repair(small_chunks).refuse_unrepaired()
    assert status_of(small_chunks, "t").verified_through
    assert verify_changed(small_chunks)["t"].equal


def status_of(mirror: Mirror, table: str) -> TableStatus:
    (status,) = [row for row in read_status(mirror.config).tables if row.table.endswith(f".{table}")]
    return status


@on_mysql
def test_what_no_log_tells_is_found_when_its_turn_comes(small_chunks: Mirror) -> None:
    small_chunks.options["verify"] = {"share": "20%"}
    assert verify(small_chunks).equal
    small_chunks.execute("SET SESSION sql_log_bin = 0", "UPDATE t SET v = 'silent' WHERE id = 890")
    runs = [verify_changed(small_chunks)["t"] for _ in range(5)]
    assert runs[0].equal
    assert sum(run.looked or 0 for run in runs) >= 9
    assert {row for run in runs for row in run.rows} == {DifferingRow("changed", (("id", "890"),), columns=("v",))}


@on_mysql
def test_a_verification_goes_on_where_one_ended(small_chunks: Mirror) -> None:
    """Because its time was up, or because it was killed; what was changed meanwhile is compared again."""
    pattern = f"{small_chunks.database}.t"
    options: dict[str, Any] = {"tables": [pattern]}
    begun = pipeline.verify(
        small_chunks.config, small_chunks.origin, no_spark, Report(), VerifyRequest(seconds=0, **options)
    )
    begun.refuse_unequal()
    (table,) = begun.tables
    assert (table.state, table.looked, begun.to_json()["equal"]) == ("unfinished", 2, None)
    assert status_of(small_chunks, "t").verified_through is None
    small_chunks.execute("UPDATE t SET v = 'new' WHERE id = 1")
    with (
        mock.patch("binlake.verify.reading.by_read.ByRead._sum_up_lake", _failing_at(3)),
        pytest.raises(ConnectionFailed),
    ):
        verify(small_chunks, pattern)
    (table,) = verify(small_chunks, pattern).tables
    assert (table.equal, table.chunks, table.looked) == (True, 9, 9 - 1 - 4)
    (table,) = verify(small_chunks, pattern).tables
    assert table.looked == 9


def _failing_at(number: int) -> Any:
    """The lake's rows can be read so often."""
    read, calls = ByRead._sum_up_lake, itertools.count(1)

    def sum_up(*arguments: Any) -> None:
        if next(calls) == number:
            raise ConnectionFailed("it is gone")
        read(*arguments)

    return sum_up


@on_mysql
def test_hashes_are_compared_of_all_rows_alone(alone: Mirror) -> None:
    alone.options["verify"] = {"by": "hash"}
    with pytest.raises(UsageError, match="by hash all rows are compared"):
        verify_changed(alone)


@on_mysql
def test_a_busy_server_is_left_alone(alone: Mirror) -> None:
    """Until it is less busy, or the time is up."""
    alone.options["verify"] = {"max_threads_running": 1, "connections": 1}
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    begin_alone(alone)
    with ThreadPoolExecutor() as busy:
        for _ in range(3):
            busy.submit(alone.execute, "SELECT SLEEP(4)")
        while threads_running(alone) < 4:
            time.sleep(0.05)
        (table,) = pipeline.verify(alone.config, alone.origin, no_spark, Report(), VerifyRequest(seconds=1)).tables
        assert (table.state, table.looked) == ("unfinished", 0)
        assert verify(alone).equal
        assert threads_running(alone) <= 2


def threads_running(mirror: Mirror) -> int:
    with Source.open(mirror.endpoint) as source:
        return int(source.query("SHOW GLOBAL STATUS LIKE 'Threads_running'")[0]["Value"])
