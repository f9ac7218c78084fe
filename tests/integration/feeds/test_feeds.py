"""Feeds: SQL in, messages out, from the staging alone."""

from __future__ import annotations

import json
import random
import re
import sys
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar, cast

import pytest

from binlake.cli import command_line
from binlake.config import feed_config
from binlake.errors import FeedError
from binlake.feeds import outlet as carrying
from binlake.feeds.carry import Parts, carry
from binlake.feeds.positions import TablePositions
from binlake.feeds.registry import make_format
from binlake.feeds.sinks.topic_files import FileSink
from binlake.records import feed_watermarks
from binlake.records.feed_watermarks import FeedLimits, FeedPosition
from binlake.store.metadata import metadata_of
from feeding import Kept, carried, feed, lines, plain_lines
from mirror import Mirror, on_mariadb, on_mysql

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from binlake.faults import FaultPoint


def staged(mirror: Mirror) -> set[int]:
    return feed_watermarks.staged_batches(mirror.config)


@on_mysql
def test_an_event_that_nobody_can_decode_is_not_passed_over_in_silence(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    config = feed(mirror)
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY, d DATE)", "INSERT INTO a VALUES (1, '2026-01-01')")
    mirror.sync()
    mirror.execute("SET sql_mode = ''", "INSERT INTO a VALUES (2, '0000-00-00')", "INSERT INTO a VALUES (3, NULL)")
    mirror.sync()
    with pytest.raises(FeedError, match="a date that no calendar has") as stopped:
        carried(mirror, config)
    assert "--restart-from lake" in stopped.value.remedy
    capsys.readouterr()
    tail = ["tail", "--config", str(mirror.write_yaml())]
    assert command_line.run(tail) == 3
    assert "→ print other tables alone: --table DB.T; or begin behind it: --from 3" in capsys.readouterr().err
    assert plain_lines(mirror) == [
        "CREATE TABLE: CREATE TABLE a (id INT PRIMARY KEY, d DATE)", 'insert a {"id": 1} {"id": 1, "d": "2026-01-01"}'
    ]  # fmt: skip
    run = carried(mirror, feed(mirror, on_error="skip"))
    assert "left out: binlog" in run.message
    assert plain_lines(mirror)[2:] == ['insert a {"id": 3} {"id": 3, "d": null}']
    (status,) = feed_watermarks.statuses(mirror.config, metadata_of(mirror.config))
    assert (status.left_out, "a date that no calendar has" in status.last_left_out) == (1, True)


@on_mysql
def test_rows_that_came_before_the_feed_or_do_not_fit_its_condition_are_left_out_where_asked(mirror: Mirror) -> None:
    config = feed(mirror, where="v = 'y'")
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9))", "CREATE TABLE n (id INT PRIMARY KEY, v INT)",
        "XA START 'x'", "INSERT INTO a VALUES (1, 'y')", "XA END 'x'", "XA PREPARE 'x'",
    )  # fmt: skip
    mirror.sync()
    mirror.execute("INSERT INTO n VALUES (3, 4)", "XA COMMIT 'x'", "INSERT INTO a VALUES (2, 'y')")
    mirror.sync()
    with feed_watermarks.held(mirror.metadata, "out", FeedLimits(50, 168)) as held:
        held.advance(FeedPosition(1), 0)  # as one that doesn't know what was prepared
    with pytest.raises(FeedError, match="prepared before the feed began"):
        carried(mirror, config)
    by_the_last = feed(mirror, where="v = 'y'", errors={"quit-on-event-handler-failure": False})
    said = carried(mirror, by_the_last).message
    assert plain_lines(mirror) == ['insert a {"id": 2} {"id": 2, "v": "y"}']
    assert ("XA COMMIT of" in said, "1 row of" in said) == (True, True)
    rows = mirror.metadata.read("omissions", ["layer", "mutations"])
    assert sorted((row["layer"], row["mutations"]) for row in rows) == [("commit", 0), ("table_map", 1)]


@on_mariadb
def test_an_event_of_a_table_that_the_feed_does_not_want_is_nothing_to_it(mirror: Mirror) -> None:
    config = feed(mirror, exclude=["*.a"])
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE a (d DATE)", "SET sql_mode = ''", "INSERT INTO a VALUES ('0000-00-00')")
    mirror.sync()
    assert carried(mirror, config).batch == 1


