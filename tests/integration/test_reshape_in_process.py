"""Changes of a table's shape without Spark: the table is the one that Spark's way makes, and nothing is lost where
others commit beside it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from begun_alone import begin_alone
from binlake.delta import layout, plain_tables
from binlake.delta.delta_log import FENCE, LakeLog, overtaking, transaction_version
from binlake.delta.log_files import commit_path
from binlake.delta.plain_tables import OwnCommit, StepCommit
from binlake.errors import SnapshotUnfinished
from binlake.faults import FaultPoint
from binlake.merge import filled_rows
from binlake.merge.engine import move_in_process
from binlake.schema.invalid import FAIL
from binlake.schema.lake_columns import lake_columns
from binlake.schema.table import Column, TableName, TableSchema
from mirror import Mirror, on_mariadb, on_mysql, sync_alone
from odd_values import LENIENT, SAMPLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAIRS = 40
STATEMENTS = {
    "renamed": (
        "ALTER TABLE renamed RENAME COLUMN a TO b, RENAME COLUMN b TO a, ADD COLUMN c INT FIRST",
        "INSERT INTO renamed VALUES (7, 3, 'third', 33)",
        "ALTER TABLE renamed DROP COLUMN a",
        "ALTER TABLE renamed ADD COLUMN a DECIMAL(30, 10) AFTER id, MODIFY c INT COMMENT 'moved' AFTER b",
        "UPDATE renamed SET a = -1.5 WHERE id = 3",
        "ALTER TABLE renamed COMMENT = 'a table''s own 日本'",
    ),
    "odd": (
        "ALTER TABLE odd ADD COLUMN `a b,c;{}()=` INT",
        "INSERT INTO odd VALUES (9, 9)",
        "ALTER TABLE odd ADD COLUMN `ü€` VARCHAR(9)",
    ),
    "moments": (
        "ALTER TABLE moments ADD COLUMN at DATETIME(6), ADD COLUMN seen TIMESTAMP(6) NULL FIRST",
        "UPDATE moments SET at = '2024-02-29 12:34:56.000001', seen = '2024-02-29 12:34:56' WHERE id = 1",
    ),
    "same": (
        "ALTER TABLE same MODIFY v VARCHAR(20) NOT NULL COMMENT 'c', MODIFY id INT AFTER v",
        "INSERT INTO same VALUES ('new', 5)",
        "ALTER TABLE same MODIFY v TEXT NULL, RENAME COLUMN id TO ID, COMMENT 'same'",
    ),
    "emptied": ("DELETE FROM emptied WHERE id = 1", "TRUNCATE TABLE emptied", "INSERT INTO emptied VALUES (1, 'new')"),
    "empty": ("TRUNCATE TABLE empty",),
}
"""By table: DDL with rows between, none of which needs a value that old rows don't have."""
CREATED = (
    "CREATE TABLE renamed (id INT PRIMARY KEY, a VARCHAR(9), b INT)",
    "INSERT INTO renamed VALUES (1, 'one', 11), (2, NULL, 22)",
    "CREATE TABLE odd (id INT PRIMARY KEY COMMENT 'the key') COMMENT 'odd'",
    "INSERT INTO odd VALUES (1)",
    "CREATE TABLE moments (id INT PRIMARY KEY)",
    "INSERT INTO moments VALUES (1), (2)",
    "CREATE TABLE same (id INT PRIMARY KEY, v VARCHAR(10))",
    "INSERT INTO same VALUES (1, 'one')",
    "CREATE TABLE emptied (id INT PRIMARY KEY, v VARCHAR(9))",
    "INSERT INTO emptied VALUES (1, 'one'), (2, 'two')",
    "CREATE TABLE empty (id INT PRIMARY KEY)",
)


def with_limit(mirror: Mirror, megabytes: float) -> Mirror:
    """The mirror, where so much of a table is merged without Spark."""
    return replace(mirror, options={**mirror.options, "merge": {"without_spark_mb": megabytes}})


