"""Mutations per second through the feeds' formats, alone and into a broker, beside a message at a time by libraries.

bench_feeds.py [ROWS]    the broker's part where .binlake/kafka is there (docker/local/setup.sh kafka)

All figures are added to .binlake/bench.json; the goals are 100,000 mutations/s of generic Avro and 60,000 of Debezium's
JSON into the broker, and three times Debezium's engine.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

import fastavro
import pyarrow as pa

import bench_logs
import bench_peers
import broker
import peers
from bench_figures import Figure, keep
from binlake import pipeline
from binlake.binlog.staged_schema import staged_schema
from binlake.config import PipelineConfig
from binlake.config.feed_config import DebeziumFormat, GenericFormat, SinkConfig
from binlake.feeds.carry import carry, rarely_collected
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable, Format, Message
from binlake.feeds.formats import generic
from binlake.feeds.formats.connect_avro import AvroWriter
from binlake.feeds.formats.connect_json import JsonWriter
from binlake.feeds.formats.debezium import Debezium
from binlake.feeds.formats.generic import Generic
from binlake.feeds.formats.text import plain
from binlake.feeds.registry import PARTS
from binlake.feeds.sinks.kafka import KafkaSink
from binlake.merge import merge
from binlake.records.feed_watermarks import FeedPosition
from binlake.report import Report
from binlake.schema.invalid import FAIL
from binlake.schema.table import Column, TableName
from binlake.source.folder import Folder

COLUMNS = (
    Column("id", "bigint"), Column("customer", "int"), Column("status", "varchar", length=20, charset="utf8mb4"),
    Column("total", "decimal", precision=10, scale=2), Column("placed", "datetime"),
    Column("note", "varchar", length=80, charset="utf8mb4"),
)  # fmt: skip
TABLE = FeedTable(TableName("shop", "orders"), COLUMNS, ("id",))
CONTEXT = FeedContext("bench", "shop", "server", "mysql")
AT_ONCE = 1 << 16


def parts(rows: int) -> list[FeedChanges]:
    """Inserts and updates by turns, as they are staged."""
    from datetime import datetime
    from decimal import Decimal

    def image(number: int, status: str) -> dict[str, Any]:
        ordered = {"customer": number * 7 % 100_000, "status": status, "total": Decimal(number % 100_000) / 100}
        return {"id": number, **ordered, "placed": datetime(2026, 1, 1), "note": f"note {number} of the bench" * 2}

    made = []
    for start in range(0, rows, AT_ONCE):
        numbers = range(start, min(rows, start + AT_ONCE))
        staged = [
            {"op": 1 + number % 2, "file": 1, "offset": 4 + number * 100, "row": 0, "committed_us": 10**15 + number,
             "gtid": f"3e11fa47-71ca-11e1-9e33-c80aa9429562:{number}",
             "before": image(number, "new") if number % 2 else None, "after": image(number, "paid")}
            for number in numbers
        ]  # fmt: skip
        batch = pa.RecordBatch.from_pylist(staged, schema=staged_schema(COLUMNS, FAIL))
        made.append(FeedChanges(TABLE, batch, "binlog.000001"))
    return made


def encoded(form: Format, changes: Sequence[FeedChanges], send: Callable[[list[Message]], None]) -> None:
    with rarely_collected():
        for part in changes:
            send(list(chain.from_iterable(form.changes(part))))


def one_by_one(changes: Sequence[FeedChanges], avro: bool) -> None:
    """The plain way: a dictionary a row, through a library."""
    schemas = {op: fastavro.parse_schema(generic.schema(op)) for op in (1, 2)}

    def maps(row: dict[str, Any], prefix: str) -> dict[str, Any]:
        by_type = {"integers": {"customer": row["customer"]}, "longs": {"id": row["id"]}, "bytes": {}}
        by_type["strings"] = {name: str(row[name]) for name in ("status", "total", "placed", "note")}
        return {prefix + name: value for name, value in by_type.items()}

    head = {"database": "shop", "table": "orders", "tableId": 1, "txid": None}
    for part in changes:
        for row in part.rows.to_pylist():
            if not avro:
                json.dumps({"before": row["before"], "after": row["after"], "op": row["op"]}, default=plain).encode()
                continue
            images = (
                maps(row["after"], "")
                if row["op"] == 1
                else {**maps(row["before"], "old_"), **maps(row["after"], "new_")}
            )
            fastavro.schemaless_writer(io.BytesIO(), schemas[row["op"]], {**head, **images})


def timed(what: str, rows: int, work: Callable[[], None], beside: float | None = None) -> float:
    """Mutations per second by the clock; the CPU time of each is printed, too: other work doesn't change it."""
    began, used = time.perf_counter(), time.process_time()
    work()
    rate, each = rows / (time.perf_counter() - began), (time.process_time() - used) / rows * 1e6
    ratio = f"   {rate / beside:5.1f} x" if beside else ""
    print(f"{what:42} {rate:12,.0f} mutations/s   {each:6.2f} us of CPU each{ratio}", flush=True)
    return rate


