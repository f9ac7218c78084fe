"""A table is copied while the others follow, and follows once it has gone through what it missed: SQL in, rows out."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from binlake import faults, pipeline
from binlake.errors import LeaseHeld, TableError, TablesCopied
from binlake.faults import FaultPoint
from binlake.interrupts import Ending
from binlake.lake.opened_lake import open_lake, place_of
from binlake.lease import copier, lease
from binlake.phases import resume
from binlake.phases.follow import FollowPace
from binlake.records import watermarks
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.snapshot import snapshot
from binlake.snapshot.snapshot import SnapshotTask
from binlake.source.server import Source
from mirror import WAYS, CutOff, Mirror, in_the_soak, on_mariadb, on_mysql, sync_alone
from no_session import NoSession
from servers import Server
from writers import writing

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

SECONDS = 60
XA = ("XA START 'x'", "INSERT INTO t VALUES (90, 90)", "XA END 'x'", "XA PREPARE 'x'")
FOLLOWS = ("INSERT INTO t VALUES (10, 10)", "UPDATE t SET v = -v WHERE id < 4", "DELETE FROM t WHERE id = 5")


@pytest.fixture
def mirror(server: Server, database: str, lake: Path) -> Mirror:
    """Table u follows, table t is there and was never copied."""
    mirror = Mirror(server, database, lake, None, options={"merge": WAYS[0]}, reader="direct")  # type: ignore[arg-type]
    mirror.exclude = [f"{database}.t"]
    mirror.execute("CREATE TABLE u (id INT PRIMARY KEY)", "CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    mirror.execute("INSERT INTO t VALUES " + ", ".join(f"({number}, {number})" for number in range(1, 10)))
    copy(mirror)
    mirror.exclude = []
    sync_alone(mirror)
    return mirror


def copy(mirror: Mirror, lock: str = "flush") -> None:
    pipeline.bootstrap(mirror.config, mirror.origin, NoSession(), Report(), lock=lock)  # type: ignore[arg-type]


@contextmanager
def at(point: FaultPoint, do: Callable[[], None]) -> Iterator[None]:
    """Do something when a copy comes to a point for the first time."""
    waiting = [do]

    def reached(here: FaultPoint) -> None:
        if here == point and waiting:
            waiting.pop()()

    with mock.patch.object(faults, "at_point", reached):
        yield
    assert not waiting, f"{point} wasn't reached"


def batches_of(mirror: Mirror, *batches: Sequence[str]) -> Callable[[], None]:
    """Return a function that carries a batch of table u and of some statements, for each of these."""

    def carry() -> None:
        for number, statements in enumerate(batches):
            mirror.execute(f"INSERT INTO u VALUES ({100 + number})", *statements)
            sync_alone(mirror)

    return carry


def assert_follows(mirror: Mirror, *tables: str) -> None:
    """Tables equal the server's, and after one more batch they are a part of the newest version as they are."""
    mirror.assert_equal(*tables)
    mirror.execute("INSERT INTO u VALUES (1000)")
    sync_alone(mirror)
    mirror.assert_equal(*tables)
    versions = open_lake(mirror.config).tables
    assert {table: versions[f"{mirror.database}.{table}"] for table in tables} == {
        table: mirror.version(table) for table in tables
    }


def test_others_follow_while_it_is_copied(mirror: Mirror) -> None:
    carried: list[int] = []

    def carry() -> None:
        batches_of(mirror, FOLLOWS, ["DELETE FROM t WHERE id = 6"], ["INSERT INTO t VALUES (5, 55)"], [])()
        mirror.assert_equal("u")
        carried.append(lease.read(mirror.metadata).batch)
        assert f"{mirror.database}.t" not in open_lake(mirror.config).tables

    with at("chunk copied", carry):
        copy(mirror)
    assert carried[0] >= 4
    assert mirror.watermark("t")["status"] == "following"
    assert open_lake(mirror.config).tables[f"{mirror.database}.t"] == mirror.version("t")
    assert_follows(mirror, "t", "u")


