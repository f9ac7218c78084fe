"""Message by message, field by field: what a feed says beside what Debezium's own engine says of the same server."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import peers
from feeding import feed, kept
from mirror import Mirror, on_mysql
from odd_values import LENIENT, SampleTable
from real_debezium import Message, RealDebezium, build

if TYPE_CHECKING:
    from pathlib import Path

    from servers import Kind, Server

NONE = "nothing"
"""In the place of a field that one of both doesn't have."""
_NOT_PARSED = ("COMPRESSED", "INET4", "INET6")
"""By MariaDB's connector, which ends at such a declaration."""
SAMPLES: dict[Kind, SampleTable] = {
    kind: replace(table, samples=tuple(sample for sample in table.samples if not sample.declared.endswith(_NOT_PARSED)))
    for kind in ("mysql", "mariadb")
    for table in (SampleTable.of(kind, "samples", invalid_dates=False),)
}
STATEMENTS = [
    """CREATE TABLE t (id INT PRIMARY KEY, tiny TINYINT UNSIGNED, big BIGINT UNSIGNED, dec_ DECIMAL(10,2), f FLOAT,
       d DOUBLE, b1 BIT(1), b12 BIT(12), s SET('x','y'), e ENUM('u','v'), j JSON, y YEAR, da DATE, ti TIME(3),
       dt DATETIME, dt6 DATETIME(6), ts TIMESTAMP(3) NULL, ts0 TIMESTAMP NULL, bin VARBINARY(9), p POINT, g GEOMETRY,
       bl BLOB, ft FLOAT(7,3), ch CHAR(5) CHARACTER SET latin1, fb BINARY(4), tx TEXT, nn INT NOT NULL DEFAULT 7,
       t1 TINYINT(1), sm SMALLINT UNSIGNED, me MEDIUMINT UNSIGNED, iu INT UNSIGNED, du DECIMAL(20,0) UNSIGNED,
       dt3 DATETIME(3), ti6 TIME(6), vc VARCHAR(10) DEFAULT 'abc')""",
    """INSERT INTO t VALUES (1, 255, 18446744073709551615, -12345.67, 0.1, 1e300, 1, b'100000000001', 'x,y', 'v',
       '{"a": 1}', 2026, '2026-01-31', '-01:00:00.5', '2026-01-31 13:00:00', '2026-01-31 13:00:00.000001',
       '2026-01-31 15:00:00.120', '2026-01-31 15:00:00', x'00ff', ST_GeomFromText('POINT(1 2)'),
       ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326), x'0102', 1.5, 'é', x'01', 'long é😀"', 1, 1, 65535, 16777215,
       4294967295, 12345678901234567890, '2026-01-31 13:00:00.123', '838:59:59', 'x')""",
    "INSERT INTO t (id) VALUES (2)",
    """UPDATE t SET j = '[1, "é", null, true, {"b": 2}]', f = 16777216, d = -0.0, b12 = 0, s = '', e = NULL, vc = NULL,
       da = '1969-12-31', dt = '9999-12-31 23:59:59', ti = '-838:59:59', ft = -1234.567 WHERE id = 1""",
    "UPDATE t SET id = 3 WHERE id = 2",
    "DELETE FROM t WHERE id = 1",
    "CREATE TABLE n (a INT, b VARCHAR(3))",
    "INSERT INTO n VALUES (1, 'x'), (1, 'x')",
    "UPDATE n SET a = 2 LIMIT 1",
    "DELETE FROM n WHERE a = 2",
    "BEGIN",
    "INSERT INTO t (id) VALUES (10), (11)",
    "UPDATE t SET id = id + 100 WHERE id IN (10, 11)",
    "INSERT INTO n VALUES (5, NULL)",
    "COMMIT",
    "ALTER TABLE t ADD zz INT, DROP g",
    "INSERT INTO t (id, zz) VALUES (20, 1)",
    "CREATE TABLE c (a INT, b VARCHAR(9), v INT, w DATETIME(3), PRIMARY KEY (b, w, a))",
    "INSERT INTO c VALUES (1, 'k', 2, '2020-01-01')",
    "UPDATE c SET b = 'l' WHERE a = 1",
    "TRUNCATE n",
    "CREATE TABLE u (a INT NOT NULL, b VARCHAR(5) NOT NULL, UNIQUE KEY (b), UNIQUE KEY (a))",
    "INSERT INTO u VALUES (1, 'x')",
    "UPDATE u SET b = 'y'",
    "ALTER TABLE u RENAME TO v",
    "DELETE FROM v",
    """CREATE TABLE made (id INT AUTO_INCREMENT PRIMARY KEY, n INT NOT NULL DEFAULT 7, d DECIMAL(5,2) DEFAULT 1.5,
       at DATETIME DEFAULT CURRENT_TIMESTAMP COMMENT 'when', v INT AS (n + 1), s INT AS (n + 2) STORED)
       COMMENT 'what'""",
    "INSERT INTO made (n) VALUES (1), (2)",
    "CREATE TABLE gone (id INT PRIMARY KEY)",
    "DROP TABLE gone",
    "CREATE TABLE packed (id INT PRIMARY KEY)",
    "SET binlog_transaction_compression = ON",
    "BEGIN",
    "INSERT INTO packed VALUES (1)",
    "INSERT INTO packed VALUES (2), (3)",
    "COMMIT",
    "SET binlog_transaction_compression = OFF",
    LENIENT,
    """CREATE TABLE zero (id INT PRIMARY KEY, d DATE NOT NULL, dt DATETIME NOT NULL, dt6 DATETIME(6) NOT NULL,
       ts TIMESTAMP NOT NULL, ts6 TIMESTAMP(6) NOT NULL, t TIME NOT NULL, y YEAR NOT NULL, nd DATE, ndt DATETIME,
       nts TIMESTAMP NULL, part DATE)""",
    """INSERT INTO zero VALUES (1, '0000-00-00', '0000-00-00 00:00:00', '0000-00-00 00:00:00', '0000-00-00 00:00:00',
       '0000-00-00 00:00:00', '00:00:00', 0, '0000-00-00', '0000-00-00 00:00:00', '0000-00-00 00:00:00',
       '2020-00-10')""",
    "CREATE TABLE the_end (id INT PRIMARY KEY)",
    "INSERT INTO the_end VALUES (1)",
]
OF_MYSQL_ALONE = ("SET binlog_transaction_compression",)


