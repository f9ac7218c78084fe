"""What stands in the way of a purge, and what is said of it. No server is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from binlake.cli import command_line
from binlake.config import PipelineConfig
from binlake.delta.delta_log import LakeLog
from binlake.errors import UsageError
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.maintain import purge_look
from binlake.maintain.purge import purge
from binlake.pipeline import metadata_of
from binlake.planner.steps import Life, Standstill
from binlake.position import Position
from binlake.records import feed_watermarks, watermarks
from binlake.records.decisions import Reason
from binlake.records.feed_watermarks import FeedLimits
from binlake.report import Report
from binlake.schema.table import Column, TableName, TableSchema
from binlake.store.metadata import now_us
from binlake.store.rows import BatchRow, ChunkRow, PinRow, QuarantineRow, ReadableRow, ShapeRow, VersionRow

HERE = Position("s", "b.000001", 4, 1)
NAME = TableName("d", "t")
MERGED = {"from": "%.t", "into": "all.merged", "source_column": "n"}
SHAPE = TableSchema((Column("id", "int"),), ("id",), "primary")


def lake(folder: Path, life: Life, **options: Any) -> PipelineConfig:
    """A source with one table, at batch 3."""
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "s", "connection": "c", "server_id": 1},
            "tables": {"include": ["d.*"]},
            "lake": {"path": str(folder)},
            **options,
        }
    )
    rows = pa.table({"id": pa.array([1], pa.int32())})
    write_deltalake(config.table_path(life.name), rows)
    write_deltalake(config.table_path(life.name), rows, mode="overwrite")
    metadata = metadata_of(config)
    with lease.held(metadata) as held:
        watermarks.started(metadata, [life], batch=0, versions={life.id: 1})
        held.stand(RecordedState(3, HERE))
    return config


def obstacles(config: PipelineConfig) -> list[str]:
    (table,) = purge_look.look(config, metadata_of(config), ["d.t"])
    return [obstacle.why for obstacle in table.obstacles]


def test_nothing_stands_in_the_way_of_a_table_that_was_copied(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    (table,) = purge_look.look(config, metadata_of(config), ["d.t"])
    assert table.obstacles == ()
    first = table.kept[0]
    assert (first.what, first.count) == ("data files of earlier versions", 1)


@pytest.mark.parametrize(
    ("status", "options", "why"),
    [
        ("stopped", {}, "it is stopped"),
        ("following", {"rows": [{"tables": "d.t", "where": "id > 1"}]}, "it wasn't copied under the settings"),
        ("following", {"merge_tables": [MERGED]}, "it is a part of all.merged"),
    ],
)
def test_a_table_that_was_not_copied_or_is_a_part_of_another_is_refused(
    tmp_path: Path, status: Any, options: dict[str, Any], why: str
) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE, status, Standstill("why")), **options)
    assert any(each.startswith(why) for each in obstacles(config))
    with pytest.raises(UsageError, match=r"d\.t can't be purged"):
        purge(config, Report(quiet=True), ["d.t"], Reason("ann", ""), patience=0)


def test_whoever_needs_what_is_to_go_is_named(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "s" / "d" / "t__history", pa.table({"id": [1]}))
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    metadata, at = metadata_of(config), now_us()
    version: dict[str, Any] = {"batch": 2, "kind": "batch", "at_us": at, "position": str(HERE)}
    VersionRow.append(
        metadata, [VersionRow(**version), VersionRow(**version, table_id="b", database="d", table="t", delta_version=0)]
    )
    PinRow.append(metadata, [PinRow(name="kept", batch=2, who="ann", why="", at_us=at)])
    write_deltalake(LakeLog.beside(config, NAME, "log").path, pa.table({"id": [1]}))
    chunk = ChunkRow(
        snapshot="n", table_id=None, database="d", table="t", chunk=0, state="copied", schema="", updated_us=at
    )
    ChunkRow.append(metadata, [chunk])
    place = Path(config.staging_path("1", "0-a"))
    place.mkdir(parents=True)
    (place / "x.parquet").write_bytes(b"x")
    planned: dict[str, Any] = {
        "state": "recorded",
        "start": str(HERE),
        "stop": str(HERE),
        "range": _range(),
        "planned_us": at,
    }
    BatchRow.append(metadata, [BatchRow(batch=1, updated_us=at, **planned)])
    feed_watermarks.register(metadata, "out", FeedLimits(1, 24))
    told = obstacles(config)
    for part in ("is pinned as kept", "its history, ", "a snapshot of it isn't finished", "waits for feeds (out)"):
        assert any(part in why for why in told), part
    assert len(told) == 4, "the log was begun since"


def _range() -> str:
    from binlake.position import Range
    from binlake.serialization import dumps

    earlier = Position("other", "b.000001", 4, 1)
    return dumps(Range(earlier, earlier, ()))


def test_a_look_changes_nothing_and_nobody_is_asked_in_vain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = lake(tmp_path / "lake", Life("a", NAME, SHAPE, HERE, HERE))
    yaml = tmp_path / "s.yaml"
    yaml.write_text(config.model_dump_json())
    asked = ["purge", "--config", str(yaml), "--tables", "d.t"]
    assert command_line.run([*asked, "--dry-run"]) == 0
    assert "1 data files of earlier versions" in capsys.readouterr().out
    assert command_line.run(asked) == 2
    assert "nobody is there to say yes" in capsys.readouterr().err
    assert command_line.run([*asked, "--yes", "-q"]) == 0
    assert "d.t is purged: 1 data file " in capsys.readouterr().out
    assert command_line.run([*asked, "--dry-run"]) == 0
    assert "nothing is kept from before, it was purged" in capsys.readouterr().out


def test_a_table_that_was_called_so_once_keeps_what_is_its_own(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    metadata, at = metadata_of(config), now_us()
    told = TableSchema((Column("id", "int"), Column("kind", "enum", values=("former",), default="former")), ("id",))
    other, before = Life("c", TableName("d", "c"), told, HERE, HERE), Life("o", NAME, told, HERE, HERE, "dropped")
    watermarks.started(metadata, [other], batch=0, versions={"c": 1})
    renamed = [replace(other, name=NAME), before, replace(before, name=TableName("d", "old"))]
    ShapeRow.append(metadata, [watermarks.schema_row(life, batch=0, where=HERE, why="followed") for life in renamed])
    version: dict[str, Any] = {"batch": 1, "kind": "batch", "at_us": at, "database": "d", "table": "t"}
    VersionRow.append(metadata, [VersionRow(**version, table_id=key, delta_version=0) for key in "co"])
    stopped: dict[str, Any] = {"batch": 1, "database": "d", "reason": "", "raw": b"former", "at_us": 1}
    QuarantineRow.append(
        metadata, [QuarantineRow(**stopped, table="old"), QuarantineRow(**stopped, table="t", table_id="c")]
    )
    purge(config, Report(quiet=True), ["d.t"], Reason("ann", ""), patience=0)
    values = {(row.table_id, row.table): "former" in row.schema for row in ShapeRow.read(metadata)}
    assert values == {("a", "t"): False, ("c", "c"): True, ("c", "t"): True, ("o", "t"): False, ("o", "old"): False}
    assert {row.table_id for row in ReadableRow.read(metadata)} == {"a", "o"}
    assert [row.table_id for row in QuarantineRow.read(metadata)] == ["c"]