def test_everything_comes_in_the_order_of_the_log(mirror: Mirror) -> None:
    """SourceTransactions together, DDL and renames in their place, rows of XA where they were committed."""
    config = feed(mirror)
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE b (id INT, v VARCHAR(20))",
        "BEGIN",
        "INSERT INTO a VALUES (1, 'one'), (2, 'two')",
        "INSERT INTO b VALUES (1, 'b')",
        "UPDATE a SET v = 'eins' WHERE id = 1",
        "COMMIT",
        "XA START 'x'",
        "INSERT INTO b VALUES (2, 'prepared')",
        "UPDATE a SET v = 'prepared' WHERE id = 2",
        "XA END 'x'",
        "XA PREPARE 'x'",
    )
    mirror.sync()
    mirror.execute("INSERT INTO a VALUES (3, 'plain')", "XA COMMIT 'x'")
    mirror.execute(
        "ALTER TABLE a ADD COLUMN n INT",
        "INSERT INTO a VALUES (4, 'four', 44)",
        "RENAME TABLE a TO c",
        "DELETE FROM c WHERE id = 1",
        "BEGIN", "INSERT INTO c VALUES (9, 'never', 9)", "ROLLBACK",
    )  # fmt: skip
    mirror.sync()
    run = carried(mirror, config)
    assert plain_lines(mirror) == [
        "CREATE TABLE: CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE: CREATE TABLE b (id INT, v VARCHAR(20))",
        'insert a {"id": 1} {"id": 1, "v": "one"}',
        'insert a {"id": 2} {"id": 2, "v": "two"}',
        'insert b {"id": 1, "v": "b"}',
        'update a {"id": 1} {"v": "one" → "eins"}',
        'insert a {"id": 3} {"id": 3, "v": "plain"}',
        'insert b {"id": 2, "v": "prepared"}',
        'update a {"id": 2} {"v": "two" → "prepared"}',
        "ALTER TABLE: ALTER TABLE a ADD COLUMN n INT",
        'insert a {"id": 4} {"id": 4, "v": "four", "n": 44}',
        "RENAME TABLE: RENAME TABLE a TO c",
        'delete c {"id": 1} {"id": 1, "v": "eins", "n": null}',
    ]
    assert (run.batches, run.mutations) == (2, 9)
    assert staged(mirror) == {1, 2}
    mirror.sync()
    assert staged(mirror) == set(), "what the feed has is kept no longer"
    assert carried(mirror, config).mutations == 0