# what differs ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Listed:
    """A difference that is meant. place: of table, part of the message and path. so: of their value and ours."""

    place: str
    reason: str
    so: Callable[[Any, Any], bool] = lambda theirs, ours: True


def full_milliseconds(theirs: int, ours: int) -> bool:
    return theirs % 1000 == 0 and (theirs == ours // 1000 * 1000 or theirs == ours // 1_000_000 * 1_000_000)


def moved_years(theirs: int, ours: int) -> bool:
    """Of days, milliseconds or microseconds."""
    for units in (1, 86_400_000, 86_400_000_000):
        if abs(theirs) < 20_000 * units:
            was, made = (datetime(1970, 1, 1) + timedelta(days=value / units) for value in (ours, theirs))
            return was.year < 100 and made == was.replace(year=was.year + (2000 if was.year < 70 else 1900))
    return False


def same_json(theirs: str, ours: str) -> bool:
    """In meaning, but for what the connector reads wrong."""
    plain = re.sub(r"base64:type\d+:|\\n(?=[\w+/=])", "", ours).replace("00:00:00.000000", "00:00:00")
    negative_times = {"01:0-1:0-2.00000-5", "839:0-60:0-59"}
    return bool(json.loads(theirs) == json.loads(plain)) or set(json.loads(theirs)) == negative_times


def without_zeros(theirs: str, ours: str) -> bool:
    return theirs == re.sub(r"\.?0*Z$", "Z", ours)


def ten_days_later(theirs: int, ours: int) -> bool:
    return theirs - ours == 10 * 86_400_000_000


def same_float(theirs: float, ours: float) -> bool:
    return bool(np.float32(theirs) == np.float32(ours))


def are(expected_theirs: Any, expected_ours: Any) -> Callable[[Any, Any], bool]:
    return lambda theirs, ours: (theirs, ours) == (expected_theirs, expected_ours)


ROW = r"value\.(payload\.)?(before|after)"
SOURCE = r"value\.(payload\.)?source"
LISTED = (
    Listed(rf"{SOURCE}\.version", "whose it is"),
    Listed(rf"{SOURCE}\.thread", "isn't staged"),
    Listed(rf"{SOURCE}\.ts_(us|ns)", "of a statement the connector has full milliseconds", full_milliseconds),
    Listed(rf"packed {SOURCE}\.(pos|row)", "a compressed transaction is one event"),
    Listed(r"value\.(payload\.)?ts_(ms|us|ns)", "when the message was made"),
    Listed(r"headers\.__debezium\.context\..*", "no task of Connect runs", lambda theirs, ours: ours == NONE),
    Listed(r"value\.schema\..*\.default", "columns' defaults aren't told", lambda theirs, ours: ours == NONE),
    Listed(rf"t {ROW}\.vc", "NULL isn't the default", are("abc", None)),
    Listed(rf"samples {ROW}\.DATE(TIME\(\d\))?", "the year 1 stays there", moved_years),
    Listed(rf"(samples|zero) {ROW}\.(YEAR|y)", "YEAR 0", are(1900, 0)),
    Listed(rf"(t|samples) {ROW}\.(j|JSON)", "the server's own text", same_json),
    Listed(rf"samples {ROW}\.FLOAT", "Java 17 doesn't print the shortest", same_float),
    Listed(rf"samples {ROW}\..* swe7", "which the connector takes for ASCII", are("}{|", "åäö")),
    Listed(rf"samples {ROW}\..* latin1", "bytes of C1, which Java loses", are("\ufffd" * 5, "\x81\x8d\x8f\x90\x9d")),
    Listed(rf"tests {SOURCE}\.row", "of a statement 0, not the row's before it"),
    Listed(r"tests value\.(payload\.)?ddl", "as it was logged", lambda theirs, ours: ours.startswith("DROP")),
    Listed(r"tests value\..*\.generated", "the connector's is AUTO_INCREMENT", lambda theirs, ours: theirs is not ours),
    Listed(r"tests value\..*\.defaultValueExpression", "the server's, not the statement's text"),
    Listed(r"tests value\..*ZEROFILL.*\.(typeName|typeExpression|length)", "ZEROFILL isn't kept"),
    Listed(r"tests value\..*COLLECTION.*\.(typeName|typeExpression)", "as the server calls it"),
    Listed(r"tests value\..*\(0\).*\.length", "no digits of a fraction", are(0, None)),
)
JSON_ = r"\[(io\.debezium\.data\.Json|JSON|j)\]"
CHARSET = r"VARCHAR\(40\) (CHARACTER SET cp932|COLLATE latin1_swedish_nopad_ci)"
OF_MARIADB = (
    Listed(rf"t(ests)? value\..*{JSON_}\.(typeName|typeExpression|charsetName|jdbcType)", "JSON is LONGTEXT"),
    Listed(rf"(t|samples) value\.schema\..*{JSON_}\.(name|version)", "JSON is LONGTEXT", lambda _, ours: ours == NONE),
    Listed(r"(made value\.schema\..*\.doc|tests value\..*\.comment)", "of the connector for MySQL by option alone"),
    Listed(rf"tests value\..*\[{CHARSET}\]\.charsetName", "which the connector doesn't know", are("utf8mb4", "latin1")),
    Listed(rf"samples {ROW}\.{CHARSET}", "which the connector takes for another", lambda theirs, _: "\ufffd" in theirs),
    Listed(rf"samples {ROW}\.UUID", "which the connector reads as if it were MySQL's BINARY"),
    Listed(rf"samples {ROW}\.YEAR\(2\)", "YEAR 0", are(1900, 0)),
    Listed(rf"zero {ROW}\.ts6", "with its digits", are("1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00Z")),
    Listed(rf"zero {ROW}\.nts", "a TIMESTAMP of zeros is the epoch there", are("1970-01-01T00:00:00Z", None)),
    Listed(r"n value\.(payload\.)?transaction", "TRUNCATE is a transaction there", lambda _, ours: ours is None),
)
"""What else its connector tells in another way. Of a statement's GTID it says BEGIN, without an END."""
WITHOUT_ENDS = Listed(rf"{SOURCE}\.pos", "of the transaction's begin", lambda theirs, ours: theirs < ours)
"""What the connector says where events inside a transaction have no end in their headers (MariaDB since 11.4)."""
IN_A_SNAPSHOT = (
    Listed(rf"{SOURCE}\.snapshot", "neither the first nor the last is told", lambda theirs, ours: ours == "true"),
    Listed(rf"{SOURCE}\.ts_(ms|us|ns)", "when the feed read the row"),
    Listed(rf"samples {ROW}\.TIMESTAMP\(6\) NULL", "the connector's log has all digits, too", without_zeros),
    Listed(rf"samples {ROW}\.DATETIME\(6\)", "the connector's driver has Julian days", ten_days_later),
    Listed(rf"samples {ROW}\.YEAR", "YEAR 0", are(2000, 0)),
)
"""Fields that aren't the same, and why: the docstring of feeds/formats/debezium.py says it too. Whole messages: a
tombstone without a key isn't known, nor what the connector's snapshot says of DDL."""


def differences(theirs: Any, ours: Any, path: str, kind: Kind) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs.keys() | ours.keys():
            yield from differences(theirs.get(name, NONE), ours.get(name, NONE), f"{path}.{declared(name, kind)}", kind)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, (real, made) in enumerate(zip(theirs, ours, strict=True)):
            name = real.get("name", number) if isinstance(real, dict) else number
            yield from differences(real, made, f"{path}[{declared(str(name), kind)}]", kind)
    elif theirs != ours:
        yield path, theirs, ours


def declared(name: str, kind: Kind) -> str:
    """Of a column of the samples what it was declared as."""
    return SAMPLES[kind].samples[int(name[1:])].declared if re.fullmatch(r"c\d+", name) else name


def without_what_only_theirs_tell(topic: str, messages: Sequence[Message]) -> Iterator[Message]:
    values = [(message.value or {}).get("payload", message.value) for message in messages]
    ended = {value["id"] for value in values if value and value.get("status") == "END"}
    for message, value in zip(messages, values, strict=True):
        if value and value.get("status") == "BEGIN" and value["id"] not in ended:
            continue
        if message.key is None and message.value is None:
            continue
        if topic == "tests" and value["source"]["snapshot"] != "false":
            continue
        for collections in [value.get("data_collections")] if value else []:
            (collections or []).sort(key=lambda collection: collection["data_collection"])
        yield message


def compared(
    theirs: Iterable[Message], ours: Iterable[Message], kind: Kind, list_: Sequence[Listed] = LISTED
) -> tuple[list[str], set[Listed]]:
    """What differs and isn't listed, and what of the list was seen."""
    topics: dict[str, tuple[list[Message], list[Message]]] = defaultdict(lambda: ([], []))
    for side, messages in enumerate((theirs, ours)):
        for message in messages:
            topics[message.topic][side].append(message)
    unlisted, seen = [], set()
    for topic, (real_messages, made_messages) in topics.items():
        real_messages = list(without_what_only_theirs_tell(topic, real_messages))
        made_messages = list(without_what_only_theirs_tell(topic, made_messages))
        if len(real_messages) != len(made_messages):
            unlisted.append(f"{topic}: Debezium has {len(real_messages)} messages, the feed {len(made_messages)}")
        for number, (real, made) in enumerate(zip(real_messages, made_messages, strict=False)):
            for part in ("key", "value", "headers"):
                start = f"{topic.rpartition('.')[2]} {part}"
                for path, theirs_, ours_ in differences(getattr(real, part), getattr(made, part), start, kind):
                    listed = [
                        this for this in list_ if re.search(rf"(^| ){this.place}$", path) and this.so(theirs_, ours_)
                    ]
                    seen.update(listed)
                    if not listed:
                        unlisted.append(
                            f"{path} of message {number}: Debezium says {theirs_!r:.200}, the feed {ours_!r:.200}"
                        )
    return unlisted, seen


# the runs -------------------------------------------------------------------------------------------------------------
@pytest.fixture(autouse=True)
def _peer(server: Server) -> None:
    try:
        build(server.kind)
    except peers.PeerMissing as missing:
        pytest.skip(f"Debezium's engine can't be had: {missing}")


@pytest.fixture
def following(mirror: Mirror) -> Mirror:
    mirror.options = {"invalid_dates": "keep_text"}
    return mirror


def by_the_feed(mirror: Mirror, **settings: Any) -> list[Message]:
    """By the feed."""
    messages = kept(mirror, feed(mirror, **{**settings, "format": {"type": "debezium", **settings["format"]}}))
    return [
        Message(
            message.topic,
            *(text and json.loads(text) for text in message[1:3]),
            {name: json.loads(text) for name, text in message.headers},
        )
        for message in messages
    ]


def is_the_end(message: Message) -> bool:
    return message.topic.endswith(".the_end") and message.key is not None


def is_the_end_of_all(message: Message) -> bool:
    body = (message.value or {}).get("payload", {})
    return any(collection["data_collection"].endswith(".the_end") for collection in body.get("data_collections") or ())


MODES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "defaults": (
        {"schemas": True, "transactions": True, "truncates": True},
        {"provide_transaction_metadata": "true", "skipped_operations": "none"},
    ),
    "strings": (
        {"tombstones": False, "decimals": "string", "bigint_unsigned": "precise", "binary": "base64"},
        {
            "tombstones_on_delete": "false", "decimal_handling_mode": "string", "binary_handling_mode": "base64",
            "bigint_unsigned_handling_mode": "precise", "enable_time_adjuster": "false",
        },
    ),
    "doubles": (
        {"decimals": "double", "binary": "hex", "schema_changes": False},
        {"decimal_handling_mode": "double", "binary_handling_mode": "hex", "include_schema_changes": "false"},
    ),
}  # fmt: skip
"""A feed's settings, and the same as the connector's."""


