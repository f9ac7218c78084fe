"""A password that is changed on the server and in the connection's place while a process works."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from begun_alone import begin_alone
from binlake import pipeline
from binlake.config import PipelineConfig
from binlake.config.feed_config import FeedConfig
from binlake.errors import AccessDenied, ConnectionFailed
from binlake.feeds import positions
from binlake.interrupts import Ending
from binlake.lease import lease
from binlake.phases.follow import FollowPace
from binlake.records.feed_watermarks import FeedPosition
from binlake.report import Report
from binlake.source.connection import CONNECTION_FILE, from_environment, renewed_by
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from mirror import Mirror, on_mysql
from no_session import NoSession
from servers import Server

FIRST, SECOND = "Erstes7f3a", "Zweites9b1c"
SECONDS = 60


@pytest.fixture
def rotated(server: Server) -> Iterator[str]:
    name = "rotated"
    server.create_account(name, FIRST, ["ALL ON *.*"])
    yield name
    server.execute(f"DROP USER {name}")


def put(path: Path, server: Server, user: str, password: str) -> None:
    fields = {"conn_type": "mysql", "host": "127.0.0.1", "port": server.port, "login": user, "password": password}
    path.write_text(json.dumps(fields))


def change_password(server: Server, user: str, password: str) -> None:
    """Change it, and end the account's connections."""
    server.execute(f"ALTER USER {user} IDENTIFIED BY '{password}'")
    asked = f"SELECT id FROM information_schema.processlist WHERE user = '{user}'"
    for (session,) in server.execute(asked):
        server.execute(f"KILL {session}")


@dataclass
class InTurn:
    """Work beside a follower: the next thing is done each time the lake stands at the log's head; at last it ends."""

    mirror: Mirror
    ending: Ending
    rest: Iterator[Callable[[], None]]

    def begin(self, config: PipelineConfig, batch: int | None) -> None:
        position = lease.read(self.mirror.metadata).position
        with Source.open(self.mirror.endpoint) as source:
            if position is None or (position.file, position.offset) != source.head()[:2]:
                return
        next(self.rest, self.ending.ask)()

    def end(self) -> None:
        """It has no thread."""


@on_mysql
def test_a_follower_goes_on_with_a_changed_password(
    mirror: Mirror, rotated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)")
    begin_alone(mirror)
    place = tmp_path / "connection.json"
    put(place, mirror.server, rotated, FIRST)
    monkeypatch.setenv(CONNECTION_FILE, str(place))

    def rotate_all_at_once() -> None:
        put(place, mirror.server, rotated, SECOND)
        change_password(mirror.server, rotated, SECOND)
        mirror.execute("INSERT INTO a VALUES (2)")

    def rotate_again() -> None:
        change_password(mirror.server, rotated, FIRST)
        put(place, mirror.server, rotated, FIRST)
        mirror.execute("INSERT INTO a VALUES (3)")

    ending, said = Ending(), io.StringIO()
    steps = iter((lambda: mirror.execute("INSERT INTO a VALUES (1)"), rotate_all_at_once, rotate_again))
    followed = pipeline.follow(
        lambda: mirror.config, from_environment("tests"), NoSession(), Report(said),
        FollowPace(every=0.1, spark_idle=60, duration=SECONDS), ending, [InTurn(mirror, ending, steps)],
    )  # fmt: skip
    assert followed.batches == 3, said.getvalue()
    mirror.assert_equal("a")
    assert FIRST not in said.getvalue()
    assert SECOND not in said.getvalue()


@on_mysql
def test_an_account_is_looked_up_again_only_where_it_is_refused(server: Server, rotated: str) -> None:
    given = [FIRST]
    looked_up: list[str] = []

    def look_up() -> Endpoint:
        looked_up.append(given[-1])
        return Endpoint("127.0.0.1", server.port, rotated, given[-1])

    endpoint = renewed_by(look_up)
    for _ in range(2):
        Source.open(endpoint).close()
    assert looked_up == [FIRST]
    change_password(server, rotated, SECOND)
    with pytest.raises(AccessDenied):
        Source.open(endpoint)
    given.append(SECOND)
    for _ in range(3):
        Source.open(endpoint).close()
    assert looked_up == [FIRST, FIRST, SECOND]
    assert endpoint.newest.password == SECOND


@on_mysql
def test_another_server_in_the_connection_gets_nothing_from_this_one_s_process(server: Server, rotated: str) -> None:
    given = [Endpoint("127.0.0.1", server.port, rotated, FIRST)]
    endpoint = renewed_by(lambda: given[-1])
    change_password(server, rotated, SECOND)
    given.append(Endpoint("localhost", server.port, rotated, SECOND))
    with pytest.raises(AccessDenied):
        Source.open(endpoint)


@on_mysql
def test_a_place_that_does_not_answer_is_named_without_what_it_said(server: Server, rotated: str) -> None:
    answers = iter([Endpoint("127.0.0.1", server.port, rotated, FIRST)])

    def look_up() -> Endpoint:
        for answer in answers:
            return answer
        raise RuntimeError(f"no answer for {FIRST}")

    endpoint = renewed_by(look_up)
    change_password(server, rotated, SECOND)
    with pytest.raises(ConnectionFailed, match="RuntimeError") as caught:
        Source.open(endpoint)
    assert FIRST not in str(caught.value)


@on_mysql
def test_airflow_s_connection_is_looked_up_again(server: Server, rotated: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its environment, which is asked as a backend of secrets or its database is."""
    from binlake_airflow.hook import BinlakeHook

    monkeypatch.setenv("AIRFLOW_CONN_ROTATED", server.uri(rotated, FIRST))
    endpoint = BinlakeHook("rotated").endpoint()
    change_password(server, rotated, SECOND)
    monkeypatch.setenv("AIRFLOW_CONN_ROTATED", server.uri(rotated, SECOND))
    Source.open(endpoint).close()


@on_mysql
def test_a_feed_s_position_is_kept_with_a_changed_password(
    server: Server, database: str, rotated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a follower of Airflow keeps it, whose connections are elsewhere than in its own environment."""
    from airflow.sdk import Connection

    from binlake_airflow.feeding import lend_connections
    from binlake_airflow.hook import BinlakeHook

    given = [FIRST]

    def get_connection(name: str) -> Any:
        asked.append(name)
        return Connection(
            conn_id=name, conn_type="mysql", host="127.0.0.1", port=server.port, login=rotated, password=given[-1]
        )

    asked: list[str] = []
    monkeypatch.setattr(BinlakeHook, "get_connection", staticmethod(get_connection))
    monkeypatch.setattr(positions, "look_up", positions.look_up)  # it is as before when this ends
    position = f"mysql:PLACES/{database}.places"
    feed = FeedConfig.model_validate({"name": "out", "sink": "https://b/x", "format": "text", "position": position})
    lend_connections(feed)
    store = positions.TablePositions(f"PLACES/{database}.places", "shop/out")
    assert store.read() is None
    store.write(FeedPosition(1))
    given.append(SECOND)
    change_password(server, rotated, SECOND)
    store.write(FeedPosition(2))
    assert store.read() == FeedPosition(2)
    assert asked == ["PLACES"] * 2
