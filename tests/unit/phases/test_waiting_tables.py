"""Tables that wait for an answer, or are frozen, at a schema change in a folder's log: statements in, rows out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from binlake import binlog, config, faults, pipeline
from binlake.binlog_writer.written_log import WrittenLog, WrittenTable
from binlake.config import PipelineConfig
from binlake.errors import LakeError, UsageError
from binlake.faults import FaultPoint
from binlake.lease import lease
from binlake.lease.lease import Lease
from binlake.position import Flavour
from binlake.records import waiting_changes, watermarks
from binlake.records.decisions import Reason
from binlake.records.status import read_status
from binlake.report import Report
from binlake.schema.table import Column, TableName
from binlake.source.folder import Folder
from binlake.store.metadata import metadata_of
from no_session import NoSession
from planted_secrets import found_in

WHY = Reason("ada", "seen")
T = TableName("shop", "t")
ASK = "{tables: 'shop.*', add: ask, drop: ask, rename: ask, retype: ask}"


class CutOff(Exception):
    """The process is killed here."""


@contextmanager
def killed_at(point: FaultPoint) -> Iterator[None]:
    def cut_off(reached: FaultPoint) -> None:
        if reached == point:
            raise CutOff

    with mock.patch.object(faults, "at_point", cut_off), pytest.raises(CutOff):
        yield


@dataclass
class Shop:
    """A source whose log is a folder: t has two rows, u none, and both are in the lake."""

    folder: Path
    log: WrittenLog
    policy: str = ASK
    excluded: str = ""
    masked: str = ""
    renamed: str = ""

    @property
    def config(self) -> PipelineConfig:
        yaml = self.folder / "shop.yaml"
        yaml.write_text(
            f"source: {{name: shop, connection: '{(self.folder / 'log').as_uri()}'}}\n"
            f"tables: {{include: ['shop.*'], exclude_columns: [{self.excluded}]}}\n"
            f"lake: {{path: ./lake}}\non_schema_change: [{self.policy}]\n"
            f"columns: [{f'{{columns: {self.masked}, null: true}}' if self.masked else self.renamed}]\n"
        )
        return config.load(yaml)

    def does(self, *changes: str | tuple[str, ...]) -> None:
        """Write a statement, or the table, its columns and the values of a row that comes."""
        for change in changes:
            if isinstance(change, str):
                self.log.statement(change, database="shop")
                continue
            table, columns, *values = change
            names = columns.split()
            made = WrittenTable(TableName("shop", table), tuple(Column(name, "int") for name in names), ("id",))
            with self.log.transaction() as transaction:
                transaction.insert(made, [dict(zip(names, map(int, values), strict=True))])

    def sync(self) -> None:
        pipeline.sync(self.config, Folder(self.folder / "log"), NoSession(), Report(quiet=True))

    def rows(self, table: str = "t") -> list[tuple[Any, ...]]:
        lake = DeltaTable(self.config.table_path(TableName("shop", table)))
        read = pa.table(QueryBuilder().register("t", lake).execute("SELECT * FROM t ORDER BY id").read_all())
        return [tuple(read.column_names), *(tuple(row.values()) for row in read.to_pylist())]

    def answer(self, *, yes: bool) -> str:
        return waiting_changes.answer(self.config, T, WHY, yes=yes)

    @property
    def waiting(self) -> list[str]:
        return [", ".join(change.held.changes) for change in read_status(self.config).waiting]

    @property
    def status(self) -> str:
        return next(row.status for row in watermarks.read(metadata_of(self.config)) if row.name == T)


@pytest.fixture(params=["mysql", "mariadb"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    flavour: Flavour = request.param
    with binlog.write(tmp_path / "log", flavour=flavour) as log:
        made = Shop(tmp_path, log)
        made.does(
            "CREATE TABLE t (id INT PRIMARY KEY, v INT)", ("t", "id v", "1", "10"), ("t", "id v", "2", "20"),
            "CREATE TABLE u (id INT PRIMARY KEY)",
        )  # fmt: skip
        pipeline.bootstrap(made.config, Folder(tmp_path / "log"), NoSession(), Report(quiet=True))
        made.sync()
        yield made


def test_a_table_waits_while_the_others_go_on_and_follows_after_a_yes(shop: Shop) -> None:
    shop.does(("t", "id v", "3", "30"), "ALTER TABLE t ADD n INT DEFAULT 7", ("u", "id", "1"))
    shop.sync()
    shop.does(("t", "id v n", "4", "40", "8"), "ALTER TABLE t ADD INDEX (n)", ("u", "id", "2"))
    shop.sync()
    assert (shop.rows(), shop.rows("u")) == ([("id", "v"), (1, 10), (2, 20)], [("id",), (1,), (2,)])
    (waits,) = read_status(shop.config).waiting
    assert (list(waits.held.changes), waits.behind, waits.statement.statement) == (
        ["adds 'n' int"], 1, "ALTER TABLE t ADD n INT DEFAULT 7"
    )  # fmt: skip
    assert (waits.before, waits.after) == (["id int", "v int"], ["id int", "v int", "n int"])
    assert "continues with the next sync" in shop.answer(yes=True)
    shop.sync()
    assert shop.rows() == [("id", "v", "n"), (1, 10, 7), (2, 20, 7), (3, 30, 7), (4, 40, 8)]
    assert (shop.status, shop.waiting) == ("following", [])


def test_after_a_no_the_lake_goes_without_the_new_column(shop: Shop) -> None:
    shop.does("ALTER TABLE t ADD secret INT", ("t", "id v secret", "3", "30", "1"))
    shop.sync()
    assert "the lake goes without 'secret' from there on" in shop.answer(yes=False)
    shop.does(("t", "id v secret", "4", "40", "1"))
    shop.sync()
    shop.does(("t", "id v secret", "5", "50", "1"))
    shop.sync()
    assert shop.rows() == [("id", "v"), *((number, 10 * number) for number in range(1, 6))]
    assert shop.status == "following"


def test_a_column_that_is_left_out_stays_so_under_another_name_of_its_table(shop: Shop) -> None:
    shop.does("ALTER TABLE t ADD secret INT")
    shop.sync()
    shop.answer(yes=False)
    shop.sync()
    shop.does("RENAME TABLE t TO w")
    shop.sync()
    assert lease.read(metadata_of(shop.config)).columns_left_out == ("shop.w.secret",)
    with pytest.raises(UsageError, match=r"no answer leaves shop\.w's column 'v' out"):
        waiting_changes.take_in(shop.config, TableName("shop", "w"), "v", WHY)
    waiting_changes.take_in(shop.config, TableName("shop", "w"), "SECRET", WHY)
    assert lease.read(metadata_of(shop.config)).columns_left_out == ()


def test_statements_that_wait_are_asked_about_one_after_another(shop: Shop) -> None:
    shop.does("ALTER TABLE t ADD a INT", ("t", "id v a", "3", "30", "3"), "ALTER TABLE t ADD w INT DEFAULT 1")
    shop.sync()
    shop.does(("t", "id v a w", "4", "40", "4", "4"), "ALTER TABLE t ADD z INT DEFAULT 2")
    shop.sync()
    assert shop.waiting == ["adds 'a' int"]
    shop.answer(yes=False)
    shop.sync()
    assert (shop.waiting, shop.rows()[1:]) == (["adds 'w' int"], [(1, 10), (2, 20)])
    shop.answer(yes=True)
    shop.sync()
    assert (shop.waiting, shop.rows()[-1]) == (["adds 'z' int"], (3, 30, 1))
    shop.answer(yes=True)
    shop.sync()
    assert shop.rows() == [("id", "v", "w", "z"), (1, 10, 1, 2), (2, 20, 1, 2), (3, 30, 1, 2), (4, 40, 4, 2)]


def test_killed_between_the_answer_and_the_end_of_the_catch_up(shop: Shop) -> None:
    shop.does("ALTER TABLE t ADD n INT", ("t", "id v n", "3", "30", "3"))
    shop.sync()
    with mock.patch.object(Lease, "know_answers", side_effect=LakeError("killed")), pytest.raises(LakeError):
        shop.answer(yes=True)
    shop.sync()
    assert shop.waiting == ["adds 'n' int"]  # no answer is known
    shop.answer(yes=True)
    with pytest.raises(UsageError, match="is catching up"):
        shop.answer(yes=False)

    with killed_at("epoch committed"):
        shop.sync()
    shop.sync()
    assert (shop.rows()[-1], shop.status) == ((3, 30, 3), "following")


@pytest.mark.parametrize("yes", [True, False])
def test_killed_between_the_answer_and_the_watermark(shop: Shop, yes: bool) -> None:
    shop.does("ALTER TABLE t ADD n INT", ("t", "id v n", "3", "30", "5"))
    shop.sync()
    with killed_at("answer known"):
        shop.answer(yes=yes)
    assert (shop.status, shop.waiting) == ("stopped", [])
    shop.sync()
    names, last = (("id", "v", "n"), (3, 30, 5)) if yes else (("id", "v"), (3, 30))
    assert (shop.rows()[0], shop.rows()[-1], shop.status) == (names, last, "following")


def test_killed_between_a_no_that_freezes_and_the_watermark(shop: Shop) -> None:
    shop.does("ALTER TABLE t RENAME COLUMN v TO w", ("t", "id w", "3", "30"))
    shop.sync()
    with killed_at("answer known"):
        shop.answer(yes=False)
    for _ in range(2):
        shop.sync()
        row = next(row for row in watermarks.read(metadata_of(shop.config)) if row.name == T)
        assert (row.status, (row.reason or "").count("and the answer is no")) == ("stopped", 1)
    shop.answer(yes=True)
    shop.sync()
    assert (shop.rows()[-1], shop.status) == ((3, 30), "following")


@pytest.mark.parametrize("change", [{"reason": "{place}: it waits"}, {"frozen": None}], ids=["text", "older binlake"])
def test_a_frozen_table_is_known_by_a_field_and_in_an_older_row_by_its_reason(
    shop: Shop, change: dict[str, Any]
) -> None:
    shop.does("ALTER TABLE t RENAME COLUMN v TO w", ("t", "id w", "3", "30"))
    shop.sync()
    shop.answer(yes=False)
    metadata = metadata_of(shop.config)
    (row,) = (row for row in watermarks.read(metadata) if row.name == T)
    assert row.frozen
    place = ":".join((row.reason or "").split(":")[:2])
    written = {name: text and text.format(place=place) for name, text in change.items()}
    watermarks.write(metadata, [replace(row, **written)])
    with killed_at("answer known"):
        shop.answer(yes=True)
    shop.sync()
    assert (shop.rows()[-1], shop.status) == ((3, 30), "following")
    assert not next(row for row in watermarks.read(metadata) if row.name == T).frozen


def test_a_table_that_stops_at_the_answered_statement_for_another_reason_stays_stopped(shop: Shop) -> None:
    shop.does("ALTER TABLE t MODIFY v FLOAT")
    shop.sync()
    shop.answer(yes=True)
    shop.sync()
    stopped = watermarks.read(metadata_of(shop.config))
    assert "what INT became as FLOAT can't be proved" in next(row.reason or "" for row in stopped if row.name == T)
    shop.sync()
    assert watermarks.read(metadata_of(shop.config)) == stopped, "it went through the log again"


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_column_that_takes_an_excluded_ones_name_in_an_earlier_file_is_not_read(
    tmp_path: Path, flavour: Flavour
) -> None:
    with binlog.write(tmp_path / "log", flavour=flavour, file_mb=0.0001) as log:
        shop = Shop(tmp_path, log, policy="", excluded="shop.w.secret")
        shop.does("CREATE TABLE w (id INT PRIMARY KEY, secret VARCHAR(40), shown VARCHAR(40))")
        pipeline.bootstrap(shop.config, Folder(tmp_path / "log"), NoSession(), Report(quiet=True))
        shop.sync()
        shop.does("ALTER TABLE w RENAME COLUMN secret TO shown, RENAME COLUMN shown TO secret")
        _assert_not_read(shop, "zq77-it-was-secret")


def _assert_not_read(shop: Shop, secret: str) -> None:
    _insert(shop, 1, ("shown", "secret"), secret)
    assert _staged_of(shop, secret) == []
    assert len(list((shop.folder / "log").glob("*.0*"))) > 2, "the row is in another file than the statement"
    row = next(row for row in watermarks.read(metadata_of(shop.config)) if row.name.table == "w")
    assert (row.status, "masks or excludes" in (row.reason or "")) == ("stopped", True)


def _insert(shop: Shop, number: int, names: tuple[str, str], secret: str, table: str = "w") -> None:
    """Write a row, with the secret in the first of these columns."""
    texts = tuple(Column(name, "varchar", length=40, charset="utf8mb4") for name in names)
    made = WrittenTable(TableName("shop", table), (Column("id", "int"), *texts), ("id",))
    with shop.log.transaction() as transaction:
        transaction.insert(made, [{"id": number, names[0]: secret, names[1]: "it was shown"}])


def _staged_of(shop: Shop, secret: str) -> list[str]:
    """Carry a batch, and return the files that have the secret once it is staged."""
    written: list[str] = []

    def look(reached: FaultPoint) -> None:
        if reached == "manifest written":
            written.extend(found_in(shop.folder / "lake", [secret]))

    with mock.patch.object(faults, "at_point", look):
        shop.sync()
    return written


@pytest.mark.parametrize("withheld", ["excluded", "masked"])
def test_a_withheld_column_is_not_read_while_its_table_is_stopped_under_a_name_that_withholds_nothing(
    tmp_path: Path, withheld: str
) -> None:
    with binlog.write(tmp_path / "log", flavour="mysql") as log:
        shop = Shop(tmp_path, log, policy="", **{withheld: "shop.w.secret"})
        shop.does("CREATE TABLE w (id INT PRIMARY KEY, secret VARCHAR(40), shown VARCHAR(40))")
        pipeline.bootstrap(shop.config, Folder(tmp_path / "log"), NoSession(), Report(quiet=True))
        shop.sync()
        shop.does("RENAME TABLE w TO v")
        for number in (1, 2):
            _insert(shop, number, ("secret", "shown"), "zq77-it-was-secret", "v")
            assert _staged_of(shop, "zq77-it-was-secret") == []
            row = next(row for row in watermarks.read(metadata_of(shop.config)) if row.name.table == "v")
            assert row.status == "stopped"
            assert "'secret', which the YAML masks or excludes, is in a table of another name now" in (row.reason or "")


@pytest.mark.parametrize("withheld", ["excluded", "masked"])
@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE w ALTER secret SET DEFAULT 'zq77-it-was-secret', ADD n INT DEFAULT 5"],
        ["ALTER TABLE w MODIFY secret VARCHAR(40) COMMENT 'zq77-it-was-secret' /* zq77-it-was-secret */"],
        ["ALTER TABLE w MODIFY secret ENUM('zq77-it-was-secret', 'b')"],
        ["ALTER TABLE w ADD loud VARCHAR(90) AS (CONCAT(secret, 'zq77-it-was-secret')) STORED"],
        ["ALTER TABLE w CHANGE secret tok VARCHAR(40)", "ALTER TABLE w ALTER tok SET DEFAULT 'zq77-it-was-secret'"],
        ["RENAME TABLE w TO v", "ALTER TABLE v ALTER secret SET DEFAULT 'zq77-it-was-secret'"],
        ["ALTER TABLE w ADD PARTITION (PARTITION p VALUES IN ('zq77-it-was-secret'))"],
        ["INSERT INTO w VALUES (1, 'zq77-it-was-secret', 'x')"],
        ["INSERT INTO elsewhere.t VALUES (1, 'zq77-it-was-secret')"],
        ["CREATE TABLE elsewhere.t (id INT, v TEXT DEFAULT ('zq77-it-was-secret'))"],
        ["CREATE TABLE _w_gho LIKE w", "ALTER TABLE _w_gho ALTER secret SET DEFAULT 'zq77-it-was-secret'"],
    ],
    ids=[
        "default", "comment", "members", "generated", "column renamed", "table renamed", "partition",
        "statement format",
        "another database", "new table elsewhere", "tool's copy",
    ],
)  # fmt: skip
def test_statements_have_no_value_of_a_withheld_column(tmp_path: Path, statements: list[str], withheld: str) -> None:
    with binlog.write(tmp_path / "log", flavour="mysql") as log:
        shop = Shop(tmp_path, log, policy="", **{withheld: "shop.w.secret"})
        shop.does("CREATE TABLE w (id INT PRIMARY KEY, secret VARCHAR(40), shown VARCHAR(40))")
        pipeline.bootstrap(shop.config, Folder(tmp_path / "log"), NoSession(), Report(quiet=True))
        shop.sync()
        for statement in statements:  # in a batch each: what stopped before is known then
            shop.does(statement)
            assert _staged_of(shop, "zq77-it-was-secret") == []
            assert found_in(shop.folder / "lake", ["zq77-it-was-secret"]) == []


@pytest.mark.parametrize("withheld", ["excluded", "masked"])
def test_a_shape_has_no_value_of_a_withheld_column(tmp_path: Path, withheld: str) -> None:
    secret = "zq77-it-was-secret"
    with binlog.write(tmp_path / "log", flavour="mysql") as log:
        shop = Shop(tmp_path, log, policy="", **{withheld: "shop.w.secret"})
        shop.does(
            f"CREATE TABLE w (id INT PRIMARY KEY, secret ENUM('{secret}', 'b') DEFAULT '{secret}', shown VARCHAR(40),"
            f" loud INT AS (secret = '{secret}') STORED, CHECK (secret <> '{secret}'))"
        )
        pipeline.bootstrap(shop.config, Folder(tmp_path / "log"), NoSession(), Report(quiet=True))
        members = Column("secret", "enum", charset="utf8mb4", values=(secret, "b"))
        columns = (Column("id", "int"), members, Column("shown", "varchar", length=40, charset="utf8mb4"))
        with log.transaction() as transaction:
            row = {"id": 1, "secret": "b", "shown": "it was shown", "loud": 0}
            made = WrittenTable(TableName("shop", "w"), (*columns, Column("loud", "int")), ("id",))
            transaction.insert(made, [row])
        assert _staged_of(shop, secret) == []
        shop.does("ALTER TABLE w ADD n INT DEFAULT 5")
        shop.sync()
        assert shop.rows("w")[-1][-1] == 5, "it followed"
        shop.does(f"ALTER TABLE w MODIFY secret ENUM('{secret}', 'b', 'c')")
        assert _staged_of(shop, secret) == []
        assert found_in(shop.folder / "lake", [secret]) == []


def test_what_a_statement_says_of_other_columns_is_followed(tmp_path: Path) -> None:
    with binlog.write(tmp_path / "log", flavour="mysql") as log:
        shop = Shop(tmp_path, log, policy="", masked="shop.t.secret")
        shop.does("CREATE TABLE t (id INT PRIMARY KEY, secret INT, v INT)", ("t", "id secret v", "1", "9", "2"))
        pipeline.bootstrap(shop.config, Folder(tmp_path / "log"), NoSession(), Report(quiet=True))
        shop.sync()
        shop.does("ALTER TABLE t ALTER secret SET DEFAULT 77, ADD (n INT DEFAULT 5, m INT DEFAULT 7)")
        shop.sync()
        assert shop.rows() == [("id", "secret", "v", "n", "m"), (1, None, 2, 5, 7)]


def test_the_rows_of_a_stopped_table_are_staged_where_its_excluded_column_has_its_name(tmp_path: Path) -> None:
    with binlog.write(tmp_path / "log", flavour="mysql") as log:
        shop = Shop(tmp_path, log, policy="{tables: '*.*', add: freeze}", excluded="shop.w.secret")
        shop.does("CREATE TABLE w (id INT PRIMARY KEY, secret VARCHAR(40), shown VARCHAR(40))")
        pipeline.bootstrap(shop.config, Folder(tmp_path / "log"), NoSession(), Report(quiet=True))
        shop.sync()
        shop.does("ALTER TABLE w ADD third INT")
        shop.sync()
        made = [Column(name, "varchar", length=40, charset="utf8mb4") for name in ("secret", "shown")]
        table = WrittenTable(TableName("shop", "w"), (Column("id", "int"), *made, Column("third", "int")), ("id",))
        with log.transaction() as transaction:
            transaction.insert(table, [{"id": 1, "secret": "zq77", "shown": "it was shown", "third": 3}])
        assert _staged_of(shop, "it was shown")


@pytest.mark.parametrize("withheld", ["excluded", "masked"])
@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("ALTER TABLE w RENAME COLUMN secret TO other", ("other", "shown")),
        ("ALTER TABLE w RENAME COLUMN secret TO other, UNHEARD OF", ("other", "shown")),
        ("ALTER TABLE w RENAME COLUMN secret TO shown, RENAME COLUMN shown TO secret", ("shown", "secret")),
        ("ALTER TABLE w RENAME COLUMN secret TO shown, RENAME COLUMN shown TO secret, UNHEARD OF", ("shown", "secret")),
    ],
    ids=["renamed", "not understood", "swapped", "swapped, not understood"],
)
def test_a_withheld_column_that_got_another_name_is_not_read_while_its_table_is_stopped(
    tmp_path: Path, statement: str, names: tuple[str, str], withheld: str
) -> None:
    with binlog.write(tmp_path / "log", flavour="mysql") as log:
        shop = Shop(tmp_path, log, policy="", **{withheld: "shop.w.secret"})
        shop.does("CREATE TABLE w (id INT PRIMARY KEY, secret VARCHAR(40), shown VARCHAR(40))")
        pipeline.bootstrap(shop.config, Folder(tmp_path / "log"), NoSession(), Report(quiet=True))
        shop.sync()
        shop.does(statement)
        for number in (1, 2):
            _insert(shop, number, names, "zq77-it-was-secret")
            assert _staged_of(shop, "zq77-it-was-secret") == []
            row = next(row for row in watermarks.read(metadata_of(shop.config)) if row.name.table == "w")
            assert row.status == "stopped"


def test_a_no_to_a_new_column_that_has_another_name_in_the_lake(shop: Shop) -> None:
    shop.renamed = "{columns: shop.t.n, rename: m}"
    shop.does("ALTER TABLE t ADD n INT DEFAULT 7", ("t", "id v n", "3", "30", "3"))
    shop.sync()
    assert shop.waiting == ["adds 'm' int"]
    shop.answer(yes=False)
    shop.sync()
    shop.does("ALTER TABLE t ADD w INT DEFAULT 5", ("t", "id v n w", "4", "40", "4", "6"))
    shop.sync()
    assert shop.waiting == ["adds 'w' int"]
    shop.answer(yes=True)
    shop.sync()
    assert shop.rows() == [("id", "v", "w"), (1, 10, 5), (2, 20, 5), (3, 30, 5), (4, 40, 6)]


def test_a_no_without_an_exact_meaning_freezes_until_a_yes(shop: Shop) -> None:
    shop.does("ALTER TABLE t RENAME COLUMN v TO w, ADD n INT", ("t", "id w n", "3", "30", "3"))
    shop.sync()
    assert read_status(shop.config).waiting[0].held.no == "the table stays as it is, and follows no more"
    shop.answer(yes=False)
    shop.sync()
    assert (shop.status, shop.waiting) == ("stopped", [])
    with pytest.raises(UsageError, match="the answer is no"):
        shop.answer(yes=False)
    shop.answer(yes=True)
    shop.sync()
    assert shop.rows() == [("id", "w", "n"), (1, 10, None), (2, 20, None), (3, 30, 3)]


def test_a_table_that_waits_is_dropped_and_made_again(shop: Shop) -> None:
    shop.does("ALTER TABLE t ADD n INT")
    shop.sync()
    shop.does("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY)", ("t", "id", "7"))
    shop.sync()
    assert (shop.rows(), shop.waiting) == ([("id",), (7,)], [])
    with pytest.raises(UsageError, match=r"shop\.t is following"):
        shop.answer(yes=True)


def test_a_frozen_table_goes_on_once_the_policy_lets_it(shop: Shop) -> None:
    shop.policy = "{tables: shop.t, add: freeze}"
    shop.does("ALTER TABLE t ADD n INT", ("t", "id v n", "3", "30", "3"))
    shop.sync()
    assert (shop.status, shop.waiting, len(shop.rows())) == ("stopped", [], 3)
    shop.policy = ""
    pipeline.resume(shop.config, Folder(shop.folder / "log"), NoSession(), Report(quiet=True), T, WHY)
    assert (shop.rows()[-1], shop.status) == ((3, 30, 3), "following")
