"""What an older binlake left in metadata is read to the same values; what a newer one left is refused.

``before_formats`` holds what the version before there were format numbers wrote: a batch of each state in the lease's
row, the tables beside it, and what that version recorded of the merged batch.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from binlake.batch.manifest import Manifest
from binlake.batch.outcome import BatchOutcome, DefaultCharset, LifeOutcome, UnsnapshottedOutcome
from binlake.batch.steps import Standstill
from binlake.errors import LakeError, NewerMetadata
from binlake.metadata import formats, lease, record, watermarks
from binlake.metadata.lease import OpenBatch
from binlake.metadata.metadata import Metadata
from binlake.metadata.table_schemas import SCHEMAS
from binlake.position import Position, Range, Slice
from binlake.schema.cascades import Cascade
from binlake.schema.table import Column, Index, TableName, TableSchema, Virtual

WRITTEN = Path(__file__).parent / "before_formats"
SERVER, FILE = "3e11fa47-0000-0000-0000-000000000001", "binlog.000007"


def at(offset: int, gtids: str = "") -> Position:
    return Position(SERVER, FILE, offset, 1700000000, f"{SERVER}:{gtids}" if gtids else "")


def of(table: str) -> TableName:
    return TableName("shop", table)


PLANNED = OpenBatch(
    8,
    Range(at(157, "1-9"), at(9000, "1-20"), (Slice(FILE, 157, 9000, 1700000000, whole=False),)),
    until_us=1700000002000000,
    planned_us=1700000003000000,
    phases=(("plan", 0.13),),
    cascades=(Cascade(of("child"), of("parent"), "fk", ("parent_id",), ("id",), "CASCADE", "SET NULL"),),
    lower_case_names=True,
)
STAGED = replace(
    PLANNED,
    state="staged",
    attempt="1700000000-abcdef01",
    phases=(("plan", 0.13), ("stage", 1.5)),
    content="605d4f1deb71a8d1e6b371e7da77ba32",
)
ORDERS = TableSchema(
    (
        Column("id", "bigint", unsigned=True, nullable=False, auto_increment=True),
        Column("state", "enum", charset="utf8mb4", values=("new", "päid"), default="new"),
        Column("price", "decimal", precision=10, scale=2),
        Column("twice", "decimal", precision=10, scale=2, generated=True, virtual=Virtual("`price` * 2", "mysql")),
        Column("secret", "varchar", length=20, charset="latin1"),
    ),
    ("id",),
    "primary",
    frozenset({"secret", "another"}),
    "latin1",
    (Index("by_state", ("state", None), (3, None), unique=True),),
    (Column("old", "int"),),
    ("twice",),
)


def stored(name: str) -> Any:
    return json.loads((WRITTEN / f"{name}.json").read_text())


def metadata_with(folder: Path, state: str) -> Metadata:
    """As the older version left it, with a batch in this state."""
    metadata = Metadata(str(folder))
    metadata.create_with("lease", [stored(state)])
    for name, rows in stored("metadata").items():
        if name in SCHEMAS:
            metadata.append(name, rows)
        elif rows:  # a table that is part of the lease's row by now
            write_deltalake(f"{folder}/{name}", pa.Table.from_pylist(rows))
    return metadata


@pytest.mark.parametrize(("state", "expected"), [("planned", PLANNED), ("staged", STAGED)])
def test_an_older_open_batch_is_read(tmp_path: Path, state: str, expected: OpenBatch) -> None:
    metadata = metadata_with(tmp_path, state)
    control = lease.read(metadata)
    assert (control.batch, control.open, control.position) == (8, expected, at(157, "1-9"))
    with lease.held(metadata) as held:
        held.advance(expected)
    assert lease.read(metadata).open == expected
    assert json.loads(metadata.read("lease")[0]["plan"])["format"] == formats.FORMAT


def test_an_older_merged_batch_is_read(tmp_path: Path) -> None:
    merged = lease.read(metadata_with(tmp_path, "merged")).open
    assert merged is not None
    assert (merged.state, replace(merged, state="staged", outcome=BatchOutcome(), phases=STAGED.phases)) == (
        "merged",
        STAGED,
    )
    lives = {life.name.table: life for life in merged.outcome.lives}
    assert lives["orders"] == LifeOutcome(
        "life of orders", of("orders"), at(157), at(157), "following", None, ORDERS.fingerprint, True, 3, 2, 1, 9, 0.25
    )
    assert lives["undecodable"].standstill == Standstill(
        f"{FILE}:800: a table map without metadata", "SET GLOBAL binlog_row_metadata = 'FULL'", raw=b"\0\1\xff\xfb"
    )
    assert not lives["quiet"].changed
    assert merged.outcome.lifeless == (
        UnsnapshottedOutcome(of("unknown"), "missing", "included, but never snapshotted"),
    )
    assert merged.outcome.charsets == (DefaultCharset("shop", "latin1"), DefaultCharset("other", "latin1"))
    assert [
        (transaction.xid, transaction.batch, len(transaction.files)) for transaction in merged.outcome.prepared
    ] == [
        ("X'62',X'',1", 5, 1),
        ("X'61',X'',1", 8, 1),
    ]


def test_an_older_merged_batch_is_recorded_as_its_own_version_would(tmp_path: Path) -> None:
    metadata = metadata_with(tmp_path, "merged")
    with lease.held(metadata) as held:
        opened = held.control().open
        assert opened is not None
        record.record_batch(held, held.metadata, opened)
    expected = stored("recorded")
    for row in expected["quarantine"]:
        row["file"] = row["offset"] = None  # of which the open batch had only words
        row["raw"] = bytes.fromhex(row["raw"])
    for row in expected["runs"]:  # which didn't tell why Spark was needed
        row["tables"] = json.dumps([{**table, "why_spark": ""} for table in json.loads(row["tables"])])
    for name in ("watermarks", "quarantine", "runs", "batches"):
        rows = watermarks.read(metadata) if name == "watermarks" else metadata.read(name)
        recorded = [{key: row[key] for key in expected[name][0]} for row in rows]
        assert sorted(map(parsed, recorded), key=str) == sorted(map(parsed, expected[name]), key=str), name
    control = lease.read(metadata)
    assert (control.open, control.position) == (None, at(9000, "1-20"))


def parsed(row: dict[str, Any]) -> dict[str, Any]:
    """With its JSON as values: how that is spaced doesn't matter."""
    return {key: json.loads(value) if str(value)[:1] in ("{", "[") else value for key, value in row.items()}


