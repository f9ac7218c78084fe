"""Subscriptions: SQL in, events out, by a client of the binary protocol and over HTTP, from the staging alone."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from binlake.lease import lease
from binlake.merge import merge
from mirror import Mirror, on_mysql
from relay_client import POLLV2, Event, RelayClient
from servers import die_with_parent

if TYPE_CHECKING:
    pass

SECRET, ADMIN = b"Freedelity of tests", b"AdminPassword of tests"
OK, DISCONNECTED, NOTHING, FAILED = 0, 0xF0, 0xFC, 0xFF
INSERT, UPDATE, DELETE = 1, 2, 4
APPLY_STEPS = merge.apply_steps


@pytest.fixture
def mirror(mirror: Mirror) -> Mirror:
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))", "CREATE TABLE items (id INT PRIMARY KEY)")
    mirror.sync()
    return mirror


@dataclass
class Running:
    """A relay in a process of its own."""

    process: subprocess.Popen[str]
    port: int
    database: str
    monitor: int

    def client(self, name: str, *filters: tuple[int, str], limit: int = 0, discard: int = 0) -> RelayClient:
        made = RelayClient(self.port)
        assert made.ping() == OK
        assert made.authenticate(name, SECRET) == OK
        for operations, table in filters:
            assert made.add_filter(operations, self.database, table, limit=limit, discard=discard) == OK
        return made

    def http(self, method: str, path: str, body: object = None, key: bytes | str = b"") -> tuple[int, Any]:
        token = key.decode() if isinstance(key, bytes) else key
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def get(self, path: str, *, key: bytes = b"", basic: bytes = b"", port: int = 0) -> tuple[int, str]:
        """The status and text of an answer. basic: a password, as a browser sends it."""
        headers = {"Authorization": f"Bearer {key.decode()}"} if key else {}
        if basic:
            headers["Authorization"] = f"Basic {base64.b64encode(b'me:' + basic).decode()}"
        asked = urllib.request.Request(f"http://127.0.0.1:{port or self.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def counts(self, name: str) -> dict[str, Any]:
        """A client's counts, once all that is recorded arrived."""
        _, clients = self.http("GET", "/clients", key=ADMIN)
        client: dict[str, Any] = next(client for client in clients if client["name"] == name)
        return client

    def arrived(self, name: str, batch: int) -> dict[str, Any]:
        for _ in range(200):
            if (counts := self.counts(name))["batch"] >= batch:
                return counts
            signal.sigtimedwait([], 0.05)
        raise AssertionError(f"batch {batch} didn't arrive: {counts}")