def copied(mirror: Mirror) -> Mirror:
    """The same lake in another folder."""
    folder = mirror.folder.with_name("copied")
    shutil.copytree(mirror.folder, folder)
    return replace(mirror, folder=folder)


def described(path: str) -> dict[str, Any]:
    """What readers are told of a table, without what differs from table to table: generated names in data files are
    told by their kind alone."""
    log = DeltaTable(path)
    fields = json.loads(log.schema().to_json())["fields"]
    for field in fields:
        stored = field["metadata"].get("delta.columnMapping.physicalName", "")
        if stored.startswith("col-"):
            field["metadata"]["delta.columnMapping.physicalName"] = "col-"
    protocol = log.protocol()
    features = set(protocol.reader_features or ()), set(protocol.writer_features or ())
    versions = protocol.min_reader_version, protocol.min_writer_version
    metadata = log.metadata()
    return {
        "fields": fields, "protocol": (versions, features), "configuration": metadata.configuration,
        "by": metadata.partition_columns, "description": metadata.description,
    }  # fmt: skip


def steps_of(path: str) -> list[tuple[Any, ...]]:
    """Of each commit that carries a step: what it says of itself, and the transaction."""
    steps = []
    for file in sorted(Path(path, "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        (info,) = (action["commitInfo"] for action in actions if "commitInfo" in action)
        note = json.loads(info.get("userMetadata") or "{}").get("binlake", {})
        recorded = [action["txn"]["version"] for action in actions if "txn" in action]
        if "step" in note:
            steps.append((note["batch"], note["step"], note["life"], note["position"], recorded))
    return steps


def without_numbers(described: dict[str, Any]) -> dict[str, Any]:
    """The same without what column mapping keeps of each column: Delta gives a column of a table that is written over
    another the number of that one's column of the same name, and binlake a new one."""
    fields = [{**field, "metadata": field["metadata"].get("comment")} for field in described["fields"]]
    settings = {name: value for name, value in described["configuration"].items() if not name.endswith("maxColumnId")}
    return {**described, "fields": fields, "configuration": settings}


def assert_both_ways_make_the_same(
    mirror: Mirror, tables: list[str], spark: SparkSession, *, numbered: bool = True
) -> None:
    """Let the lake follow the log by the process, a copy of it by Spark, and compare tables, steps and values."""
    by_spark, alone = with_limit(copied(mirror), 0), with_limit(mirror, 16)
    by_spark.sync()
    alone.sync()
    alone.assert_equal(*tables)
    for table in tables:
        ours, theirs = alone.path(table), by_spark.path(table)
        first, second = described(ours), described(theirs)
        assert (first == second) if numbered else (without_numbers(first) == without_numbers(second)), table
        assert steps_of(ours) == steps_of(theirs), table
        read = [spark.read.format("delta").load(path) for path in (ours, theirs)]
        assert read[0].schema.simpleString() == read[1].schema.simpleString(), table
        assert sorted(map(repr, read[0].collect())) == sorted(map(repr, read[1].collect())), table
        alone.assert_each_once(table)


@on_mariadb
def test_both_ways_make_the_same_table(mirror: Mirror, spark: SparkSession) -> None:
    mirror.execute(*CREATED)
    mirror.snapshot()
    for statements in STATEMENTS.values():
        mirror.execute(*statements)
    assert_both_ways_make_the_same(mirror, list(STATEMENTS), spark)


TABLES_MOVE = (
    "CREATE TABLE created (id INT PRIMARY KEY, v VARCHAR(9) COMMENT 'of v', n DECIMAL(65,2), at TIMESTAMP(6) NULL,"
    " f VARBINARY(9)) COMMENT 'created'",
    "INSERT INTO created VALUES (1, 'one', 1.5, NULL, 'b')",
    "CREATE TABLE empty_one LIKE created",
    "CREATE TABLE `odd, one` (`a b` INT PRIMARY KEY, at DATETIME)",
    "INSERT INTO `odd, one` VALUES (1, '2024-02-29 12:34:56')",
    "RENAME TABLE one TO moved",
    "INSERT INTO moved VALUES (3, 'three')",
    "CREATE TABLE one (`a b` INT PRIMARY KEY)",
    "INSERT INTO one VALUES (7)",
    "RENAME TABLE odd TO swap, two TO odd, swap TO two",
    "INSERT INTO odd VALUES (8, 'eight')",
    "DROP TABLE three",
    "CREATE TABLE three (at DATETIME(6), id INT PRIMARY KEY)",
    "INSERT INTO three VALUES ('2024-02-29 12:34:56', 1)",
    "ALTER TABLE many RENAME TO lots",
    "ALTER TABLE lots RENAME TO many",
)
TABLES = ["created", "empty_one", "odd, one", "moved", "one", "odd", "two", "three", "many"]


@pytest.fixture
def moving(mirror: Mirror) -> Mirror:
    """Tables of which one is column-mapped, has rows that deletion vectors hide, and columns that no data file has."""
    mirror.execute(
        "CREATE TABLE one (id INT PRIMARY KEY COMMENT 'the key', v VARCHAR(9)) COMMENT 'one'",
        "INSERT INTO one VALUES (1, 'one'), (2, 'two')",
        *(made for name in ("two", "three", "many", "odd") for made in (
            f"CREATE TABLE {name} LIKE one", f"INSERT INTO {name} VALUES (1, NULL), (2, 'second'), (3, 'third')"
        )),
    )  # fmt: skip
    mirror.snapshot()
    mirror.execute(
        "ALTER TABLE odd RENAME COLUMN v TO `v w`, ADD COLUMN never DATETIME(6), ADD COLUMN d DECIMAL(9,2)",
        "DELETE FROM many WHERE id = 2",
        "DELETE FROM odd WHERE id = 2",
    )
    mirror.merges = ("mark",)
    mirror.sync()
    mirror.execute(*TABLES_MOVE)
    return mirror


def test_tables_come_move_and_take_each_others_places_without_spark(moving: Mirror) -> None:
    sync_alone(with_limit(moving, 16))
    moving.assert_equal(*TABLES)
    for table in TABLES:
        moving.assert_each_once(table)


@pytest.mark.soak
def test_tables_come_and_move_the_same_way_by_spark(moving: Mirror, spark: SparkSession) -> None:
    assert_both_ways_make_the_same(moving, TABLES, spark, numbered=False)


@on_mysql
def test_tables_that_move_are_cut_off_after_each_commit(moving: Mirror) -> None:
    points: tuple[FaultPoint, ...] = ("data file written", "epoch committed", "epoch committed", "epoch committed")
    for point in points:
        with moving.cut_off_at(point):
            sync_alone(with_limit(moving, 16))
    sync_alone(with_limit(moving, 16))
    moving.assert_equal(*TABLES)
    for table in TABLES:
        moving.assert_each_once(table)


@on_mysql
def test_a_table_does_not_come_over_a_snapshot_that_overtook_it(moving: Mirror) -> None:
    """A run that lost its lease wakes up after another has snapshotted the path."""
    log = moving.config.table_path(TableName(moving.database, "three"))
    fenced = LakeLog(log, "binlake:tests:another")
    plain_tables.commit(LakeLog(log, FENCE), fenced.opened(), OwnCommit("Manual Update", overtaking(9), {}, {}, {}), [])
    version = transaction_version(3, 1)
    with pytest.raises(SnapshotUnfinished, match="over a batch that was begun before"):
        move_in_process.create(
            fenced,
            lake_columns(TableSchema((Column("id", "int"),), ("id",)), FAIL),
            StepCommit(version, {}),
        )


def test_columns_of_every_type_come_move_and_go(mirror: Mirror, spark: SparkSession) -> None:
    """In half of the table's columns rows follow, a quarter is renamed, a quarter goes."""
    samples = [sample for sample in SAMPLES if sample.only in (None, mirror.server.kind)]
    added = ", ".join(f"ADD COLUMN c{place} {sample.declared}" for place, sample in enumerate(samples))
    half = range(0, len(samples), 2)
    renamed = ", ".join(f"RENAME COLUMN c{place} TO r{place}" for place in range(1, len(samples), 4))
    dropped = ", ".join(f"DROP COLUMN c{place}" for place in range(3, len(samples), 4))
    names, values = (", ".join(parts) for parts in zip(*((f"c{n}", samples[n].literals[0]) for n in half), strict=True))
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY) CHARACTER SET utf8mb4", "INSERT INTO t VALUES (1)")
    mirror.snapshot()
    mirror.execute(
        LENIENT,
        f"ALTER TABLE t {added}",
        f"INSERT INTO t (id, {names}) VALUES (2, {values})",
        f"ALTER TABLE t {renamed}, {dropped}",
        f"INSERT INTO t (id, {names}) VALUES (3, {values})",
    )
    assert_both_ways_make_the_same(mirror, ["t"], spark)


@on_mysql
def test_forty_pairs_of_alter_and_insert_ask_for_no_spark(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.snapshot()
    for number in range(PAIRS):
        default = "DEFAULT 7" if number % 2 else ""
        mirror.execute(
            f"ALTER TABLE t ADD c{number} INT {default}", f"INSERT INTO t (id, c{number}) VALUES ({10 + number}, 7)"
        )
    before = mirror.version("t")
    sync_alone(with_limit(mirror, 16))
    assert mirror.version("t") - before <= 2 * PAIRS
    mirror.assert_equal("t")
    mirror.assert_each_once("t")


def test_constants_of_old_rows_are_written_without_spark(
    followed: Mirror, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside rows that deletion vectors hide, and columns that came, went and got other names."""
    with monkeypatch.context() as patch:
        patch.setattr(layout, "FEW_BYTES", 0)
        followed.execute("INSERT INTO t VALUES (3, 'c'), (4, 'd')", "DELETE FROM t WHERE id = 2")
        sync_alone(followed)
    followed.execute(
        "ALTER TABLE t ADD COLUMN n INT DEFAULT 7, ADD COLUMN big BIGINT UNSIGNED DEFAULT 18446744073709551615 FIRST,"
        " ADD COLUMN d DECIMAL(6,2) NOT NULL DEFAULT -1.5, ADD COLUMN s VARCHAR(20) DEFAULT 'it''s \\\\ ü',"
        " ADD COLUMN e ENUM('a', 'ü') DEFAULT 'ü', ADD COLUMN m SET('x', 'y') NOT NULL DEFAULT 'x,y',"
        " ADD COLUMN z SMALLINT NOT NULL, ADD COLUMN w VARCHAR(5) NOT NULL",
        "UPDATE t SET n = NULL WHERE id = 1",
        "ALTER TABLE t RENAME COLUMN n TO other, DROP COLUMN v, ADD COLUMN n TINYINT DEFAULT -3",
        "INSERT INTO t (id, z, w) VALUES (5, 5, 'five')",
        "ALTER TABLE t ADD COLUMN v CHAR(3) DEFAULT 'v' FIRST",
    )
    sync_alone(followed)
    followed.assert_equal("t")
    followed.assert_each_once("t")


ADDED = (
    "DATE DEFAULT '2020-02-29'", "DATETIME(3) DEFAULT '2020-02-02 01:02:03.5'", "YEAR DEFAULT 1999",
    "TIMESTAMP(6) NOT NULL DEFAULT '2020-02-02 01:02:03.000001'", "TIME(6) DEFAULT '-01:02:03.5'",
    "BIT(9) DEFAULT b'101'", "BIT(1) DEFAULT b'1'", "BINARY(4) DEFAULT 'ab'", "VARBINARY(4) NOT NULL DEFAULT 'ab'",
    "FLOAT DEFAULT 0.1",
    "DOUBLE NOT NULL", "BLOB NOT NULL", "DECIMAL(65,3) DEFAULT 1.5", "DATETIME DEFAULT CURRENT_TIMESTAMP",
)  # fmt: skip
MODIFIED = (
    "MODIFY id BIGINT, MODIFY ti INT, MODIFY f DOUBLE, MODIFY d DATETIME(6), MODIFY de DECIMAL(20,6), MODIFY i BIGINT",
    "MODIFY ti VARCHAR(30), MODIFY i DECIMAL(60,0), MODIFY v VARCHAR(300), MODIFY u BIGINT, MODIFY b INT",
    "MODIFY u DECIMAL(30,2), MODIFY n DECIMAL(9,2), MODIFY v LONGBLOB, MODIFY de VARCHAR(60)",
    "MODIFY n VARCHAR(20), MODIFY y BIGINT, MODIFY s DOUBLE, MODIFY id INT FIRST, RENAME COLUMN d TO moment",
)


def test_constants_and_changed_types_are_written_without_spark(mirror: Mirror) -> None:
    mirror.options["merge"] = {"without_spark_mb": 16}
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, ti TINYINT, f FLOAT, d DATE, de DECIMAL(6,2), i INT UNSIGNED,"
        " v VARCHAR(9), u INT UNSIGNED, b BIT(1), n SMALLINT, y YEAR, s SMALLINT) CHARACTER SET utf8mb4",
        "INSERT INTO t VALUES (1, -128, 0.1, '2020-02-29', -9999.99, 4294967295, 'ü😀', 0, 1, -5, 1901, 32767),"
        " (2, 127, -0.0, '0001-01-01', 0.01, 0, '', 4294967295, 0, 0, 2155, -1)",
        "INSERT INTO t (id) VALUES (3)",
    )
    mirror.snapshot()
    for number, declared in enumerate(ADDED):
        mirror.execute(f"ALTER TABLE t ADD COLUMN c{number} {declared}")
    for number, modified in enumerate(MODIFIED):
        mirror.execute(f"INSERT INTO t (id, c10, c11) VALUES ({10 + number}, 1.5, 'blob')")
        mirror.execute(f"ALTER TABLE t {modified}", "UPDATE t SET c0 = '2021-01-01' WHERE id = 3")
    said = sync_alone(mirror)
    assert "resnapshot" not in said
    mirror.assert_equal("t")
    mirror.assert_each_once("t")


@pytest.fixture
def followed(mirror: Mirror) -> Mirror:
    mirror.options["merge"] = {"without_spark_mb": 16}
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    mirror.snapshot()
    return mirror


@on_mariadb
def test_kept_columns_outlive_a_table_that_was_emptied_and_altered(mirror: Mirror) -> None:
    mirror.options |= {"policies": {"on_drop_column": "keep"}, "merge": {"without_spark_mb": 16}}
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO t VALUES (1, 10, 100)")
    begin_alone(mirror)
    mirror.execute("ALTER TABLE t DROP a, DROP b")
    sync_alone(mirror)
    mirror.execute("TRUNCATE t", "ALTER TABLE t ADD a VARCHAR(9)")
    sync_alone(mirror)
    mirror.execute("ALTER TABLE t ADD c INT")
    sync_alone(mirror)
    fields = DeltaTable(mirror.path("t")).schema().fields
    assert [field.name for field in fields] == ["id", "a", "c", "a__dropped", "b"]


@on_mysql
def test_comments_alone_are_one_commit_without_rows_and_without_spark(followed: Mirror) -> None:
    before = followed.version("t")
    followed.execute("ALTER TABLE t COMMENT 'all'", "INSERT INTO t VALUES (3, 'c')", "ALTER TABLE t COMMENT 'of t'")
    followed.execute("ALTER TABLE t MODIFY v VARCHAR(9) COMMENT 'of v'", "DELETE FROM t WHERE id = 1")
    with followed.cut_off_at("epoch committed"):
        sync_alone(followed)
    sync_alone(followed)
    assert followed.version("t") - before == 2, "the merge, and the comments"
    log = DeltaTable(followed.path("t"))
    commit = Path(commit_path(followed.path("t"), log.version())).read_text()
    actions = [json.loads(line) for line in commit.splitlines()]
    assert [set(action) for action in actions] == [{"commitInfo"}, {"txn"}, {"metaData"}]
    assert (log.metadata().description, log.schema().fields[1].metadata["comment"]) == ("of t", "of v")
    followed.execute("ALTER TABLE t COMMENT 'of t'", "ALTER TABLE t MODIFY v VARCHAR(9) COMMENT 'of v'")
    sync_alone(followed)
    assert followed.version("t") == log.version()
    followed.assert_equal("t")
    followed.assert_each_once("t")


CHANGES = (
    "ALTER TABLE t RENAME COLUMN v TO w, ADD COLUMN v INT",
    "TRUNCATE TABLE t",
    "ALTER TABLE t ADD COLUMN n INT DEFAULT 7",
)


@on_mariadb
@pytest.mark.parametrize("change", CHANGES)
def test_a_commit_between_read_and_commit_makes_the_step_begin_again(
    followed: Mirror, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    commit, tries = plain_tables.commit, []

    def late(*arguments: Any) -> None:
        if not tries:
            spark.sql(f"OPTIMIZE delta.`{followed.path('t')}`")
        tries.append(arguments)
        commit(*arguments)

    followed.execute("INSERT INTO t VALUES (5, 'e')")
    sync_alone(followed)
    monkeypatch.setattr(plain_tables, "commit", late)
    followed.execute(change)
    sync_alone(followed)
    assert len(tries) == 2
    followed.assert_equal("t")
    followed.assert_each_once("t")


@on_mariadb
@pytest.mark.parametrize("change", CHANGES)
def test_a_commit_whose_answer_got_lost_is_known_again(
    followed: Mirror, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A store that was asked twice says that the version is there."""
    commit = plain_tables.commit

    def lost(*arguments: Any) -> None:
        commit(*arguments)
        raise CommitFailedError("Failed to commit transaction: 0")

    monkeypatch.setattr(plain_tables, "commit", lost)
    followed.execute(change)
    sync_alone(followed)
    followed.assert_equal("t")
    followed.assert_each_once("t")


@on_mysql
def test_a_run_cut_off_after_each_commit_comes_to_the_same(followed: Mirror) -> None:
    followed.execute(*CHANGES[:1], "INSERT INTO t VALUES (3, 'c', 3)", "ALTER TABLE t DROP COLUMN v", CHANGES[1])
    for _ in range(4):
        with followed.cut_off_at("epoch committed"):
            sync_alone(followed)
    sync_alone(followed)
    followed.assert_equal("t")
    followed.assert_each_once("t")


@on_mysql
@pytest.mark.parametrize(
    ("beyond", "change", "reason"),
    [
        ("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')", CHANGES[0],
         "the table has changeDataFeed, delta.enableChangeDataFeed"),
        ("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)", CHANGES[1],
         "the table has checkConstraints, delta.constraints.positive"),
    ],
)  # fmt: skip
def test_what_is_left_to_spark_is_said_with_its_reason(
    followed: Mirror, spark: SparkSession, beyond: str, change: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.sql(beyond.format(t=f"delta.`{followed.path('t')}`"))
    followed.execute(change)
    followed.sync()
    assert f" of {followed.database}.t by Spark: {reason}\n" in capsys.readouterr().err
    followed.assert_equal("t")


@on_mysql
def test_rows_of_large_tables_are_written_anew_by_spark(
    followed: Mirror, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(filled_rows, "MOST_BYTES", 100)
    followed.execute("ALTER TABLE t MODIFY id BIGINT, ADD COLUMN n DATE DEFAULT '2020-02-02'")
    followed.sync()
    said = capsys.readouterr().err
    assert "by Spark: all rows get other values in id, n, and its 1 data files have 0.0 MB\n" in said
    followed.assert_equal("t")


@on_mysql
def test_a_protocol_that_names_no_features_is_left_to_spark(
    followed: Mirror, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plain_tables, "_TABLE_FEATURES", {"minReaderVersion": 3, "minWriterVersion": 8})
    followed.execute(CHANGES[0])
    followed.sync()
    assert "by Spark: the table's protocol names no features\n" in capsys.readouterr().err
    followed.assert_equal("t")