@on_mysql
def test_killed_anywhere_and_run_again_each_message_stands_once(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits come after every third mutation or so; each of the points is met many times."""
    monkeypatch.setattr(carrying, "COMMIT_EVERY", 3)
    config = feed(mirror)
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "CREATE TABLE b (id INT PRIMARY KEY, v INT)")
    chance = random.Random(7)
    wanted = [f"CREATE TABLE: CREATE TABLE {table} (id INT PRIMARY KEY, v INT)" for table in "ab"]
    for number in range(40):
        rows = [(chance.choice("ab"), 10 * number + row) for row in range(chance.randrange(1, 5))]
        mirror.execute("BEGIN", *(f"INSERT INTO {table} VALUES ({key}, {number})" for table, key in rows), "COMMIT")
        wanted += [f'insert {table} {{"id": {key}}} {{"id": {key}, "v": {number}}}' for table, key in rows]
        if number in (15, 30):
            mirror.sync()
    mirror.sync()
    points: tuple[FaultPoint, ...] = ("feed sent", "sink committed", "feed committed")
    for turn in range(12):
        with mirror.cut_off_at(points[turn % 3]):
            carried(mirror, config)
    carried(mirror, config)
    assert plain_lines(mirror) == wanted


@on_mysql
def test_a_webhook_is_told_again_what_was_cut_off_and_misses_nothing(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "COMMIT_EVERY", 1)
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = feed(
            mirror,
            format={"type": "debezium", "schema_changes": False},
            sink=f"http://127.0.0.1:{server.server_port}/in",
        )
        mirror.follow_from_here()
        mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)")
        mirror.sync()
        carried(mirror, config)
        mirror.execute(*(f"INSERT INTO a VALUES ({n})" for n in range(5)))
        mirror.sync()
        bodies.clear()  # the heartbeat
        for point in ("feed sent", "sink committed", "feed committed"):
            with mirror.cut_off_at(cast("FaultPoint", point)):
                carried(mirror, config)
        carried(mirror, config)
        server.shutdown()
    posted = [json.loads(line) for body in bodies for line in body.splitlines()]
    ids = [json.loads(body["value"])["after"]["id"] for body in posted]
    assert list(dict.fromkeys(ids)) == list(range(5)), "in the log's order"
    assert len(ids) > 5, "what was posted, and not noted, came again"


@on_mariadb
def test_rows_from_before_a_table_was_copied_anew_have_the_columns_of_then(mirror: Mirror) -> None:
    mirror.options = {"snapshot": {"reader": "direct"}}
    config = feed(mirror)
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, c INT)", "CREATE TABLE u (id INT PRIMARY KEY, c INT)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
    )  # fmt: skip
    mirror.snapshot()
    mirror.execute(
        "INSERT INTO t VALUES (1, 5)", "ALTER TABLE t DROP c", "INSERT INTO t VALUES (2)",
        "INSERT INTO u VALUES (1, 5)", "ALTER TABLE u ADD d INT", "INSERT INTO u VALUES (2, 5, 7)",
    )  # fmt: skip
    mirror.snapshot("*.t", "*.u")
    mirror.sync()
    carried(mirror, config)
    assert [line for line in plain_lines(mirror) if line.startswith("insert")] == [
        'insert t {"id": 1} {"id": 1, "c": 5}',
        'insert t {"id": 2} {"id": 2}',
        'insert u {"id": 1} {"id": 1, "c": 5}',
        'insert u {"id": 2} {"id": 2, "c": 5, "d": 7}',
    ]


@on_mysql
def test_what_was_logged_before_all_tables_were_copied_anew_comes(mirror: Mirror) -> None:
    mirror.options = {"snapshot": {"reader": "direct"}}
    config = feed(mirror, begin="now")
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    mirror.snapshot()
    carried(mirror, config)
    mirror.execute("INSERT INTO t VALUES (1)")
    mirror.snapshot()
    mirror.execute("INSERT INTO t VALUES (2)")
    mirror.sync()
    carried(mirror, config)
    assert plain_lines(mirror) == ['insert t {"id": 1} {"id": 1}', 'insert t {"id": 2} {"id": 2}']


class ToldSink(Kept):
    """Keeps where it was told to stand."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def stand(self, position: FeedPosition) -> None:
        self.batches.append(position.batch)


@on_mariadb
def test_a_sink_that_keeps_no_place_is_told_it_before_each_run(mirror: Mirror) -> None:
    config, sink = feed(mirror), ToldSink()
    mirror.follow_from_here()
    ends = []
    for statement in ("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)"):
        mirror.execute(statement)
        mirror.sync()
        ends.append(carry(mirror.config, config, Parts(make_format, lambda feed, source: sink)).batch)
    assert sink.batches == [ends[0] - 1, ends[0]]


@on_mariadb
def test_filters(mirror: Mirror) -> None:
    """By table, operation and condition; what the condition says of NULL and of columns that aren't there is SQL's."""
    config = feed(
        mirror,
        include=["*.user", "*.log_*"],
        exclude=["*.log_debug"],
        operations=["insert", "update"],
        where="table <> 'user' OR (age >= 18 AND (before.age IS NULL OR before.age <> after.age))",
    )
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE user (id INT PRIMARY KEY, age INT)", "CREATE TABLE log_a (t TEXT)",
        "CREATE TABLE log_debug (t TEXT)", "CREATE TABLE other (age INT)",
        "INSERT INTO user VALUES (1, 17), (2, 18), (3, NULL)", "UPDATE user SET age = 19 WHERE id = 2",
        "UPDATE user SET age = 12 WHERE id = 2", "DELETE FROM user",
        "INSERT INTO log_a VALUES ('kept')", "INSERT INTO log_debug VALUES ('not')", "INSERT INTO other VALUES (50)",
    )  # fmt: skip
    mirror.sync()
    carried(mirror, config)
    assert [line for line in plain_lines(mirror) if not line.startswith("CREATE")] == [
        'insert user {"id": 2} {"id": 2, "age": 18}',
        'update user {"id": 2} {"age": 18 → 19}',
        'insert log_a {"t": "kept"}',
    ]