@on_mysql
@pytest.mark.parametrize("meanwhile", [(), ("UPDATE t SET v = v + 1",)], ids=["left alone", "written"])
def test_it_is_missing_only_while_no_run_copies_it(mirror: Mirror, meanwhile: Sequence[str]) -> None:
    condition = "table = 't'"
    mirror.metadata.replace("watermarks", condition, [])

    def statuses() -> set[str]:
        mirror.execute("INSERT INTO u SELECT COALESCE(MAX(id), 0) + 1000 FROM u", *meanwhile)
        sync_alone(mirror)
        return {row["status"] for row in mirror.metadata.read("watermarks", ["status"], where=condition)}

    with at("chunk copied", lambda: seen.append(statuses())):
        seen: list[set[str]] = []
        copy(mirror)
    assert seen == [set()]
    mirror.metadata.replace("watermarks", condition, [])
    assert statuses() == {"missing"}


@pytest.mark.parametrize(
    "meanwhile",
    [
        ["ALTER TABLE t ADD w INT DEFAULT 7", "INSERT INTO t VALUES (11, 1, 2)"],
        ["ALTER TABLE t DROP v, ADD x VARCHAR(9)", "UPDATE t SET x = 'é'"],
        ["TRUNCATE t", "INSERT INTO t VALUES (1, 2)"],
        ["RENAME TABLE t TO s, s TO t", "INSERT INTO t VALUES (12, 12)"],
    ],
    ids=["add", "drop", "truncate", "rename twice"],
)
def test_its_shape_changes_behind_the_copy(mirror: Mirror, meanwhile: list[str]) -> None:
    with at("chunks written", batches_of(mirror, FOLLOWS, meanwhile, ["DELETE FROM t WHERE id = 10"])):
        copy(mirror)
    assert_follows(mirror, "t", "u")


def test_an_xa_transaction_over_batches_that_it_missed(mirror: Mirror) -> None:
    with at("chunks written", batches_of(mirror, XA, FOLLOWS, ["XA COMMIT 'x'"], [])):
        copy(mirror)
    assert_follows(mirror, "t", "u")


def test_an_xa_transaction_that_ends_later(mirror: Mirror) -> None:
    with at("chunks written", batches_of(mirror, XA, FOLLOWS)):
        copy(mirror)
    mirror.execute("XA COMMIT 'x'", "INSERT INTO u VALUES (7)")
    sync_alone(mirror)
    assert_follows(mirror, "t", "u")


def test_a_table_without_a_key(mirror: Mirror) -> None:
    mirror.execute("ALTER TABLE t DROP PRIMARY KEY", "INSERT INTO t VALUES (1, 1)")
    with at("chunks written", batches_of(mirror, FOLLOWS, ["INSERT INTO t VALUES (1, 1)"], ["UPDATE t SET v = 3"])):
        copy(mirror)
    assert_follows(mirror, "t", "u")


@pytest.mark.parametrize("lock", ["none", "tables"])
def test_without_a_global_lock(mirror: Mirror, lock: str) -> None:
    with at("chunk copied", batches_of(mirror, FOLLOWS, ["INSERT INTO t VALUES (11, 1)"])):
        copy(mirror, lock)
    assert_follows(mirror, "t", "u")


@on_mysql
def test_a_table_that_is_dropped_and_made_anew_meanwhile(mirror: Mirror) -> None:
    again = ["DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 7)"]
    with at("chunks written", batches_of(mirror, FOLLOWS, again)), pytest.raises(TableError, match="made again"):
        copy(mirror)
    assert_follows(mirror, "t", "u")