def test_older_tables_are_read(tmp_path: Path) -> None:
    metadata = metadata_with(tmp_path, "planned")
    lives = {life.name.table: life for life in watermarks.read_lives(metadata, open_batch=8)}
    orders = lives["orders"]
    assert (orders.schema, orders.schema.indexes, orders.schema.kept) == (ORDERS, ORDERS.indexes, ORDERS.kept)
    assert (orders.low, orders.high, orders.status, orders.delta_version) == (at(157), at(157), "following", 4)
    (fingerprint,) = [row["fingerprint"] for row in stored("metadata")["schemas"] if row["table"] == "orders"]
    assert orders.fingerprint == fingerprint
    assert lives["halted"].standstill == Standstill("binlog.000006:300: ALTER TABLE", "snapshot this table again")
    recorded_state = lease.read(metadata).recorded_state
    assert recorded_state is not None
    assert (recorded_state.batch, recorded_state.position) == (7, at(157, "1-9"))
    (waiting,) = recorded_state.prepared
    assert (waiting.xid, waiting.batch, waiting.file, waiting.after, waiting.prepared) == ("X'62',X'',1", 5, 6, 4, 99)
    (file,) = waiting.files
    assert (file.name, file.columns, file.ranges) == (of("orders"), ORDERS.columns, {"id": (1, 2**64 - 1)})
    assert (file.xids, file.void, file.last) == ({"X'62',X'',1": (1, 0, 0)}, ((20, 0, 20, 1),), (7, 60, 5))
    assert recorded_state.charsets == {"shop": "utf8mb4", "other": "latin1"}


def test_an_older_manifest_tells_the_same_content() -> None:
    manifest = Manifest.from_json((WRITTEN / "manifest.json").read_text())
    assert manifest.content == json.loads(stored("staged")["plan"])["content"]
    (part,) = manifest.slices
    assert part.stopped[0].raw == b"\0\1\xff\xfb"
    assert part.statements[0].session.time_zone == "+05:30"


@pytest.mark.parametrize("column", ["plan", "position"])
def test_what_a_newer_binlake_wrote_is_refused(tmp_path: Path, column: str) -> None:
    metadata = metadata_with(tmp_path, "planned")
    with lease.held(metadata) as held:
        held.update(**{column: json.dumps({"format": formats.FORMAT + 1, "anything": "else"})})
    with pytest.raises(NewerMetadata, match="update binlake") as refused, lease.held(metadata):
        pass
    assert not refused.value.retryable
    with pytest.raises(NewerMetadata):
        lease.read(metadata)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "batch": "8"}', '{"format": "x"}'])
def test_what_nobody_wrote_says_what_to_do(text: str) -> None:
    with pytest.raises(LakeError, match="restore"):
        formats.read(OpenBatch, text)
