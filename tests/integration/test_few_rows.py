"""Tables of few rows are copied together, and as exactly as each by a connection of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from binlake.delta import plain_files
from binlake.errors import TableError
from binlake.snapshot import few_rows, snapshot as snapshot_room, spark_copies, waves as wave
from binlake.snapshot.copying import Member
from binlake.snapshot.snapshot import SnapshotResult
from binlake.source.locks import Gates
from mirror import Mirror, in_the_soak, on_mariadb, on_mysql
from odd_values import SampleTable
from writers import writing

TABLES = tuple("abcdef")


@pytest.fixture
def six(mirror: Mirror) -> Mirror:
    """Six tables of two rows; nothing is wrong with any of them."""
    for table in TABLES:
        mirror.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT, at DATETIME(6), name VARCHAR(9))",
            f"INSERT INTO {table} VALUES (1, 100, '2020-02-29 01:02:03.000004', 'one'), (2, 100, NULL, '')",
        )
    return mirror


@pytest.fixture
def waves(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, list[str]]]:
    """Those of the test's snapshots: whether they were read together, and the tables."""
    waves: list[tuple[bool, list[str]]] = []

    def noting(copied: Any, members: Sequence[Member], *rest: Any, together: bool, **options: Any) -> None:
        waves.append((together, sorted(member.table.name.table for member in members)))
        wave.run_wave(copied, members, *rest, together=together, **options)

    monkeypatch.setattr(snapshot_room, "run_wave", noting)
    return waves


def beside(mirror: Mirror, folder: Path, **options: Any) -> Mirror:
    """The same database in another lake."""
    folder.mkdir()
    return Mirror(mirror.server, mirror.database, folder, mirror.spark, options={**mirror.options, **options})


def rows(mirror: Mirror, table: str) -> Any:
    return mirror.spark.read.format("delta").load(mirror.path(table)).orderBy("id")


def assert_bounds_are_those_of_the_rows(by_footers: str, gathered: str, long: set[str]) -> None:
    """By Spark's files, of whose footers they are, and by those of this process, which gathers none of floating-point
    numbers. long: columns with values of kilobytes, of which footers tell nothing."""
    told, expected = statistics(by_footers), statistics(gathered)
    assert told["numRecords"] == expected["numRecords"]
    for which in ("nullCount", "minValues", "maxValues"):
        known = {name: value for name, value in expected[which].items() if name not in long}
        assert len(known) > 20
        assert {name: told[which].get(name) for name in known} == known


def is_long(value: object) -> bool:
    """Return whether it is half of what Parquet's writer takes into a footer as two bounds."""
    size = len(value.encode() if isinstance(value, str) else value) if isinstance(value, str | bytes) else 0
    return size > 2000


def statistics(path: str) -> dict[str, Any]:
    """Of the only data file of a table's first commit."""
    commit = Path(path, "_delta_log", f"{0:020}.json").read_text().splitlines()
    (added,) = (action["add"] for action in map(json.loads, commit) if "add" in action)
    told: dict[str, Any] = json.loads(added["stats"])
    return told


KEPT = {"invalid_dates": "keep_text", "invalid_text": "keep_bytes"}