@contextmanager
def relay(mirror: Mirror, every: float = 0.1, options: Sequence[str] = ()) -> Iterator[Running]:
    secret, admin = mirror.folder / "secret", mirror.folder / "admin"
    for path, text in ((secret, SECRET + b"\n"), (admin, ADMIN)):
        path.touch(0o600)
        path.write_bytes(text)
    command = [
        sys.executable,
        "-m",
        "binlake.cli.command_line",
        "relay",
        "--config",
        str(mirror.write_yaml()),
        "--port",
        "0",
    ]
    command += ["--secret-file", str(secret), "--admin-secret-file", str(admin), "--every", str(every), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    assert process.stderr
    ports: list[int] = []
    for _ in range(2 if options else 1):
        line = process.stderr.readline()
        port = re.search(r":(\d+)/?$", line.strip())
        assert port, line + process.stderr.read()
        ports.append(int(port[1]))
    try:
        yield Running(process, ports[0], mirror.database, ports[-1])
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


def synced(mirror: Mirror, running: Running, *names: str) -> None:
    """What was written is staged and has arrived."""
    batch = mirror.sync().batch
    for name in names:
        running.arrived(name, batch)


def brief(events: list[Event]) -> list[tuple[int, str, dict[str, tuple[str, str]]]]:
    return [(event.type, event.table, event.values) for event in events]


def test_a_client_of_the_binary_protocol_gets_what_it_asked_for(mirror: Mirror) -> None:
    with relay(mirror) as running:
        client = running.client("shop", (INSERT | DELETE, "orders"), (UPDATE, "items"))
        assert client.poll() == NOTHING
        mirror.execute(
            "BEGIN", "INSERT INTO orders VALUES (1, 'ä'), (2, NULL)", "INSERT INTO items VALUES (7)",
            "UPDATE orders SET v = 'x'", "UPDATE items SET id = 8", "COMMIT", "DELETE FROM orders WHERE id = 1",
        )  # fmt: skip
        synced(mirror, running, "shop")
        events = client.poll_all()
        assert brief(events) == [
            (INSERT, "orders", {"id": ("", "1"), "v": ("", "ä")}),
            (INSERT, "orders", {"id": ("", "2"), "v": ("", "NULL")}),
            (UPDATE, "items", {"id": ("7", "8")}),
            (DELETE, "orders", {"id": ("1", ""), "v": ("x", "")}),
        ]
        assert [event.queue_size for event in events] == [3, 2, 1, 0]
        assert {event.schema for event in events} == {mirror.database}
        positions = [event.position for event in events]
        assert positions == sorted(positions)
        assert positions[0] > 0
        counts = running.counts("shop")
        assert (counts["queued"], counts["served"], counts["discarded"], counts["largest_queue"]) == (0, 4, 0, 4)
        assert [event["type"] for event in counts["last_events"]] == [INSERT, INSERT, UPDATE, DELETE]


def test_the_originals_own_clients_are_understood(mirror: Mirror) -> None:
    """They speak an older version, look for token and id behind the key, send their last answer back with POLL, and
    know NULL by the word; the one in Pascal may poll with numbers of names."""
    with relay(mirror) as running, RelayClient(running.port, version=0x00010004, id_first=False) as client:
        assert client.ping() == OK
        assert client.authenticate("old", SECRET) == OK
        assert client.add_filter(7, mirror.database, "orders") == OK
        mirror.execute("INSERT INTO orders VALUES (1, 'a'), (2, 'b')", "UPDATE orders SET v = NULL WHERE id = 1")
        synced(mirror, running, "old")
        first, second = client.poll(), client.poll(b"\xff" * 300_000)
        third = cast("Event", client.poll(command=POLLV2))
        assert [cast("Event", client).values["v"] for client in (first, second)] == [("", "a"), ("", "b")]
        assert (third.schema, third.table, third.queue_size) == (mirror.database, "orders", 0)
        assert third.values == {"id": ("1", "1"), "v": ("a", "NULL")}


@on_mysql
@pytest.mark.parametrize(("discard", "kept"), [(0, ["1", "2", "3"]), (1, ["3", "4", "5"]), (2, ["1", "2", "3"])])
def test_a_full_queue_discards_by_its_policy(mirror: Mirror, discard: int, kept: list[str]) -> None:
    with relay(mirror) as running:
        client = running.client("small", (INSERT, "items"), limit=3, discard=discard)
        mirror.execute("INSERT INTO items VALUES (1), (2)")
        mirror.sync()
        mirror.execute("INSERT INTO items VALUES (3), (4), (5)")
        synced(mirror, running, "small")
        assert [event.values["id"][1] for event in client.poll_all()] == kept
        counts = running.counts("small")
        assert (counts["served"], counts["discarded"], counts["largest_queue"]) == (3, 2, 3)


@on_mysql
def test_killed_and_started_anew_it_loses_nothing(mirror: Mirror) -> None:
    """What was polled last comes twice: nobody said that it came through."""
    with relay(mirror) as running:
        running.client("shop", (7, "items"))
    mirror.execute("INSERT INTO items VALUES (1), (2), (3), (4)")
    mirror.sync()
    with relay(mirror, every=600) as running:  # its state is saved once
        client = RelayClient(running.port)
        assert client.authenticate("shop", SECRET) == OK
        running.arrived("shop", max(row["batch"] for row in mirror.metadata.read("batches")))
        seen = [cast("Event", client.poll()).values["id"][1] for _ in range(3)]
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait()
    mirror.execute("INSERT INTO items VALUES (5)")
    mirror.sync()
    with relay(mirror) as running:
        client = RelayClient(running.port)
        assert client.authenticate("shop", SECRET) == OK  # its filters are known
        running.arrived("shop", max(row["batch"] for row in mirror.metadata.read("batches")))
        again = [event.values["id"][1] for event in client.poll_all()]
    assert (seen, again) == (["1", "2", "3"], ["3", "4", "5"])


@on_mysql
def test_a_connection_that_breaks_loses_no_event(mirror: Mirror) -> None:
    with relay(mirror) as running:
        client = running.client("shop", (7, "items"))
        mirror.execute("INSERT INTO items VALUES (1), (2)")
        synced(mirror, running, "shop")
        client.poll()
        client.socket.close()
        assert [event.values["id"][1] for event in running.client("shop").poll_all()] == ["1", "2"]


@on_mysql
def test_a_client_that_another_connection_took_over_is_told_so(mirror: Mirror) -> None:
    with relay(mirror) as running:
        first, second = running.client("shop", (7, "items")), running.client("shop")
        assert first.poll() == DISCONNECTED
        with pytest.raises(ConnectionError):
            first.ping()
        assert second.poll() == NOTHING
        unknown = RelayClient(running.port)
        unknown.id, unknown.token = first.id, first.token + 1
        assert unknown.poll() == FAILED


@on_mysql
def test_the_monitoring_page_tells_positions_clients_and_use_of_tables(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "apply_steps", APPLY_STEPS)  # what a run merges is counted
    mirror.merges = ("rewrite",)
    with relay(mirror, options=("--monitor-port", "0")) as running:
        client = running.client("<shop>", (INSERT, "goods"), limit=9, discard=1)
        mirror.execute("CREATE TABLE goods (id INT PRIMARY KEY)", "INSERT INTO goods VALUES (1), (2)")
        mirror.execute("CREATE TABLE sales (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO sales VALUES (1, '<b>')")
        mirror.execute("UPDATE sales SET v = 'secret'", "DELETE FROM sales")
        synced(mirror, running, "<shop>")
        client.poll()
        assert running.get("/")[0] == running.get("/status.json", key=b"wrong")[0] == 401
        assert running.get("/", basic=b"wrong")[0] == 401
        code, page = running.get("/", port=running.monitor)
        assert (code, running.get("/", basic=ADMIN)[0]) == (200, 200)
        assert running.get("/clients", port=running.monitor)[0] == 404
        status = json.loads(running.get("/status.json", key=ADMIN)[1])
    assert ("<script" in page, "secret" in page, "&lt;shop&gt;" in page) == (False, False, True)
    database, state = mirror.database, lease.read(mirror.metadata).recorded_state
    assert state is not None
    assert (status["newest_batch"], status["position"]) == (state.batch, state.position.short)
    assert state.position.short in page
    (shop,) = status["clients"]
    assert (shop["queued"], shop["served"], len(shop["last_events"])) == (1, 1, 1)
    used = {usage["table"]: usage for usage in status["tables"]}
    goods, sales = (used[f"{database}.{table}"] for table in ("goods", "sales"))
    assert goods["total"] == goods["day"] == goods["hour"] == {"inserted": 2, "updated": 0, "deleted": 0}
    assert sales["hour"] == {"inserted": 1, "updated": 1, "deleted": 1}
    assert {"table": f"{database}.sales", "columns": ["id int", "v varchar(20)"], "key": ["id"]} in status["schemas"]
    for words in ("id int, v varchar(20)", "Use of tables since the relay began", "the oldest", "<td>insert</td>"):
        assert words in page


@on_mysql
def test_over_http(mirror: Mirror) -> None:
    with relay(mirror) as running:
        assert running.http("POST", "/clients", {"name": "web"}, b"wrong")[0] == 401
        wanted = {"schema": mirror.database, "table": "orders", "operations": 7}
        _, registered = running.http("POST", "/clients", {"name": "web", "filters": [wanted], "begin": 1}, SECRET)
        key = registered["key"]
        mirror.execute(
            "INSERT INTO orders VALUES (1, 'ä'), (2, NULL)", "ALTER TABLE orders ADD b VARBINARY(3)",
            "UPDATE orders SET b = x'00ff' WHERE id = 2",
        )  # fmt: skip
        synced(mirror, running, "web")
        code, polled = running.http("POST", "/poll?limit=2", key=key)
        assert (code, polled.get("remaining")) == (200, 1), polled
        assert [event["columns"] for event in polled["events"]] == [
            [
                {"name": "id", "before": None, "after": {"text": "1", "base64": None}},
                {"name": "v", "before": None, "after": {"text": "ä", "base64": None}},
            ],
            [
                {"name": "id", "before": None, "after": {"text": "2", "base64": None}},
                {"name": "v", "before": None, "after": None},
            ],
        ]
        assert running.http("POST", "/poll?limit=2&again=true", key=key)[1]["events"] == polled["events"]
        (last,) = running.http("POST", "/poll?limit=9", key=key)[1]["events"]
        assert (last["type"], last["table"], last["remaining"]) == (UPDATE, "orders", 0)
        assert last["columns"][2]["after"]["base64"] == base64.b64encode(b"\x00\xff").decode()
        assert running.http("GET", "/filters", key=key)[1]["served"] == 3
        assert running.http("POST", "/poll", key="unknown")[0] == 401
        assert running.http("PUT", "/filters", {**wanted, "table": "x" * 300}, key)[0] == 422
        assert running.http("PUT", "/filters", {**wanted, "schema": "mysql"}, key)[0] == 400
        assert running.http("GET", "/clients", key=key)[0] == 401
        assert running.http("DELETE", "/clients/web", key=ADMIN)[0] == 200
        assert running.http("POST", "/poll", key=key)[0] == 401
        assert running.http("DELETE", "/clients/web", key=ADMIN)[0] == 404
        described = running.http("GET", "/openapi.json")[1]
        assert {"/clients", "/filters", "/poll", "/ping"} <= described["paths"].keys()


@on_mysql
def test_what_is_wrong_is_told_and_the_relay_goes_on(mirror: Mirror) -> None:
    with relay(mirror) as running:
        with RelayClient(running.port) as client:
            assert client.authenticate("shop", b"wrong") == FAILED
            with pytest.raises(ConnectionError):
                client.ping()
        with RelayClient(running.port) as client:
            assert client.poll() == FAILED  # not authenticated
        client = running.client("shop")
        assert client.add_filter(7, "mysql", "user") == FAILED
        assert client.add_filter(0, mirror.database, "orders") == FAILED
        assert client.ping() == OK
        for bad in (client.packet(99), b"\0" * 32, client.packet(2, b"x" * 5000), client.packet(1)[:28] + b"\1" * 4):
            with RelayClient(running.port) as other:
                other.socket.sendall(bad)
                assert other.reply()[0] == FAILED
                with pytest.raises(ConnectionError):
                    other.reply()
        body = {"name": "web", "filters": [{"schema": "s", "table": "t" * 250}] * 9000}
        assert running.http("POST", "/clients", body, SECRET)[0] == 413
        assert client.ping() == OK


def test_rows_of_an_xa_transaction_that_was_prepared_before_the_client_came(mirror: Mirror) -> None:
    mirror.execute("XA START 'early'", "INSERT INTO orders VALUES (1, 'early')", "XA END 'early'", "XA PREPARE 'early'")
    mirror.sync()
    with relay(mirror) as running:
        client, without_filter = running.client("shop", (INSERT, "orders")), running.client("later")
        mirror.execute("INSERT INTO orders VALUES (2, 'between')")
        synced(mirror, running, "shop", "later")
        assert without_filter.add_filter(INSERT, mirror.database, "orders") == OK
        mirror.execute("XA COMMIT 'early'", "INSERT INTO orders VALUES (3, 'late')")
        synced(mirror, running, "shop", "later")
        told = [[event.values["v"][1] for event in reader.poll_all()] for reader in (client, without_filter)]
    assert told == [["between", "early", "late"], ["early", "late"]]


def test_a_client_is_told_of_an_event_that_nobody_can_decode(mirror: Mirror) -> None:
    mirror.execute("INSERT INTO orders VALUES (1, 'a')")
    mirror.sync()
    with relay(mirror) as running:
        client, other = running.client("shop", (7, "orders")), running.client("other", (7, "items"))
        mirror.execute(
            "SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE orders SET v = 'x' WHERE id = 1",
            "SET SESSION binlog_row_image = 'FULL'", "INSERT INTO orders VALUES (2, 'b')",
            "INSERT INTO items VALUES (5)",
        )  # fmt: skip
        synced(mirror, running, "shop", "other")
        assert client.poll() == FAILED
        assert [event.values["id"][1] for event in client.poll_all()] == ["2"]
        assert [event.values["id"][1] for event in other.poll_all()] == ["5"]
