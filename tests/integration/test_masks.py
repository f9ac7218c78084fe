"""Masked columns: what the lake shows of them, and that nothing that is written shows more."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from binlake import pipeline
from binlake.report import Report
from feeding import carried, feed
from mirror import Mirror, sync_alone
from planted_secrets import found_in
from servers import Server
from without_spark import no_spark, rows, verify

KEY = "a key that nobody knows"
COLUMNS = """
    id INT PRIMARY KEY, email VARCHAR(80), phone VARCHAR(30), born DATE, seen DATETIME(6), card BIGINT, salary INT,
    price DECIMAL(12, 2), ratio DOUBLE, token TEXT, raw VARBINARY(40), code CHAR(20), doc JSON, plain VARCHAR(20)
"""


NAMES = "id, email, phone, born, seen, card, salary, price, ratio, token, raw, code, doc, plain"


def hashed(text: str, digits: int = 32) -> str:
    return hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()[:digits]


@pytest.fixture
def mirror(server: Server, database: str, lake: Path) -> Mirror:
    """A database whose lake is written without Spark."""
    return Mirror(server, database, lake, None, reader="direct")  # type: ignore[arg-type]


@pytest.fixture
def masking(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    monkeypatch.setenv("AIRFLOW_CONN_PII_KEY", json.dumps({"password": KEY}))
    name = mirror.database
    key = {"key": "pii_key", "length": 32}
    mirror.options = {
        "columns": [
            {"columns": f"{name}.*.email", "hash": key},
            {"columns": f"{name}.*.code", "hash": key},
            {"columns": f"{name}.*.card", "hash": key},
            {"columns": f"{name}.*.raw", "hash": key},
            {"columns": f"{name}.*.doc", "hash": key},
            {"columns": "*.*.phone", "mask": {"keep_last": 4, "with": "#"}},
            {"columns": f"{name}.*.born", "truncate": "year"},
            {"columns": f"{name}.*.seen", "truncate": "hour"},
            {"columns": f"{name}.*.salary", "truncate": 3},
            {"columns": f"{name}.*.price", "truncate": 2},
            {"columns": f"{name}.*.ratio", "truncate": 2},
            {"columns": f"{name}.*.token", "null": True},
            {"columns": f"{name}.*.password", "exclude": True},
        ]
    }
    return mirror


def row(number: int) -> str:
    """Values of a row whose secrets have its number."""
    return (
        f"{number}, 'zq{number:02}secret@mail', '555zq{number:02}-12{number:02}', '1987-06-{number:02}',"
        f" '2023-05-06 07:{number:02}:17.123456', 91827364500{number:02}, 7155{number:02}9, 7{number:02}88.37,"
        f" 6{number:02}77.5, 'tok-zq{number:02}-tok', 'raw-zq{number:02}-raw', 'zq{number:02}secret@mail',"
        f" '{{\"k\": \"doc-zq{number:02}-doc\"}}', 'plain {number}'"
    )


def shown(number: int) -> dict[str, Any]:
    """The same row as the lake shows it."""
    return {
        "id": number, "email": hashed(f"zq{number:02}secret@mail"), "phone": f"########12{number:02}",
        "born": date(1987, 1, 1), "seen": datetime(2023, 5, 6, 7), "card": hashed(f"91827364500{number:02}"),
        "salary": 7_155_000,
        "price": float(f"7{number:02}00"), "ratio": float(f"6{number:02}00"),
        "token": None, "raw": hashed(f"raw-zq{number:02}-raw"), "code": hashed(f"zq{number:02}secret@mail"),
        "plain": f"plain {number}",
    }  # fmt: skip


def secrets(numbers: range) -> list[Any]:
    """Return what shows the rows with these numbers."""
    found: list[Any] = []
    for n in numbers:
        found += [f"zq{n:02}secret", f"555zq{n:02}", f"tok-zq{n:02}", f"raw-zq{n:02}", f"doc-zq{n:02}"]
        found += [f"1987-06-{n:02}", f"07:{n:02}:17", f"91827364500{n:02}", f"7155{n:02}9", f"6{n:02}77.5"]
        found += [date(1987, 6, n), int(f"91827364500{n:02}"), int(f"7155{n:02}9"), float(f"6{n:02}77.5")]
        found += [datetime(2023, 5, 6, 7, n, 17, 123456)]
    return found


def lake_of(mirror: Mirror, table: str) -> dict[Any, dict[str, Any]]:
    return {line["id"]: plain(line) for line in rows(mirror, table).to_pylist()}


def plain(line: dict[str, Any]) -> dict[str, Any]:
    line = {name: value for name, value in line.items() if name != "doc"}
    return line | ({"price": float(line["price"])} if "price" in line else {})


def snapshot(mirror: Mirror, *patterns: str) -> str:
    """A snapshot without Spark; gives what it said."""
    said = io.StringIO()
    pipeline.bootstrap(mirror.config, mirror.origin, no_spark, Report(said), tables=list(patterns) or None)
    return said.getvalue()


def test_nothing_that_is_written_shows_what_a_mask_hides(masking: Mirror, caplog: pytest.LogCaptureFixture) -> None:
    mirror = masking
    mirror.execute(
        f"CREATE TABLE people ({COLUMNS}, loud VARCHAR(90) AS (UPPER(email)) STORED,"
        " soft VARCHAR(90) AS (CONCAT(token, '!')) VIRTUAL)",
        *(f"INSERT INTO people ({NAMES}) VALUES ({row(number)})" for number in (1, 2, 3)),
        "CREATE TABLE accounts (email VARCHAR(60) PRIMARY KEY, id INT)",
        "INSERT INTO accounts VALUES ('zq01secret@mail', 1), ('zq02secret@mail', 2)",
    )
    snapshot(mirror)
    assert lake_of(mirror, "people") == {n: shown(n) for n in (1, 2, 3)}
    mirror.execute(
        f"INSERT INTO people ({NAMES}) VALUES ({row(4)})",
        "UPDATE people SET email = 'zq05secret@mail', phone = '555zq05-1205' WHERE id = 1",
        "DELETE FROM people WHERE id = 2",
        "UPDATE people SET doc = JSON_SET(doc, '$.k', 'doc-zq06-doc') WHERE id = 3",
        "ALTER TABLE people ADD later INT DEFAULT 5, ALTER code SET DEFAULT 'zq07secret@mail', MODIFY born DATE FIRST",
        f"INSERT INTO people ({NAMES}) VALUES ({row(8)})",
        "UPDATE accounts SET email = 'zq03secret@mail' WHERE id = 1",
        "DELETE FROM accounts WHERE id = 2",
        "INSERT INTO accounts VALUES ('zq04secret@mail', 4)",
    )
    said = sync_alone(mirror)
    expected = {n: {**shown(n), "later": 5} for n in (1, 3, 4, 8)}
    expected[1] |= {"email": hashed("zq05secret@mail"), "phone": "########1205"}
    assert lake_of(mirror, "people") == expected
    assert {n: line["email"] for n, line in lake_of(mirror, "accounts").items()} == {
        1: hashed("zq03secret@mail"),
        4: hashed("zq04secret@mail"),
    }
    assert verify(mirror).equal
    assert not found_in(mirror.folder, secrets(range(1, 10)), said + caplog.text)


def test_a_masked_column_stops_its_table_where_it_gets_a_name_that_no_entry_masks(masking: Mirror) -> None:
    mirror = masking
    mirror.execute(
        f"CREATE TABLE people ({COLUMNS})",
        f"INSERT INTO people ({NAMES}) VALUES ({row(1)})",
        "CREATE TABLE accounts (email VARCHAR(60) PRIMARY KEY, id INT)",
        "INSERT INTO accounts VALUES ('zq01secret@mail', 1)",
    )
    snapshot(mirror)
    mirror.execute(
        "ALTER TABLE people CHANGE token tok TEXT",
        "UPDATE people SET tok = 'tok-zq02-tok'",
        "ALTER TABLE people ADD token TEXT",
        "UPDATE people SET token = 'tok-zq03-tok'",
        "INSERT INTO accounts VALUES ('zq04secret@mail', 4)",
    )
    sync_alone(mirror)
    assert mirror.watermark("people")["status"] == "stopped"
    assert (
        "the column 'token', which the YAML masks or excludes, is called tok now"
        in mirror.watermark("people")["reason"]
    )
    mirror.execute(
        "UPDATE people SET tok = 'tok-zq05-tok', token = 'tok-zq06-tok'", "INSERT INTO accounts VALUES ('b', 5)"
    )
    sync_alone(mirror)
    assert len(lake_of(mirror, "accounts")) == 3
    assert not found_in(mirror.folder, secrets(range(1, 10)))


@pytest.mark.parametrize("kind", ["text", "debezium", "csv"])
def test_feeds_send_what_the_lake_has(masking: Mirror, kind: str) -> None:
    mirror = masking
    mirror.execute(f"CREATE TABLE people ({COLUMNS})", f"INSERT INTO people ({NAMES}) VALUES ({row(1)})")
    snapshot(mirror)
    topic = {} if kind == "csv" else {"topic": "all"}
    sent = feed(mirror, format={"type": kind, **topic})
    carried(mirror, sent)
    mirror.execute(
        f"INSERT INTO people ({NAMES}) VALUES ({row(2)})",
        "UPDATE people SET email = 'zq03secret@mail', token = 'tok-zq04-tok' WHERE id = 1",
        "DELETE FROM people WHERE id = 2",
    )
    sync_alone(mirror)
    carried(mirror, sent)
    written = [path.read_bytes() for path in (mirror.folder / "out").rglob("*") if path.is_file()]
    assert any(hashed("zq02secret@mail").encode() in text for text in written)
    assert not found_in(mirror.folder, secrets(range(1, 10)))