@pytest.mark.parametrize(
    ("server", "options"), [("mysql", KEPT), ("mariadb", {}), *in_the_soak(("mysql", {}), ("mariadb", KEPT))],
    indirect=["server"],
)  # fmt: skip
def test_every_type_is_what_it_is_by_a_task_of_its_own(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    table = SampleTable.of(mirror.server.kind, "samples", invalid_dates=bool(options))
    table.create(mirror.server, mirror.database)
    monkeypatch.setattr(few_rows, "MOST_BYTES", 1 << 30)
    mirror.options = dict(options)
    together, table_by_table = beside(mirror, tmp_path / "together"), beside(mirror, tmp_path / "apart")
    direct = beside(mirror, tmp_path / "direct", snapshot={"reader": "direct"})
    made: list[str] = []
    write = plain_files.write

    def noting(table: str, *rest: Any) -> Any:
        made.append(Path(table).name)
        return write(table, *rest)

    monkeypatch.setattr(plain_files, "write", noting)
    together.snapshot()
    assert made == ["samples"]
    monkeypatch.setattr(few_rows, "MOST_ROWS", -1)
    table_by_table.snapshot()
    assert made == ["samples"]
    direct.snapshot()
    ours = rows(together, "samples")
    for other in (table_by_table, direct):
        theirs = rows(other, "samples")
        assert ours.schema == theirs.schema
        assert ours.toArrow() == theirs.toArrow()
    if not options:
        together.assert_equal("samples")
    samples = ours.toArrow()
    long = {name for name in samples.column_names if any(map(is_long, samples[name].to_pylist()))}
    lists = {
        field.name for field in samples.schema if pa.types.is_list(field.type)
    }  # of whose NULLs footers say nothing
    assert_bounds_are_those_of_the_rows(table_by_table.path("samples"), direct.path("samples"), long | lists)


@on_mariadb
def test_a_table_without_rows_has_no_data_file(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE none (id INT PRIMARY KEY, v TEXT)")
    mirror.snapshot()
    assert rows(mirror, "none").count() == 0
    assert list(Path(mirror.path("none")).rglob("*.parquet")) == []


def test_they_are_all_of_one_moment(six: Mirror, waves: list[tuple[bool, list[str]]]) -> None:
    def moved(cursor: Any, number: int) -> None:
        first, second = TABLES[number % 6], TABLES[(number * 5 + 1) % 6]
        cursor.execute(f"UPDATE {first} SET v = v - 3 WHERE id = 1")
        cursor.execute(f"UPDATE {second} SET v = v + 3 WHERE id = 2")

    with writing(six, moved):
        results = six.snapshot()
    assert waves == [(True, list(TABLES))]
    assert len({position for result in results for position in (result.low, result.high)}) == 1
    assert sum(row["v"] for table in TABLES for row in rows(six, table).collect()) == 1200
    six.sync()
    six.assert_equal(*TABLES)


@on_mysql
@pytest.mark.parametrize("reader", ["jdbc", "direct"])
def test_whose_rows_are_read_before_their_view_is_seen(
    mirror: Mirror,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reader: Literal["jdbc", "direct"],
) -> None:
    """The connection may have read its tables before the control connection looks for its view again."""
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1), (2)")
    mirror.reader = reader
    release = Gates._release

    def late(gates: Gates, what: str) -> None:
        release(gates, what)
        if what == "closed":
            time.sleep(1)

    monkeypatch.setattr(Gates, "_release", late)
    mirror.snapshot()
    assert "a wave failed" not in capsys.readouterr().err
    mirror.assert_equal("a")


@pytest.mark.parametrize("lock", ["tables", "none"])
def test_without_the_servers_lock(six: Mirror, lock: str, waves: list[tuple[bool, list[str]]]) -> None:
    def churned(cursor: Any, number: int) -> None:
        cursor.execute(f"REPLACE INTO {TABLES[number % 6]} VALUES (%s, %s, NULL, 'x')", (number % 50, number))
        cursor.execute(f"DELETE FROM {TABLES[number % 6]} WHERE id = %s", (number * 7 % 50,))

    with writing(six, churned):
        results = six.snapshot(lock=lock)
    assert waves == [(True, list(TABLES))]
    assert all((result.lock_ms > 0) == (lock == "tables") for result in results)
    six.sync()
    six.assert_equal(*TABLES)


@on_mariadb
def test_what_else_is_among_them(mirror: Mirror, waves: list[tuple[bool, list[str]]]) -> None:
    odd = "o dd.`n'a\"m\\e"
    mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, d DATE)",
        f"CREATE TABLE `{odd.replace('`', '``')}` (id INT PRIMARY KEY, `a.b``c` VARCHAR(9), `ü漢=;{{}}` INT)",
        f"INSERT INTO `{odd.replace('`', '``')}` VALUES (1, 'x', 2), (2, NULL, NULL)",
        "CREATE TABLE keyless (v VARCHAR(5), w INT)",
        "INSERT INTO keyless VALUES ('a', 1), ('a', 1), (NULL, NULL)",
        "CREATE TABLE unlocked (id INT PRIMARY KEY) ENGINE=MyISAM",
        "INSERT INTO unlocked VALUES (1)",
    )
    mirror.snapshot()
    assert waves == [(True, ["a", "keyless", odd]), (False, ["unlocked"])]
    mirror.assert_equal("a", odd, "keyless", "unlocked")
    mirror.execute("INSERT INTO a VALUES (1, '0999-12-31')", "DELETE FROM keyless WHERE v = 'a' LIMIT 1")
    mirror.sync()
    mirror.assert_equal("a", odd, "keyless", "unlocked")