def converters(schemas: bool) -> dict[str, str]:
    return {f"{part}_converter_schemas_enable": str(schemas).lower() for part in ("key", "value", "header")}


@pytest.mark.parametrize(
    ("server", "mode"),
    [
        *(("mysql", mode) for mode in MODES),
        *(pytest.param("mariadb", mode, marks=pytest.mark.soak if mode != "defaults" else ()) for mode in MODES),
    ],
    indirect=["server"],
)
def test_field_by_field(following: Mirror, tmp_path: Path, mode: str) -> None:
    mirror, (ours, settings), kind = following, MODES[mode], following.server.kind
    mirror.execute("CREATE TABLE begin_ (id INT PRIMARY KEY)", "INSERT INTO begin_ VALUES (1)")
    feed(mirror)
    settings = {**settings, **converters(mode == "defaults")}
    with RealDebezium(mirror.server, mirror.database, tmp_path, **settings) as engine:
        engine.until(lambda message: message.topic.endswith(".begin_"))
        mirror.follow_from_here()
        SAMPLES[kind].create(mirror.server, mirror.database)
        mirror.execute(
            *(statement for statement in STATEMENTS if kind == "mysql" or not statement.startswith(OF_MYSQL_ALONE))
        )
        theirs = engine.until(is_the_end_of_all if ours.get("transactions") else is_the_end)
    mirror.sync()
    of_kind = OF_MARIADB if kind == "mariadb" else ()
    if ("binlog_legacy_event_pos", "OFF") in mirror.server.execute("SHOW VARIABLES LIKE 'binlog_legacy%'"):
        of_kind += (WITHOUT_ENDS,)
    unlisted, seen = compared(theirs, by_the_feed(mirror, format={"heartbeat": False, **ours}), kind, LISTED + of_kind)
    assert unlisted == []
    if mode == "defaults":
        own = of_kind or LISTED
        assert [listed for listed in own if listed not in seen] == [], "listed, and the same"


