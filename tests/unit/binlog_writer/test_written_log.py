"""A log of one's own: written, cut off, continued; read on and on, through handlers, and by the README's program."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from binlake import binlog
from binlake.binlog.border import Mutations, RolledBack, Statement, XaEvent
from binlake.binlog.content_handlers import ContentHandler, HandledEvent, HandledItem
from binlake.binlog.listing import Event
from binlake.binlog_writer.log_writer import Head
from binlake.binlog_writer.written_log import WrittenLog, WrittenTable
from binlake.errors import PositionLost, UsageError
from binlake.position import Flavour
from binlake.schema.invalid import FAIL
from binlake.schema.table import Column, TableName

README = Path(binlog.__file__).with_name("README.md")
LOGS = Path(__file__).parents[2] / "binlogs"
COLUMNS = (
    Column("id", "int", nullable=False), Column("title", "varchar", length=200, charset="utf8mb4"),
    Column("body", "text", charset="utf8mb4"),
)  # fmt: skip
POSTS = WrittenTable(TableName("blog", "posts"), COLUMNS, ("id",))
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
FIRST, SECOND = 1_700_000_000_000_000, 1_700_000_001_000_000


def post(number: int, title: str = "title", body: str | None = "body") -> dict[str, Any]:
    return {"id": number, "title": title, "body": body}


def fill(log: WrittenLog, gtids: tuple[str, str, str] | tuple[None, None, None] = (None, None, None)) -> None:
    log.statement("CREATE TABLE posts (id INT PRIMARY KEY)", database="blog", gtid=gtids[0], committed_us=FIRST)
    with log.transaction(gtids[1], FIRST) as transaction:
        transaction.insert(POSTS, [post(1), post(2, "zwei", None)])
        transaction.update(POSTS, [(post(1), post(1, "eins"))])
    with log.transaction(gtids[2], SECOND) as transaction:
        transaction.delete(POSTS, [post(2, "zwei", None)])


def rows(folder: Path, start: str | None = None) -> list[tuple[int, Any, Any]]:
    batches = binlog.open(folder.as_uri(), start).batches("blog", "posts")
    return [(row["op"], row["before"], row["after"]) for batch in batches for row in batch.to_pylist()]


WRITTEN = [
    (1, None, post(1)), (1, None, post(2, "zwei", None)), (2, post(1), post(1, "eins")),
    (3, post(2, "zwei", None), None),
]  # fmt: skip


@pytest.mark.parametrize(("flavour", "gtids"), [
    ("mysql", (None, None, None)),
    ("mysql", (f"{UUID}:1", f"{UUID}:2", f"{UUID}:3")),
    ("mariadb", ("0-1-1", "0-1-2", "0-1-3")),
])  # fmt: skip
def test_what_is_written_is_read(tmp_path: Path, flavour: Flavour, gtids: Any) -> None:
    with binlog.write(tmp_path, flavour=flavour) as log:
        fill(log, gtids)
        assert log.position() == f"binlog.000001:{(tmp_path / 'binlog.000001').stat().st_size}"
    assert rows(tmp_path) == WRITTEN
    (statement,) = (item for item in binlog.open(tmp_path.as_uri()).mutations() if isinstance(item, Statement))
    assert (statement.database, statement.text, statement.committed_us // 10**6) == (
        "blog", "CREATE TABLE posts (id INT PRIMARY KEY)", FIRST // 10**6
    )  # fmt: skip
    if gtids[0]:
        assert rows(tmp_path, ",".join(gtids[:2]) if flavour == "mysql" else gtids[1]) == WRITTEN[3:]


def test_a_log_is_gone_on_with_and_begins_another_file_when_one_is_full(tmp_path: Path) -> None:
    with binlog.write(tmp_path) as log:
        fill(log, (f"{UUID}:1", f"{UUID}:2", f"{UUID}:3"))
    with binlog.write(tmp_path, file_mb=0.0001) as log, log.transaction(f"{UUID}:4") as transaction:
        transaction.insert(POSTS, [post(3)])
    assert (tmp_path / "binlog.index").read_text() == "./binlog.000001\n./binlog.000002\n"
    assert rows(tmp_path) == [*WRITTEN, (1, None, post(3))]
    events = list(binlog.open(tmp_path.as_uri()).events())
    (rotate,) = (event for event in events if event.name == "ROTATE")
    assert rotate.detail == {"file": "binlog.000002", "offset": 4}
    before = [event.detail["gtids"] for event in events if event.name == "PREVIOUS_GTIDS"]
    assert before == ["", f"{UUID}:1-3"]


def test_rows_are_written_as_a_log_gives_them(tmp_path: Path) -> None:
    """Dates have a column beside them for values that no calendar has, unless such values are refused."""
    dated = WrittenTable(TableName("blog", "dated"), (COLUMNS[0], Column("at", "timestamp")), ("id",))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with binlog.write(tmp_path / "one") as log, log.transaction() as transaction:
        transaction.insert(dated, [{"id": 1, "at": at}])
    (item,) = binlog.open((tmp_path / "one").as_uri()).mutations()
    (refusing,) = binlog.open((tmp_path / "one").as_uri()).mutations(invalid=FAIL)
    assert isinstance(item, Mutations)
    assert isinstance(refusing, Mutations)
    with binlog.write(tmp_path / "two") as log, log.transaction() as transaction:
        transaction.mutations(item)
        transaction.mutations(refusing, FAIL)
        with pytest.raises(UsageError, match="have other columns than the table: at__"):
            transaction.mutations(refusing)
        with pytest.raises(UsageError, match="have other columns than the table: at__"):
            transaction.mutations(item, FAIL)
    (batch,) = binlog.open((tmp_path / "two").as_uri()).batches("blog", "dated")
    assert [(row["id"], row["at"]) for row in batch.column("after").to_pylist()] == [(1, at), (1, at)]


def test_what_fails_or_is_cut_off_is_not_in_the_log(tmp_path: Path) -> None:
    with binlog.write(tmp_path) as log:
        fill(log)
        with suppress(ZeroDivisionError), log.transaction() as transaction:
            transaction.insert(POSTS, [post(7)])
            raise ZeroDivisionError
        end = log.position()
        for database, text in (
            ("blog", "CREATE TABLE a (id INT COMMENT '\ud800')"),
            ("d" * 256, "CREATE TABLE a (id INT)"),
        ):
            with pytest.raises((UnicodeEncodeError, struct.error)):
                log.statement(text, database=database)
        assert log.position() == end
        with pytest.raises(UsageError, match="another process writes"):
            binlog.write(tmp_path)
        with log.transaction() as transaction:
            transaction.insert(POSTS, [post(8)])
    file = tmp_path / "binlog.000001"
    os.truncate(file, file.stat().st_size - 9)  # of the last transaction's end
    with binlog.write(tmp_path) as log, log.transaction() as transaction:
        transaction.insert(POSTS, [post(9)])
    assert rows(tmp_path) == [*WRITTEN, (1, None, post(9))]
    kinds = [event.name for event in binlog.open(tmp_path.as_uri()).events()]
    assert kinds.count("ANONYMOUS_GTID") == 4, "none without its transaction"


def index_of(folder: Path) -> list[str]:
    return (folder / "binlog.index").read_text().split()


def write_one(folder: Path, number: int, **options: Any) -> None:
    with binlog.write(folder, **options) as log, log.transaction() as transaction:
        transaction.insert(POSTS, [post(number)])


def test_a_log_whose_oldest_files_were_removed_goes_on_with_the_next_number(tmp_path: Path) -> None:
    with binlog.write(tmp_path, file_mb=0.0001) as log:
        fill(log)
    (tmp_path / "binlog.000001").unlink()
    (tmp_path / "binlog.index").write_text("./binlog.000002\n./binlog.000003\n")
    write_one(tmp_path, 3, file_mb=0.0001)
    assert index_of(tmp_path) == ["./binlog.000002", "./binlog.000003", "./binlog.000004"]
    assert rows(tmp_path) == [*WRITTEN, (1, None, post(3))]


def test_files_that_the_index_does_not_list_are_not_written_over(tmp_path: Path) -> None:
    with binlog.write(tmp_path, file_mb=0.0001) as log:
        fill(log)
    index = tmp_path / "binlog.index"
    index.write_text("./binlog.000001\n./binlog.000002\n")
    with pytest.raises(UsageError, match=r"has a binlog.000003 that binlog.index doesn't list"):
        write_one(tmp_path, 3, file_mb=0.0001)
    index.unlink()
    with pytest.raises(UsageError, match="has binlog files, and no index that lists them"):
        binlog.write(tmp_path)
    assert rows(tmp_path) == WRITTEN, "read as before, in the order of their numbers"


def test_a_killed_process_may_have_begun_a_file(tmp_path: Path) -> None:
    with binlog.write(tmp_path) as log:
        fill(log)
    with binlog.write(tmp_path, file_mb=0.0001) as log:
        log._writer_of(Head(SECOND))
    (tmp_path / "binlog.index").write_text("./binlog.000001\n")
    with binlog.write(tmp_path) as log:
        assert log.position() == f"binlog.000001:{(tmp_path / 'binlog.000001').stat().st_size}"
    write_one(tmp_path, 3)
    assert index_of(tmp_path) == ["./binlog.000001", "./binlog.000002"]
    assert rows(tmp_path) == [*WRITTEN, (1, None, post(3))]


@pytest.mark.parametrize("name", ["mysql-plain", "mysql-checksum-none", "mariadb-plain", "mariadb-checksum-none"])
def test_a_servers_log_is_gone_on_with_in_a_file_of_its_own(tmp_path: Path, name: str) -> None:
    shutil.copy(LOGS / f"{name}.000001", tmp_path / f"{name}.000001")
    (tmp_path / "server-bin.index").write_text(f"./{name}.000001\n")
    before = list(binlog.open(tmp_path.as_uri()).events())
    for number in (3, 4):
        write_one(tmp_path, number)
    assert (tmp_path / "server-bin.index").read_text() == f"./{name}.000001\n./{name}.000002\n"
    assert (tmp_path / f"{name}.000001").read_bytes() == (LOGS / f"{name}.000001").read_bytes()
    assert list(binlog.open(tmp_path.as_uri()).events())[: len(before)] == before
    assert rows(tmp_path) == [(1, None, post(3)), (1, None, post(4))]


def test_a_log_is_copied_through_handlers(tmp_path: Path) -> None:
    class Louder(ContentHandler):
        def statement(self, item: Statement) -> HandledItem:
            return None

        def mutations(self, item: Mutations) -> HandledItem:
            return [item, item]

    with binlog.write(tmp_path / "one") as log:
        fill(log)
    with binlog.write(tmp_path / "two") as copy:
        for item in binlog.open((tmp_path / "one").as_uri(), handlers=[Louder()]).mutations():
            assert isinstance(item, Mutations)
            with copy.transaction() as transaction:
                transaction.mutations(item)
    assert rows(tmp_path / "two") == [*WRITTEN, *WRITTEN]


def test_handlers_drop_change_and_inject_events(tmp_path: Path) -> None:
    class Quiet(ContentHandler):
        def commit(self, event: Event) -> HandledEvent:
            return None

        def rows(self, event: Event) -> HandledEvent:
            return replace(event, detail={"table": event.detail["table"].upper()})

        def query(self, event: Event) -> HandledEvent:
            return (event, replace(event, name="COMMENT", kind=255))

    class Last(ContentHandler):
        def other(self, event: Event) -> HandledEvent:
            return replace(event, name="LATER") if event.kind == 255 else event

    with binlog.write(tmp_path) as log:
        fill(log)
    plain = [event.name for event in binlog.open(tmp_path.as_uri()).events()]
    events = list(binlog.open(tmp_path.as_uri(), handlers=[Quiet(), Last()]).events())
    names = [event.name for event in events]
    assert [name for name in names if name != "LATER"] == [name for name in plain if name != "XID"]
    assert names.count("LATER") == names.count("QUERY") == 3
    assert {event.detail["table"] for event in events if "WRITE" in (event.name or "")} == {"BLOG.POSTS"}


def test_an_event_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    with binlog.write(tmp_path) as log:
        fill(log)
        with binlog.open(tmp_path.as_uri(), follow=True, every=0.01) as followed:
            for _ in binlog.open(tmp_path.as_uri()).events():
                assert followed.next_event() is not None
            end = followed.position()
            assert end == log.position()

            def write() -> None:
                time.sleep(0.1)
                with log.transaction() as transaction:
                    transaction.insert(POSTS, [post(5)])

            writing = threading.Thread(target=write)
            writing.start()
            names = [event.name for event in islice(followed.events(), 5)]
            writing.join()
            assert names == ["ANONYMOUS_GTID", "QUERY", "TABLE_MAP", "WRITE_ROWS", "XID"]
            assert followed.position() == log.position()
            followed.set_position(end)
            assert [event.name for event in islice(followed.events(), 4)] == names[:4]
            assert followed.position() == end, "the transaction isn't whole yet"
            with pytest.raises(UsageError):
                followed.set_position("somewhere")
            followed.close()
            assert followed.next_event() is None
    assert rows(tmp_path, end) == [(1, None, post(5))]


def test_a_place_that_the_log_does_not_reach_is_not_waited_for(tmp_path: Path) -> None:
    with binlog.write(tmp_path) as log:
        fill(log)
    with binlog.open(tmp_path.as_uri(), follow=True, every=0.01) as followed:
        closing_late = threading.Timer(120, followed.close)
        closing_late.start()
        for place in ("binlog.000001:99999", "binlog.000002:4"):
            followed.set_position(place)
            with pytest.raises(PositionLost, match=f"ends at {log.position()}, before {place}"):
                followed.next_event()
            with pytest.raises(PositionLost):
                next(followed.portions())
        followed.set_position("binlog.000001:4")
        assert followed.next_event() is not None
        closing_late.cancel()


def test_portions_end_between_transactions(tmp_path: Path) -> None:
    with binlog.write(tmp_path, file_mb=0.0001) as log:
        fill(log)
        with binlog.open(tmp_path.as_uri(), follow=True, every=0.01) as followed:
            portions = followed.portions(lambda database, table: table == "posts")
            places: list[str] = []
            given: list[Any] = []
            while len(given) < 4:
                portion = next(portions)
                places.append(followed.position())
                given += [row for item in portion if isinstance(item, Mutations) for row in item.batch.to_pylist()]
            assert [(row["op"], row["before"], row["after"]) for row in given] == WRITTEN
            assert places == sorted(places)
            threading.Timer(0.05, followed.close).start()
            assert list(portions) == []


def until(is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def readmes_program() -> str:
    programs: list[str] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (program,) = (text for text in programs if "fts5" in text)
    return program


@pytest.mark.parametrize(
    "item", [XaEvent("binlog.000001", 99, "X'71',X'',1", "prepared"), RolledBack("binlog.000001", (9, 0), (99, 0))]
)
def test_the_readmes_index_takes_no_rows_that_arent_the_servers(tmp_path: Path, item: Any) -> None:
    program: dict[str, Any] = {"__name__": "index"}
    exec(readmes_program(), program)
    with closing(program["opened"](tmp_path / "index.sqlite")) as index:
        with pytest.raises(SystemExit, match="before here"):
            program["take"](index, [item], "here")
        index.rollback()
        assert index.execute("SELECT * FROM place").fetchall() == []


def test_the_readmes_index_is_as_fresh_as_the_log_whatever_is_killed(tmp_path: Path) -> None:
    program = readmes_program()
    assert program.count("\n") <= 60
    script, index = tmp_path / "index.py", tmp_path / "index.sqlite"
    script.write_text(program)

    def places_of(words: str) -> list[int]:
        try:
            with sqlite3.connect(f"file:{index}?mode=ro", uri=True) as reading:
                query = "SELECT rowid FROM posts WHERE posts MATCH ? ORDER BY rowid"
                return [number for (number,) in reading.execute(query, [words])]
        except sqlite3.OperationalError:  # it isn't made yet
            return []

    def started() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(script), (tmp_path / "log").as_uri(), str(index)])

    with binlog.write(tmp_path / "log") as log:
        fill(log)
        running = started()
        try:
            until(lambda: places_of("eins") == [1])
            with log.transaction() as transaction:
                transaction.insert(POSTS, [post(number, "Replikation", f"row {number}") for number in (3, 4, 5)])
            until(lambda: places_of("repl*") == [3, 4, 5])
            running.kill()
            running.wait()
            with log.transaction() as transaction:
                transaction.delete(POSTS, [post(4, "Replikation", "row 4")])
                transaction.update(POSTS, [(post(1, "eins"), post(6, "uno"))])
            running = started()
            until(lambda: places_of("uno") == [6])
            assert (places_of("repl*"), places_of("eins"), places_of("zwei")) == ([3, 5], [], [])
        finally:
            running.kill()
            running.wait()
