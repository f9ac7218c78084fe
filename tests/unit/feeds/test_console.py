"""What the console makes of messages, its own and foreign ones, and of a broker's errors."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from binlake.binlog.border import Stopped
from binlake.cli import command_line
from binlake.errors import SinkFailed
from binlake.feeds import consume
from binlake.feeds.carry import BatchReader
from binlake.feeds.console import ConsoleSink
from binlake.feeds.contract import Message
from binlake.feeds.schema_registry import SchemaRegistry
from binlake.planner.manifest import Manifest, StagedSlice
from binlake.position import Position, Range
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata
from fake_registry import FakeRegistry
from recorded_lake import record_lake
from servers import die_with_parent

SCHEMA: dict[str, Any] = {
    "type": "record", "name": "user_insert", "fields": [{"name": "id", "type": "int"}, {"name": "v", "type": "string"}]
}  # fmt: skip


def record() -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(SCHEMA), {"id": 7, "v": "é"})
    return data.getvalue()


def test_specific_avro_in_both_forms_and_foreign_bytes() -> None:
    with FakeRegistry() as registry:
        known = SchemaRegistry(registry.url)
        number = known.register("s", SCHEMA)
        confluent = b"\x00" + number.to_bytes(4, "big") + record()
        mypipe = b"\x00\x01" + number.to_bytes(2, "big") + record()
        assert consume.readable(confluent, known.schema) == '{"id": 7, "v": "é"}'
        assert consume.readable(mypipe, known.schema) == '{"op": "insert", "id": 7, "v": "é"}'
        assert consume.readable(b"\x00\x01\x02\x03\xff\xff", known.schema) == "0x00010203ffff"
        out = io.StringIO()
        ConsoleSink(out, known.schema).send([Message("t", b"k", confluent), Message("t", confluent, None)])
        assert out.getvalue() == '{"id": 7, "v": "é"}\n{"id": 7, "v": "é"} (tombstone)\n'


class Consumer:
    """Gives an error and then the end of its partition."""

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)

    def list_topics(self, topic: str, patience: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def assign(self, partitions: Any) -> None:
        """They are one."""

    def poll(self, patience: float) -> Any:
        error = KafkaError(self._codes.pop(0))
        return SimpleNamespace(error=lambda: error, partition=lambda: 0)

    def close(self) -> None:
        """Nothing is open."""


def test_an_error_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = consume.Consuming("t")
    refused = Consumer(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(consume, "consumer_of", lambda *_: refused)
    with pytest.raises(SinkFailed, match=r"Kafka at b:1 didn't send t: .*[Aa]uthorization"):
        consume.consume("b:1", asked, io.StringIO())
    monkeypatch.setattr(consume, "consumer_of", lambda *_: Consumer(KafkaError._PARTITION_EOF))
    consume.consume("b:1", asked, io.StringIO())


def lake(folder: Path, *batches: dict[str, pa.Table]) -> Path:
    """Write a lake with the table shop.t, whose batches are staged; return its YAML."""
    record_lake(folder / "shop", {"shop.t": pa.table({"id": [1]})}, *batches)
    for batch, _ in enumerate(batches, 1):
        (folder / f"shop/_staging/{batch}").mkdir(parents=True)
    yaml = folder / "shop.yaml"
    yaml.write_text(
        "source: {name: shop, connection: c, server_id: 4001}\n"
        f"tables: {{include: ['shop.*']}}\nlake: {{path: {folder}}}\n"
    )
    return yaml


def test_what_cant_be_decoded_is_passed_over_by_table_or_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = Stopped(TableName("shop", "t"), "binlog.000001", 500, "a date that no calendar has", "…")
    manifest = Manifest(1, "a", (StagedSlice(0, (), (), (stopped,)),))
    planned = Range(Position("s", "binlog.000001", 4, 1), Position("s", "binlog.000001", 900, 1), ())
    monkeypatch.setattr(BatchReader, "_staged", lambda reader, batch: (manifest, planned))
    assert command_line.run(["tail", "--config", str(lake(tmp_path, {}))]) == 3
    said = capsys.readouterr().err
    assert "can't decode binlog.000001:500, an event of shop.t: a date that no calendar has" in said
    assert "→ print other tables alone: --table DB.T; or begin behind it: --from 2\n" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_tail_that_is_ended_keeps_no_staging_any_more(tmp_path: Path, number: signal.Signals) -> None:
    yaml, metadata = lake(tmp_path), Metadata(f"{tmp_path}/shop/_binlake")
    command = [sys.executable, "-m", "binlake.cli.command_line", "tail", "--follow", "--config", str(yaml)]
    with subprocess.Popen(command, preexec_fn=die_with_parent) as process:
        until = time.monotonic() + 60
        while not any(row["batch"] == 0 for row in metadata.read("feeds")) and time.monotonic() < until:
            time.sleep(0.1)
        assert metadata.read("feeds"), "staging is kept for it"
        process.send_signal(number)
        assert process.wait(60) == 0
    assert metadata.read("feeds") == []