@on_mysql
def test_a_table_that_is_dropped_meanwhile(mirror: Mirror) -> None:
    with at("chunks written", batches_of(mirror, ["DROP TABLE t"])), pytest.raises(TableError, match="dropped"):
        copy(mirror)
    assert f"{mirror.database}.t" not in open_lake(mirror.config).tables
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", *FOLLOWS)
    sync_alone(mirror)
    assert_follows(mirror, "t", "u")


@on_mysql
def test_a_table_that_a_sync_asked_for(mirror: Mirror) -> None:
    copy(mirror)
    mirror.execute("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 2")
    mirror.execute("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    sync_alone(mirror)
    mirror.execute("ALTER TABLE t TRUNCATE PARTITION p0")
    with at("chunks written", batches_of(mirror, FOLLOWS, ["INSERT INTO t VALUES (11, 1)"])):
        sync_alone(mirror)
    assert_follows(mirror, "t", "u")


POINTS: tuple[FaultPoint, ...] = (
    "chunk copied", "chunks written", "commit begun", "rows committed", "snapshot committed",
    "bootstrap noted", "lives begun",
    "slice staged", "epoch committed", "table merged",
)  # fmt: skip


IN_TURN = list(zip(POINTS, ["snapshot", "sync"] * len(POINTS), strict=False))
IN_THE_SOAK = list(zip(POINTS, ["sync", "snapshot"] * len(POINTS), strict=False))


@pytest.mark.parametrize(("point", "continues"), [*IN_TURN, *in_the_soak(*IN_THE_SOAK)])
@on_mysql
def test_cut_off_anywhere_it_follows_in_the_end(mirror: Mirror, point: FaultPoint, continues: str) -> None:
    batches = batches_of(mirror, XA, FOLLOWS, ["XA COMMIT 'x'"], ["ALTER TABLE t ADD w INT DEFAULT 7"])
    count = 0

    def reached(here: FaultPoint) -> None:
        nonlocal count
        if here == "chunk copied" and count == 0:
            count = 1
            batches()
            count = 2
        if here == point and count == 2:
            count = 3
            raise CutOff(point)

    with mock.patch.object(resume, "_TURN", 0.0):
        with mock.patch.object(faults, "at_point", reached), pytest.raises(CutOff):
            copy(mirror)
        mirror.execute("INSERT INTO t (id, v) VALUES (12, 12)")
        sync_alone(mirror)
        if continues == "snapshot" or mirror.watermark("t")["status"] != "following":
            copy(mirror)
    sync_alone(mirror)
    assert_follows(mirror, "t", "u")
    assert watermarks.catching_up(mirror.metadata) == []


@on_mysql
def test_of_two_that_copy_one_waits(mirror: Mirror) -> None:
    with copier.held(mirror.metadata), pytest.raises(TablesCopied, match="copies tables of this source since"):
        copy(mirror)
    copy(mirror)
    assert_follows(mirror, "t", "u")


@on_mysql
def test_an_open_batch_is_waited_for(mirror: Mirror) -> None:
    def leave_open() -> None:
        mirror.execute(*FOLLOWS)
        with mirror.cut_off_at("merged"):
            sync_alone(mirror)

    with at("chunks written", leave_open), pytest.raises(LeaseHeld, match="is open"):
        copy(mirror)
    sync_alone(mirror)
    copy(mirror)
    assert_follows(mirror, "t", "u")


@on_mysql
def test_an_hourly_sync_is_waited_for(mirror: Mirror) -> None:
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lease.held(mirror.metadata):
            held.set()
            release.wait(SECONDS)

    holder = threading.Thread(target=hold)

    def hold_for_a_second() -> None:
        batches_of(mirror, FOLLOWS)()
        holder.start()
        held.wait(SECONDS)
        threading.Timer(1, release.set).start()

    with at("chunks written", hold_for_a_second):
        copy(mirror)
    holder.join()
    assert_follows(mirror, "t", "u")


@on_mysql
def test_batches_that_leave_its_shape_as_it_is_note_none(mirror: Mirror) -> None:
    with at("chunks written", batches_of(mirror, FOLLOWS, ["ALTER TABLE t ADD w INT"], ["DELETE FROM t WHERE id = 1"])):
        copy(mirror)
    shapes = mirror.metadata.read("schemas", ["table", "batch"], where=f"\"database\" = '{mirror.database}'")
    assert len([shape for shape in shapes if shape["table"] == "t"]) == 2
    assert_follows(mirror, "t", "u")


@on_mariadb
def test_history_and_log_are_begun_under_the_lease(mirror: Mirror) -> None:
    mirror.modes = [{"tables": "*.t", "log": {}}]
    with at("chunk copied", lambda: _assert_held(mirror)):
        copy(mirror)
    assert_follows(mirror, "t", "u")


def _assert_held(mirror: Mirror) -> None:
    with pytest.raises(LeaseHeld):
        sync_alone(mirror)


class Follower(threading.Thread):
    """A thread that follows until it is ended."""

    def __init__(self, mirror: Mirror) -> None:
        super().__init__(daemon=True)
        self.said = io.StringIO()
        self._mirror, self._ending = mirror, Ending()

    def run(self) -> None:
        pace = FollowPace(every=0.1, spark_idle=60, duration=SECONDS)
        report, mirror = Report(self.said), self._mirror
        pipeline.follow(lambda: mirror.config, mirror.origin, NoSession(), report, pace, self._ending)

    def end(self) -> None:
        self._ending.ask()
        self.join()


@pytest.fixture
def follower(mirror: Mirror) -> Iterator[Follower]:
    follower = Follower(mirror)
    follower.start()
    yield follower
    follower.end()


def until(is_so: Callable[[], object], said: Callable[[], str] = str) -> None:
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < SECONDS, said()
        time.sleep(0.05)


def transfer(cursor: Cursor, number: int) -> None:
    """Move money from an account of table u to one of table t, or back, and let a row of each come and go."""
    for statement in (
        f"UPDATE t SET v = v + {number % 9 - 4} WHERE id = {1 + number % 9}",
        f"UPDATE u SET v = v - {number % 9 - 4} WHERE id = {1 + number * 7 % 9}",
        f"REPLACE INTO t VALUES ({100 + number % 5}, 0)",
        f"DELETE FROM t WHERE id = {100 + number % 3}",
    ):
        cursor.execute(statement)
    time.sleep(0.005)


@contextmanager
def bank(mirror: Mirror) -> Iterator[None]:
    """Tables t and u have accounts, between which money moves."""
    mirror.execute(
        "ALTER TABLE u ADD v INT", "INSERT INTO u (id, v) VALUES " + ", ".join(f"({n}, 5)" for n in range(1, 10))
    )
    with writing(mirror, transfer):
        yield


def assert_all_the_money(mirror: Mirror) -> int:
    """Each version that has both tables has all the money; return how many do."""
    place, both = place_of(mirror.config), 0
    for version in place.versions():
        if f"{mirror.database}.t" in version.contents:
            both += 1
            sums = "SELECT (SELECT sum(v) FROM {0}.t) + (SELECT sum(v) FROM {0}.u) AS total"
            totals = place.at(batch=version.batch).sql(sums.format(mirror.database)).to_pylist()
            assert totals == [{"total": 45 + 45}], version.batch
    return both


@pytest.mark.parametrize("chunk_rows", [3, 1_000_000], ids=["in waves", "at once"])
def test_each_version_is_consistent_while_it_is_copied_and_catches_up(
    mirror: Mirror, follower: Follower, chunk_rows: int
) -> None:
    seen: list[int] = []

    def slowly(point: FaultPoint) -> None:
        if point == "chunks written":
            before = batch_of(mirror)
            until(lambda: batch_of(mirror) >= before + 3, follower.said.getvalue)
            seen.append(batch_of(mirror) - before)

    mirror.options["snapshot"] = {"reader": "direct", "connections": 1}
    with bank(mirror), ExitStack() as patched:
        patched.enter_context(mock.patch.object(faults, "at_point", slowly))
        patched.enter_context(mock.patch.object(resume, "_TURN", 0.1))
        patched.enter_context(mock.patch.object(snapshot, "SnapshotTask", partial(SnapshotTask, chunk_rows=chunk_rows)))
        copy(mirror)
        assert mirror.watermark("t")["status"] == "following", follower.said.getvalue()
        before = batch_of(mirror)
        until(lambda: batch_of(mirror) >= before + 3, follower.said.getvalue)
    until(lambda: stands_at_head(mirror))
    follower.end()
    assert sum(seen) >= 3
    mirror.assert_equal("t", "u")
    assert assert_all_the_money(mirror) >= 3


def test_a_follower_goes_on_while_a_table_is_snapshotted_for_which_a_batch_asked(
    mirror: Mirror, follower: Follower
) -> None:
    copy(mirror)
    mirror.execute("ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 2")
    seen: list[int] = []

    def slowly(point: FaultPoint) -> None:
        if point == "chunks written":
            before = batch_of(mirror)
            until(lambda: batch_of(mirror) >= before + 3, follower.said.getvalue)
            seen.append(before)

    with bank(mirror), mock.patch.object(faults, "at_point", slowly):
        mirror.execute("ALTER TABLE t TRUNCATE PARTITION p0")
        until(lambda: seen and mirror.watermark("t")["status"] == "following", follower.said.getvalue)
    until(lambda: stands_at_head(mirror))
    follower.end()
    mirror.assert_equal("t", "u")


def batch_of(mirror: Mirror) -> int:
    return lease.read(mirror.metadata).batch


def stands_at_head(mirror: Mirror) -> bool:
    position = lease.read(mirror.metadata).position
    with Source.open(mirror.endpoint) as source:
        return position is not None and (position.file, position.offset) == source.head()[:2]


@on_mysql
def test_a_table_that_somebody_resumes_or_decides_about_meanwhile(mirror: Mirror) -> None:
    name = TableName(mirror.database, "t")

    def killed_before_it_caught_up() -> None:
        with mock.patch.object(resume, "follow_again", side_effect=CutOff("staged")), pytest.raises(CutOff):
            copy(mirror)

    with at("chunks written", batches_of(mirror, FOLLOWS)):
        killed_before_it_caught_up()
    assert watermarks.catching_up(mirror.metadata) == [name]
    take_turn = resume._take_turn

    def others_first(*arguments: Any) -> str:
        with mock.patch.object(resume, "_take_turn", take_turn):
            pipeline.resume(mirror.config, mirror.origin, NoSession(), Report(), name, Reason("tests", "to see"))
        return take_turn(*arguments)

    with mock.patch.object(resume, "_take_turn", others_first):
        sync_alone(mirror)
    assert_follows(mirror, "t", "u")


@on_mariadb
def test_a_table_that_cascades_change_by_now_stops_until_it_is_copied_again(mirror: Mirror) -> None:
    mirror.options["policies"] = {"on_unlogged_cascade": "derive"}
    mirror.exclude = [f"{mirror.database}.t"]
    mirror.execute("CREATE TABLE p (id INT PRIMARY KEY)", "INSERT INTO p VALUES (1)", "UPDATE t SET v = 1")
    sync_alone(mirror)
    mirror.exclude = []
    key = "ALTER TABLE t ADD FOREIGN KEY (v) REFERENCES p (id) ON DELETE CASCADE"
    with at("chunks written", batches_of(mirror, [key], [])), pytest.raises(TableError, match="can't catch up"):
        copy(mirror)
    assert mirror.watermark("t")["status"] == "stopped"
    copy(mirror)
    mirror.execute("DELETE FROM p")
    sync_alone(mirror)
    assert_follows(mirror, "t", "u")