def into_broker(changes: Sequence[FeedChanges], rows: int) -> list[Figure]:
    rates: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder, broker.Broker(Path(folder) / "broker") as running:
        for number, (name, form) in enumerate(forms().items()):
            sink = KafkaSink(SinkConfig(url=f"kafka://{running.address}"), f"shop/bench-{number}")

            def all_of_it(sink: KafkaSink = sink, form: Format = form) -> None:
                for part in changes:
                    sink.begin()
                    encoded(form, [part], sink.send)
                    sink.commit(FeedPosition(1))

            rate = timed(f"{name}, committed by the broker", rows, all_of_it)
            rates.append((f"feed, {name} committed by the broker", rate, "mutations/s"))
            sink.close()
    return rates


def from_the_log() -> list[Figure]:
    """The narrow log into the broker, staging included, beside Debezium's engine on the server that wrote it."""
    try:
        peers.built("debezium")
    except peers.PeerMissing as missing:
        print(f"skipped Debezium's engine: {missing}")
        return []
    log = bench_logs.kept("narrow")
    with tempfile.TemporaryDirectory() as folder, broker.Broker(Path(folder) / "broker") as running:
        engine = bench_peers.debezium(log, broker=running.address)
        theirs = engine["rows"] / engine["wall"]
        print(f"{'Debezium engine, log to broker':42} {theirs:12,.0f} mutations/s", flush=True)
        for name in ("warmed_up", "measured"):  # Debezium's figures leave out its first third, too

            def ours(name: str = name) -> None:
                into(log, name, f"{folder}/lake", running.address)

            rate = timed(f"binlake {name}, log to broker", log.rows, ours, theirs)
    return [
        ("feed, log to broker", rate, "mutations/s"),
        ("Debezium's engine, log to broker", theirs, "mutations/s"),
        ("feed, log to broker : Debezium's engine", rate / theirs, "x"),
    ]


def into(log: bench_logs.Log, source: str, lake: str, address: str) -> None:
    """The log by way of staging into the broker."""
    origin, quiet = Folder(Path(log.datadir)), Report(quiet=True)
    settings: dict[str, Any] = {
        "source": {"name": source, "connection": Path(log.datadir).as_uri()},
        "tables": {"include": [f"{log.name}.*"]},
        "lake": {"path": lake},
        "feeds": [{"name": "bench", "format": "debezium", "sink": f"kafka://{address}"}],
    }
    config = PipelineConfig.model_validate(settings)
    with mock.patch.object(merge, "apply_steps", return_value=[]):
        pipeline.bootstrap(config, origin, no_spark, quiet)
        pipeline.sync(config, origin, no_spark, quiet)
    run = carry(config, config.feeds[0], PARTS)
    assert run.mutations == log.rows, run


def no_spark(why: str) -> Any:
    raise SystemExit("the bench needs no Spark")


def forms() -> dict[str, Format]:
    return {
        "generic Avro": Generic(GenericFormat(type="generic"), CONTEXT),
        "Debezium's JSON": Debezium(DebeziumFormat(type="debezium"), CONTEXT, JsonWriter()),
        "Debezium's Avro": Debezium(DebeziumFormat(type="debezium"), CONTEXT, AvroWriter(lambda subject, schema: 1)),
    }


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    changes = parts(rows)
    figures: list[Figure] = []
    for name, form in forms().items():

        def plainly(avro: bool = "Avro" in name) -> None:
            one_by_one(changes, avro)

        def ours(form: Format = form) -> None:
            encoded(form, changes, lambda messages: None)

        by_a_library = name != "Debezium's Avro"
        beside = timed(f"{name}, a row at a time by a library", rows, plainly) if by_a_library else None
        figures.append((f"feed, {name}", timed(name, rows, ours, beside), "mutations/s"))
        if beside:
            figures.append((f"feed, {name} a row at a time by a library", beside, "mutations/s"))
    if broker.JARS.is_dir():
        figures += [*into_broker(changes, rows), *from_the_log()]
    else:
        print(f"skipped the broker and Debezium's engine: no {broker.JARS}")
    keep(figures)


if __name__ == "__main__":
    main()