@on_mysql
def test_until_a_time(mirror: Mirror) -> None:
    """A feed stops before the first commit at or after a time, also of a statement, and continues from there."""
    config = feed(mirror)
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)", "DO SLEEP(0.01)")
    moment = datetime.now(UTC)
    mirror.execute("DO SLEEP(0.01)", "ALTER TABLE a ADD COLUMN v INT", "INSERT INTO a VALUES (2, 3)")
    mirror.sync()
    carried(mirror, config, until=moment)
    assert plain_lines(mirror)[1:] == ['insert a {"id": 1} {"id": 1}']
    carried(mirror, config)
    insert, alter, later = plain_lines(mirror)[1:]
    assert (insert, later) == ('insert a {"id": 1} {"id": 1}', 'insert a {"id": 2} {"id": 2, "v": 3}')
    assert alter.startswith("ALTER TABLE: ")


@on_mysql
def test_a_feed_that_is_left_behind_stops_and_the_mirror_goes_on(mirror: Mirror) -> None:
    config = feed(mirror)
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    mirror.sync()
    carried(mirror, config)
    for number in (2, 3):
        mirror.execute(f"INSERT INTO a VALUES ({number})")
        mirror.sync()
    assert staged(mirror) == {2, 3}
    with feed_watermarks.held(mirror.metadata, "out", feed_watermarks.FeedLimits(1e-9, 168)):
        pass  # so much is kept for it from now on: nothing
    mirror.execute("INSERT INTO a VALUES (4)")
    mirror.sync()
    assert staged(mirror) == set()
    (status,) = feed_watermarks.statuses(mirror.config, mirror.metadata)
    assert (status.status, status.batch, status.behind) == ("stopped", 1, 3)
    with pytest.raises(FeedError, match="the staging of batch 2 is gone"):
        carried(mirror, config)