@on_mysql
def test_more_rows_or_bytes_than_estimated_are_copied_apart(
    mirror: Mirror, waves: list[tuple[bool, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = ", ".join(f"({number})" for number in range(few_rows.MOST_ROWS + 1))
    mirror.execute(
        "CREATE TABLE few (id INT PRIMARY KEY)",
        "INSERT INTO few VALUES (1), (2)",
        "CREATE TABLE many (id INT PRIMARY KEY)",
        f"INSERT INTO many VALUES {numbers}",
        "CREATE TABLE wide (id INT PRIMARY KEY, v LONGTEXT)",
        "INSERT INTO wide VALUES (1, REPEAT('x', 600000)), (2, REPEAT('y', 600000))",
    )
    monkeypatch.setattr(few_rows, "fits", lambda table: not table.many_rows)
    mirror.snapshot()
    # On a busy machine a wave may be repeated.
    assert [wave for place, wave in enumerate(waves) if wave not in waves[:place]] == [
        (True, ["few", "many", "wide"]), (False, ["many", "wide"]),
    ]  # fmt: skip
    mirror.assert_equal("few", "many", "wide")


@on_mariadb
def test_one_that_is_altered_begins_anew(six: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = iter(["ALTER TABLE c ADD COLUMN note VARCHAR(5) DEFAULT 'new'", "DROP TABLE e"])

    def altering(*arguments: Any, **options: Any) -> None:
        for statement in statements:
            six.execute(statement)
            break
        wave.run_wave(*arguments, **options)

    monkeypatch.setattr(snapshot_room, "run_wave", altering)
    with pytest.raises(TableError, match=r"\.e was dropped"):
        six.snapshot()
    six.assert_equal(*"abcdf")
    assert "note" in rows(six, "c").columns
    assert six.watermark("a")["status"] == "following"


@on_mariadb
@pytest.mark.parametrize("lock", ["flush", "tables"])
def test_one_that_cant_be_read_fails_alone(six: Mirror, lock: str) -> None:
    six.execute("ALTER TABLE c DISCARD TABLESPACE")
    with pytest.raises(TableError, match=r"\.c.*\(error 1814\)"):
        six.snapshot(lock=lock)
    six.assert_equal(*"abdef")
    six.execute("UPDATE a SET v = 1")
    six.sync()
    six.assert_equal(*"abdef")


@on_mysql
def test_invalid_text_and_dates_fail_alone(six: Mirror) -> None:
    six.execute(
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'",
        "INSERT INTO b VALUES (3, 1, '2020-02-30 01:02:03', '')",
        "CREATE TABLE g (id INT PRIMARY KEY, v BLOB)",
        "INSERT INTO g VALUES (1, x'80')",
    )
    with pytest.raises(TableError, match="column 'at' holds an invalid date in 1 row"):
        six.snapshot()
    six.assert_equal(*"acdefg")


@on_mariadb
def test_a_connection_that_is_lost_is_made_again(
    six: Mirror, waves: list[tuple[bool, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reads = spark_copies._Reader.read, iter(range(100))

    def cut(self: Any, query: Any) -> Any:
        if next(reads) == 2:
            self._connection.abortInternal()
        return read(self, query)

    monkeypatch.setattr(spark_copies._Reader, "read", cut)
    monkeypatch.setattr(snapshot_room, "_PAUSE", 0)
    six.snapshot()
    assert waves == [(True, list("abcdef")), (True, list("cdef"))]
    six.assert_equal(*TABLES)


@on_mariadb
@pytest.mark.parametrize("point", ["lock taken", "chunk copied", "chunks written", "rows committed"])
def test_killed_and_run_again(six: Mirror, point: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_rows, "MOST_TABLES", 4)
    with six.cut_off_at(point):
        six.snapshot()
    staged = {row["table"] for row in six.metadata.read("snapshots") if row["state"] == "staged"}
    positions = {row["table"]: row["position"] for row in six.metadata.read("snapshots") if row["table"] in staged}
    assert bool(staged) == (point in ("chunks written", "rows committed"))
    six.execute("UPDATE a SET v = v + 1", "INSERT INTO f VALUES (7, 7, NULL, NULL)")
    results: list[SnapshotResult] = six.snapshot()
    assert {result.name.table for result in results} == set(TABLES)
    after = {row["table"]: row["position"] for row in six.metadata.read("snapshots")}
    assert positions.items() <= after.items()
    assert not list(Path(six.config.staging_path("snapshot")).iterdir())
    six.sync()
    six.assert_equal(*TABLES)


@on_mysql
def test_many_tables_are_several_waves(six: Mirror, waves: list[tuple[bool, list[str]]], monkeypatch: Any) -> None:
    monkeypatch.setattr(few_rows, "MOST_TABLES", 4)
    six.snapshot()
    assert [(together, len(tables)) for together, tables in waves] == [(True, 4), (True, 2)]
    six.assert_equal(*TABLES)


@on_mysql
def test_whichever_reader_copies_the_large_ones(six: Mirror, waves: list[tuple[bool, list[str]]]) -> None:
    six.options["snapshot"] = {"reader": "direct"}
    six.snapshot()
    assert waves == [(True, list(TABLES))]
    six.assert_equal(*TABLES)