@on_mysql
def test_a_snapshots_rows_are_reads(mirror_with_lake: Mirror, tmp_path: Path) -> None:
    mirror, samples = mirror_with_lake, SAMPLES["mysql"]
    samples.create(mirror.server, mirror.database)
    # The connector's driver fails at zeros in front.
    one_of_each = {this.type: name for this, name in zip(samples.samples, samples.columns, strict=True)
                   if "ZEROFILL" not in this.declared}  # fmt: skip
    others = sorted(set(samples.columns) - set(one_of_each.values()))
    mirror.execute(f"ALTER TABLE samples {', '.join(f'DROP {name}' for name in others)}")
    mirror.execute("CREATE TABLE the_end (id INT PRIMARY KEY)", "INSERT INTO the_end VALUES (1)")
    with RealDebezium(mirror.server, mirror.database, tmp_path, **converters(True)) as engine:
        theirs = engine.until(lambda message: message.value["payload"].get("source", {}).get("snapshot") == "last")
    mirror.snapshot()
    feed(mirror)
    mirror.sync()
    ours = by_the_feed(mirror, begin="lake", format={"heartbeat": False, "schemas": True})
    assert len(ours) == samples.rows + 1
    unlisted, seen = compared(theirs, ours, "mysql", LISTED + IN_A_SNAPSHOT)
    assert unlisted == []
    assert [listed for listed in IN_A_SNAPSHOT if listed not in seen] == [], "listed, and the same"