@on_mariadb
def test_the_command_line(mirror: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    feed(mirror)
    yaml = str(mirror.write_yaml())
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY, v TEXT)", "INSERT INTO a VALUES (1, 'x\ny')")
    mirror.sync()
    capsys.readouterr()
    assert command_line.run(["tail", "--config", yaml, "--table", "*.a"]) == 0
    assert f'insert {mirror.database}.a {{"id": 1}} {{"id": 1, "v": "x\\ny"}}' in capsys.readouterr().out
    assert command_line.run(["tail", "--config", yaml, "--from", "9"]) == 2
    assert "batch 9 isn't recorded yet; the newest that is, is 1" in capsys.readouterr().err
    assert command_line.run(["feed", "--config", yaml, "--feed", "out", "--json", "--quiet"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["feed"], run["batch"], run["mutations"], run["messages"]) == ("out", 1, 1, 2)
    assert command_line.run(["feed", "--config", yaml, "--feed", "none"]) == 2
    assert "there are: out" in capsys.readouterr().err


class Places:
    """A store of places of one's own."""

    kept: ClassVar[dict[str, FeedPosition]] = {}

    def __init__(self, feed: str, source: str) -> None:
        self._key = f"{source}/{feed}"

    def read(self) -> FeedPosition | None:
        return self.kept.get(self._key)

    def write(self, position: FeedPosition) -> None:
        self.kept[self._key] = position


@on_mysql
def test_places_in_a_servers_table_and_in_a_class_of_ones_own(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sinks that don't keep it themselves; where the lake's metadata lost it, the feed continues all the same."""
    monkeypatch.setenv("AIRFLOW_CONN_PLACES", mirror.server.uri())
    monkeypatch.setattr(FileSink, "keeps_position", False)
    monkeypatch.setitem(sys.modules, "own_places", cast("ModuleType", SimpleNamespace(Places=Places)))
    mirror.follow_from_here()
    monkeypatch.setattr(feed_config, "KEEP_POSITIONS", frozenset())
    for position in (f"mysql:PLACES/{mirror.database}.places", "own_places:Places", f"file:{mirror.folder}/places"):
        name = f"f{len(position)}"
        config = feed(mirror, name=name, position=position, sink=f"file://{mirror.folder}/{name}", exclude=["*.places"])
        mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        mirror.sync()
        assert carried(mirror, config).mutations > 0
        mirror.metadata.replace("feeds", f"feed = '{name}'", [])
        mirror.execute("DROP TABLE t")
        mirror.sync()
        assert (carried(mirror, config).mutations, carried(mirror, config).batches) == (0, 0)


@on_mysql
def test_places_of_feeds_whose_names_differ_in_case(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_PLACES", mirror.server.uri())
    where = f"PLACES/{mirror.database}.places"
    stores = {name: TablePositions(where, f"shop/{name}") for name in ("Out", "out")}
    for number, store in enumerate(stores.values()):
        assert store.read() is None
        store.write(FeedPosition(number))
    assert [store.read() for store in stores.values()] == [FeedPosition(0), FeedPosition(1)]


@on_mysql
def test_a_table_of_places_that_takes_names_for_the_same_is_refused(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an older binlake made it."""
    monkeypatch.setenv("AIRFLOW_CONN_PLACES", mirror.server.uri())
    mirror.execute(
        "CREATE TABLE places (feed VARCHAR(190) CHARACTER SET utf8mb4 PRIMARY KEY, position LONGTEXT NOT NULL)"
    )
    where = f"PLACES/{mirror.database}.places"
    TablePositions(where, "shop/Out").write(FeedPosition(7))
    assert TablePositions(where, "shop/Out").read() == FeedPosition(7)
    other = TablePositions(where, "shop/out")
    with pytest.raises(FeedError, match="takes shop/out and shop/Out for the same feed"):
        other.read()


@on_mariadb
def test_a_file_of_feeds_over_several_sources(
    mirror: Mirror, database: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Fan-in: two mirrors of one database, one of which has another lake, in one folder."""
    other = Mirror(mirror.server, database, tmp_path / "other", mirror.spark, server_id=7200)
    other.options["source"] = {"name": "second", "connection": "tests", "server_id": 7200}
    other.folder.mkdir()
    for member in (mirror, other):
        member.options["maintain"] = {"staging_hours": 1}  # their YAML knows nothing of the feed
        member.follow_from_here()
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    for member in (mirror, other):
        member.sync()
    several = tmp_path / "feeds.yaml"
    fan_in = {"name": "all", "sources": [str(member.write_yaml()) for member in (mirror, other)], "format": "text"}
    several.write_text(json.dumps({"feeds": [{**fan_in, "sink": f"file://{tmp_path}/in"}]}))
    capsys.readouterr()
    assert command_line.run(["feed", "--config", str(several), "--json", "--quiet"]) == 0
    assert [(run["source"], run["mutations"]) for run in json.loads(capsys.readouterr().out)] == [
        ("tests", 1),
        ("second", 1),
    ]
    for source in ("tests", "second"):
        assert len(lines(tmp_path / "in", f"{database}.a", source)) == 2
    assert command_line.run(["status", "--config", str(several)]) == 0
    stands = r"feed all is following, at batch 1, \S+:\d+, 2 messages\n"
    assert re.fullmatch(f"tests: {stands}second: {stands}", capsys.readouterr().out)
    assert command_line.run(["status", "--config", str(several), "--state", "stopped"]) == 2
    assert command_line.run(["feed", "--config", str(several)]) == 0
    assert capsys.readouterr().out.count("feed all: 0 mutations as 0 messages, up to batch 1\n") == 2
    assert command_line.run(["tail", "--config", str(several), "--feed", "all"]) == 0
    assert capsys.readouterr().out.count(" insert ") == 2
    several.write_text(json.dumps({"feeds": [{**fan_in, "sources": [], "sink": "file:///x"}]}))
    assert command_line.run(["feed", "--config", str(several)]) == 2
    assert "names no sources" in capsys.readouterr().err
