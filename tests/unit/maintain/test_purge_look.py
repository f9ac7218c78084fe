"""What stands in the way of a purge, and what is said of it. No server is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from binlake.cli import command_line
from binlake.config import PipelineConfig
from binlake.config.table_modes import BESIDE, BesideMode
from binlake.delta.delta_log import LakeLog
from binlake.errors import UsageError
from binlake.lake.lake_versions import lake_versions
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.maintain import purge_look, purged_log
from binlake.maintain.former_values import former_values
from binlake.maintain.purge import purge
from binlake.pipeline import metadata_of
from binlake.planner.steps import Life, Standstill
from binlake.position import Position
from binlake.records import feed_watermarks, watermarks
from binlake.records.decisions import Reason
from binlake.records.feed_watermarks import FeedLimits, FeedPosition, TableAtVersion
from binlake.report import Report
from binlake.schema.table import Column, TableName, TableSchema
from binlake.store.metadata import now_us
from binlake.store.rows import (
    BatchRow,
    ChunkRow,
    DecisionRow,
    PinRow,
    QuarantineRow,
    ReadableRow,
    ShapeRow,
    StatementRow,
    VersionRow,
)
from binlake.store.run_rows import VerificationRow

HERE = Position("s", "b.000001", 4, 1)
NAME = TableName("d", "t")
MERGED = {
    "from": "%.t", "into": "all.merged", "source_column": "n",
    "sources": ["s", "other"], "source_name_column": "source", "folder": "company",
}  # fmt: skip
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
        ("following", {"merge_tables": [MERGED]}, "it is a part of all.merged, which several sources fill"),
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
    assert {row.table_id for row in ReadableRow.read(metadata)} == {"a", "c", "o"}
    assert [row.table_id for row in QuarantineRow.read(metadata)] == ["c"]


def test_rows_that_name_no_life_are_of_the_table_that_had_the_name_then(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    metadata, other = metadata_of(config), Life("p", TableName("d", "p"), SHAPE, HERE, HERE)
    called(config, ("o", "t"), ("o", "p"))
    watermarks.started(metadata, [other], batch=4, versions={"p": 0})
    again = watermarks.schema_row(Life("a", NAME, SHAPE, HERE, HERE), batch=6, where=HERE, why="snapshot")
    ShapeRow.append(metadata, [replace(again, at_us=now_us() + 10_000_000)])
    for at, batch in ((1, 3), (now_us() + 1_000_000, 5)):
        raw: dict[str, Any] = {"batch": batch, "database": "d", "table": "p", "at_us": at}
        QuarantineRow.append(metadata, [QuarantineRow(**raw, reason="", raw=b"former")])
        VerificationRow.append(metadata, [VerificationRow(**raw, verification="v")])
        StatementRow.append(metadata, [_statement(batch)])
    purge(config, Report(quiet=True), ["d.t"], Reason("ann", ""), patience=0)
    assert [row.batch for row in QuarantineRow.read(metadata)] == [5]
    assert [row.batch for row in VerificationRow.read(metadata)] == [5]
    statements = {row.batch: row.statement for row in StatementRow.read(metadata)}
    assert {batch: "former" in text for batch, text in statements.items()} == {3: False, 5: True}


def _statement(batch: int) -> StatementRow:
    return StatementRow(
        batch=batch, file="b.000001", offset=batch, position=str(HERE), committed_us=1, database="d", table="p",
        statement="ALTER TABLE p COMMENT 'former'", kind="alter", action="none",
    )  # fmt: skip


def test_status_says_the_command_and_what_is_in_its_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    masked = {"columns": [{"columns": "d.t.name", "null": True}], "rows": [{"tables": "d.u", "where": "id > 1"}]}
    shape = TableSchema((Column("id", "int"), Column("name", "int")), ("id",), "primary")
    config = lake(tmp_path, Life("o", NAME, shape, HERE, HERE, "dropped"), **masked)
    other = TableName("d", "u")
    now = [Life("a", NAME, config.excluding(NAME, shape), HERE, HERE)]
    now += [Life("b", other, config.excluding(other, replace(SHAPE, where="id > 1")), HERE, HERE)]
    before = [Life("o", NAME, shape, HERE, HERE), Life("p", other, SHAPE, HERE, HERE)]
    rows = [watermarks.schema_row(life, batch=0, where=HERE, why="followed") for life in before]
    ShapeRow.append(metadata_of(config), rows)
    watermarks.started(metadata_of(config), now, batch=0, versions={"a": 1, "b": 1})
    noted(config, 2, ("a", "t", 0))
    pin(config, 2)
    yaml = tmp_path / "s.yaml"
    yaml.write_text(config.model_dump_json())
    assert command_line.run(["status", "--config", str(yaml)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for table in ("d.t", "d.u"):
        assert f"{table}: earlier versions have values of columns, or rows, that are withheld since" in said
        assert f"→ binlake purge --config FILE --tables {table}" in said
    assert said.count("in the way of a purge: batch 2 is pinned as kept, with a version of it") == 2


def test_values_from_before_a_copy_at_the_same_position_or_under_another_name_are_former_ones(tmp_path: Path) -> None:
    masked = {"columns": [{"columns": f"d.{table}.name", "null": True} for table in ("t", "u")]}
    shape = TableSchema((Column("id", "int"), Column("name", "int")), ("id",), "primary")
    config = lake(tmp_path, Life("a", NAME, shape, HERE, HERE), **masked)
    metadata, other = metadata_of(config), TableName("d", "u")
    called(config, ("o", "u"))
    old = watermarks.schema_row(
        Life("o", TableName("d", "old"), shape, HERE, HERE), batch=0, where=HERE, why="followed"
    )
    ShapeRow.append(metadata, [old])
    now = [Life(key, name, config.excluding(name, shape), HERE, HERE) for key, name in (("a", NAME), ("b", other))]
    watermarks.started(metadata, now, batch=1, versions={"a": 1, "b": 1})
    assert [each.table for each in former_values(config, metadata)] == ["d.t", "d.u"]
    assert [each.table for each in former_values(config, metadata, other)] == ["d.u"]


def test_values_of_a_masked_column_that_was_dropped_before_the_copy_are_former_ones(tmp_path: Path) -> None:
    masked = {"columns": [{"columns": "d.t.name", "null": True}]}
    shape = TableSchema((Column("id", "int"), Column("name", "int")), ("id",), "primary")
    config = lake(tmp_path, Life("o", NAME, shape, HERE, HERE), **masked)
    watermarks.started(metadata_of(config), [Life("a", NAME, SHAPE, HERE, HERE)], batch=1, versions={"a": 1})
    assert [each.table for each in former_values(config, metadata_of(config))] == ["d.t"]


OF_SEVERAL = ("all.orders", "tenant", "7", "merged", "source")
OF_THIS = ("all.orders", "tenant", "7")


def was_in(config: PipelineConfig, place: tuple[str, ...]) -> str:
    """Let d.t have had a place in a merged table before its copy, where its rows are yet; return the folder."""
    former = Life("o", NAME, replace(SHAPE, shard=place), HERE, HERE, "dropped")
    metadata = metadata_of(config)
    ShapeRow.append(metadata, [watermarks.schema_row(former, batch=0, where=HERE, why="followed")])
    folder = config.places_of(NAME, place)[0]
    write_deltalake(folder, pa.table({"id": [1]}))
    return folder


def remedies(config: PipelineConfig) -> dict[str, str]:
    (table,) = purge_look.look(config, metadata_of(config), ["d.t"])
    return {obstacle.why: obstacle.remedy for obstacle in table.obstacles}


def test_only_its_own_folder_in_a_table_of_several_sources_is_to_be_removed(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    own = was_in(config, OF_SEVERAL)
    write_deltalake(tmp_path / "merged/all/orders/source=second.tenant=7", pa.table({"id": [1]}))
    assert own == f"{tmp_path}/merged/all/orders/source=s.tenant=7"
    assert remedies(config) == {
        f"{own} is there, where it was before merge_tables changed": "remove that folder, then purge"
    }


def test_a_folder_that_a_merged_table_of_others_shows_or_may_show_stays(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    own = was_in(config, OF_SEVERAL)
    write_deltalake(tmp_path / "merged/all/orders", pa.table({"id": [1]}))
    shown = {str(DeltaTable(own).metadata().id): 0}
    for answer in ({"return_value": shown}, {"side_effect": PermissionError(13, "no")}):
        with mock.patch("binlake.delta.composed_table.shown_versions", **answer):
            ((why, remedy),) = remedies(config).items()
        assert why.endswith(f"{tmp_path}/merged/all/orders shows what is in it")
        assert remedy.startswith("don't remove it as it is")


@pytest.mark.parametrize("status", ["following", "stopped", "dropped"])
def test_a_folder_with_the_only_copy_of_another_table_is_not_to_be_removed(tmp_path: Path, status: Any) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    was_in(config, OF_THIS)
    place = ("all.orders", "tenant", "8")
    shape, name = replace(SHAPE, shard=place), TableName("d", "eight")
    write_deltalake(config.places_of(name, place)[0], pa.table({"id": [1]}))
    other = Life("b", name, shape, HERE, HERE, status, None if status == "following" else Standstill("why"))
    watermarks.started(metadata_of(config), [other], batch=0, versions={"b": 0})
    ((why, remedy),) = remedies(config).items()
    assert why.startswith(
        f"{config.root}/all/orders is there, where it was before merge_tables changed, and has d.eight"
    )
    assert remedy.startswith("don't remove it as it is")


def test_its_own_only_copy_is_not_to_be_removed(tmp_path: Path) -> None:
    life = Life("a", NAME, replace(SHAPE, shard=OF_THIS), HERE, HERE)
    config = lake(tmp_path, life)
    was_in(config, OF_THIS)
    asked = remedies(config)
    assert not [remedy for remedy in asked.values() if remedy.startswith("remove that folder")]
    assert any(why.endswith("has d.t, which isn't copied to another place yet") for why in asked)


@pytest.mark.parametrize(("beside", "is_named"), [("source=second.tenant=7", False), ("", True)])
def test_a_folder_with_a_table_that_nobody_knows_stays(tmp_path: Path, beside: str, is_named: bool) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    was_in(config, OF_THIS)
    if beside:
        write_deltalake(f"{config.root}/all/orders/{beside}", pa.table({"id": [1]}))
    ((why, remedy),) = remedies(config).items()
    assert ("has a table of somebody else" in why) is not is_named
    assert (remedy == "remove that folder, then purge") is is_named


def test_a_merged_table_that_has_a_former_name_is_not_to_be_removed(tmp_path: Path) -> None:
    merged = {**MERGED, "from": "%.other", "into": "d.orders"}
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE), merge_tables=[merged])
    called(config, ("o", "orders"), ("o", "t"))
    write_deltalake(tmp_path / "company/d/orders", pa.table({"id": [1]}))
    ((why, remedy),) = remedies(config).items()
    assert why.endswith("of d.orders, which it was called, and is the place of d.orders")
    assert remedy.startswith("don't remove it as it is")


@pytest.mark.parametrize("error", [PermissionError(13, "no"), pa.ArrowInvalid("no Parquet")])
def test_a_merged_table_whose_log_cannot_be_read_stands_in_the_way(tmp_path: Path, error: Exception) -> None:
    life = Life("a", NAME, replace(SHAPE, shard=OF_THIS), HERE, HERE)
    entry = {"from_regex": r"d\.(t)", "into": "all.orders", "source_column": "tenant"}
    config = lake(tmp_path, life, merge_tables=[entry])
    write_deltalake(f"{config.root}/all/orders", pa.table({"id": [1]}))
    with mock.patch("binlake.delta.composed_table.shown_versions", side_effect=error):
        assert any(why.startswith("all.orders doesn't show it as it is") for why in obstacles(config))


MASKED = {"columns": [{"columns": "d.*.name", "null": True}]}
WITH_NAME = TableSchema((Column("id", "int"), Column("name", "int")), ("id",), "primary")


def test_nothing_more_is_read_where_no_table_was_copied_again(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("o", TableName("d", "other"), WITH_NAME, HERE, HERE), **MASKED)
    metadata, names = metadata_of(config), [TableName("d", f"t{number}") for number in range(9)]
    lives = [Life(str(name), name, config.excluding(name, WITH_NAME), HERE, HERE) for name in names]
    watermarks.started(metadata, lives, batch=0, versions={life.id: 0 for life in lives})
    known = watermarks.read_lives(metadata)
    with (
        mock.patch.object(watermarks, "read_lives", return_value=known),
        mock.patch.object(ShapeRow, "read", wraps=ShapeRow.read) as shapes,
        mock.patch.object(VersionRow, "read", wraps=VersionRow.read) as versions,
        mock.patch.object(purge_look, "before_copy", wraps=purge_look.before_copy) as before_copy,
    ):
        assert former_values(config, metadata) == []
    assert (shapes.call_count, versions.call_count, before_copy.call_count) == (1, 0, 0)


def test_the_paths_of_all_tables_are_made_once(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("o", TableName("d", "other"), WITH_NAME, HERE, HERE), **MASKED)
    metadata, names = metadata_of(config), [TableName("d", f"t{number}") for number in range(20)]
    before = [Life(f"old {name}", name, WITH_NAME, HERE, HERE, "dropped") for name in names]
    rows = [watermarks.schema_row(life, batch=0, where=HERE, why="followed") for life in before]
    ShapeRow.append(metadata, rows)
    lives = [Life(str(name), name, config.excluding(name, WITH_NAME), HERE, HERE) for name in names]
    watermarks.started(metadata, lives, batch=1, versions={life.id: 0 for life in lives})
    with mock.patch.object(PipelineConfig, "table_path", autospec=True, side_effect=PipelineConfig.table_path) as paths:
        assert len(former_values(config, metadata)) == 20
    assert paths.call_count < 20 * 8


def test_a_table_that_is_asked_for_has_what_it_has_among_all(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE), **MASKED)
    metadata, other = metadata_of(config), TableName("d", "other")
    lives = [
        Life(key, name, config.excluding(name, WITH_NAME), HERE, HERE) for key, name in (("b", NAME), ("c", other))
    ]
    watermarks.started(metadata, [Life("a", NAME, SHAPE, HERE, HERE, "dropped")], batch=1, versions={"a": 1})
    watermarks.started(metadata, lives, batch=1, versions={"b": 1, "c": 1})
    called(config, ("p", "t"))
    noted(config, 1, ("p", "x", 0), ("o", "x", 0))
    old = Life("o", TableName("d", "old"), WITH_NAME, HERE, HERE, "dropped")
    ShapeRow.append(metadata, [watermarks.schema_row(old, batch=0, where=HERE, why="followed")])
    assert [each.table for each in former_values(config, metadata)] == ["d.t"]
    known = watermarks.read_lives(metadata)
    with (
        mock.patch.object(watermarks, "read_lives", return_value=known),
        mock.patch.object(ShapeRow, "read", wraps=ShapeRow.read) as shapes,
        mock.patch.object(VersionRow, "read", wraps=VersionRow.read) as versions,
    ):
        assert [each.table for each in former_values(config, metadata, NAME)] == ["d.t"]
        assert former_values(config, metadata, other) == []
    assert all(call.kwargs.get("where") for call in shapes.call_args_list), "rows of other tables aren't read"
    assert all("OR" in call.kwargs["where"] for call in versions.call_args_list)


def test_all_names_are_asked_once_for_all_tables(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    metadata = metadata_of(config)
    others = [Life(key, TableName("d", key), SHAPE, HERE, HERE) for key in "bcd"]
    watermarks.started(metadata, others, batch=0, versions={key: 0 for key in "bcd"})
    reads = []
    for pattern in ("d.t", "d.*"):
        with (
            mock.patch.object(ShapeRow, "read", wraps=ShapeRow.read) as shapes,
            mock.patch.object(VersionRow, "read", wraps=VersionRow.read) as versions,
        ):
            tables = purge_look.look(config, metadata, [pattern])
        reads.append((len(tables), shapes.call_count, versions.call_count))
    (one, *of_one), (four, *of_four) = reads
    assert (one, four) == (1, 4)
    assert of_one == of_four


def noted(config: PipelineConfig, batch: int, *tables: tuple[str, str, int]) -> None:
    """A batch's version with tables: life, name, Delta version."""
    version: dict[str, Any] = {"batch": batch, "kind": "batch", "at_us": now_us(), "position": str(HERE)}
    rows = [
        VersionRow(**version, table_id=life, database="d", table=name, delta_version=number, status="following")
        for life, name, number in tables
    ]
    VersionRow.append(metadata_of(config), [VersionRow(**version), *rows])


def pin(config: PipelineConfig, batch: int) -> None:
    PinRow.append(metadata_of(config), [PinRow(name="kept", batch=batch, who="ann", why="", at_us=now_us())])


def called(config: PipelineConfig, *names: tuple[str, str]) -> None:
    """Names that lives had once."""
    lives = [Life(key, TableName("d", name), SHAPE, HERE, HERE, "dropped") for key, name in names]
    rows = [watermarks.schema_row(life, batch=0, where=HERE, why="followed") for life in lives]
    ShapeRow.append(metadata_of(config), [replace(row, at_us=1) for row in rows])


def test_what_another_table_had_in_the_folder_cannot_be_read_and_what_it_has_now_can(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    metadata = metadata_of(config)
    noted(config, 1, ("c", "t", 0))
    noted(config, 2, ("c", "c", 0), ("a", "t", 1))
    noted(config, 3)
    purge(config, Report(quiet=True), ["d.t"], Reason("ann", ""), patience=0)
    known = {version.batch: version for version in lake_versions(metadata)}
    assert {batch: version.readable for batch, version in known.items()} == {1: False, 2: False, 3: True}
    assert known[3].tables == {"d.c": 0, "d.t": 2}


def test_a_version_pinned_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    metadata, leave = metadata_of(config), purged_log.leave
    noted(config, 2, ("a", "t", 0))
    noted(config, 3)

    def pinned_meanwhile(path: str, note: Mapping[str, Any]) -> purged_log.Past:
        pin(config, 2)
        return leave(path, note)

    monkeypatch.setattr(purged_log, "leave", pinned_meanwhile)
    with pytest.raises(UsageError, match="batch 2 is pinned as kept"):
        purge(config, Report(quiet=True), ["d.t"], Reason("ann", ""), patience=0)
    assert ReadableRow.read(metadata) == []
    assert DecisionRow.read(metadata) == []
    assert DeltaTable(config.table_path(NAME), version=0).to_pyarrow_table().to_pylist() == [{"id": 1}]
    PinRow.replace(metadata, "true")
    monkeypatch.setattr(purged_log, "leave", leave)
    assert purge(config, Report(quiet=True), ["d.t"], Reason("ann", ""), patience=0).purged


def test_pins_of_former_names_come_before_the_folder_that_they_need(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    called(config, ("o", "t"), ("o", "old"))
    write_deltalake(config.table_path(TableName("d", "old")), pa.table({"id": [1]}))
    noted(config, 2, ("o", "old", 0))
    assert [why.partition(" ")[0] for why in obstacles(config)] == [config.table_path(TableName("d", "old"))]
    pin(config, 2)
    first, second = obstacles(config)
    assert first.startswith("batch 2 is pinned as kept")
    assert "which it was called" in second


def test_another_table_in_a_former_folder_is_purged_too(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    former = Life("p", TableName("d", "p"), SHAPE, HERE, HERE)
    watermarks.started(metadata_of(config), [former], batch=0, versions={"p": 0})
    called(config, ("o", "t"), ("o", "p"))
    write_deltalake(config.table_path(former.name), pa.table({"id": [1]}))
    (why,) = obstacles(config)
    assert why.startswith("it was called d.p")
    tables = purge_look.look(config, metadata_of(config), ["d.t", "d.p"])
    assert [table.obstacles for table in tables] == [(), ()]
    purge(config, Report(quiet=True), ["d.p", "d.t"], Reason("ann", ""), patience=0)


@pytest.mark.parametrize("mode", BESIDE)
def test_a_history_of_a_former_name_is_in_the_way(tmp_path: Path, mode: BesideMode) -> None:
    write_deltalake(tmp_path / "s" / "d" / f"old__{mode}", pa.table({"id": [1]}))
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    assert obstacles(config) == []
    called(config, ("o", "t"), ("o", "old"))
    (why,) = obstacles(config)
    assert why == f"its {mode}, {tmp_path}/s/d/old__{mode}, was begun before it was copied"


@pytest.mark.parametrize("folder", ["7/s/d/t", "7/s/d/t__history", "7/s/d/old", "beside/x/s/d/t__log"])
def test_what_a_replay_or_a_killed_repair_built_is_in_the_way(tmp_path: Path, folder: str) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    called(config, ("o", "t"), ("o", "old"))
    built = f"{config.root}/_replayed/{folder}"
    write_deltalake(f"{config.root}/_replayed/7/s/d/other", pa.table({"id": [1]}))
    write_deltalake(built, pa.table({"id": [1]}))
    assert obstacles(config) == [f"{built} is there, built by a replay or a repair"]


def test_a_change_data_feed_that_was_switched_off_is_in_the_way(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    Path(config.table_path(NAME), "_change_data").mkdir()
    (why,) = obstacles(config)
    assert why.endswith("keeps former values in _change_data")


def test_a_feed_that_loads_the_table_is_in_the_way(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    metadata = metadata_of(config)
    for feed, life in (("out", "a"), ("other", "b")):
        with feed_watermarks.held(metadata, feed, FeedLimits(1, 24)) as held:
            held.advance(FeedPosition(3, loading=(TableAtVersion(life, 1),)), 0)
    assert obstacles(config) == ["the feed out begins with its rows, and reads them from the lake"]


def test_files_of_a_catalog_that_is_forgotten_are_in_the_way(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE), iceberg={"every": "batch"})
    Path(config.table_path(NAME), "_iceberg", "registered", "c").mkdir(parents=True)
    (why,) = obstacles(config)
    assert why.endswith("_iceberg/registered/c has metadata files of a catalog that isn't in the YAML, with comments")
    rest = {"kind": "rest", "name": "c", "uri": "http://127.0.0.1:9", "database": "{database}"}
    assert obstacles(PipelineConfig.model_validate({**config.model_dump(exclude_unset=True), "catalog": [rest]})) == []


def test_what_killed_writers_left_goes(tmp_path: Path) -> None:
    config = lake(tmp_path, Life("a", NAME, SHAPE, HERE, HERE))
    log = Path(config.table_path(NAME), "_delta_log")
    left = [log / ".00000000000000000002.json.x.tmp", log / "_commit_x.json.tmp", log / "00000000000000000002.json#1"]
    for file in left:
        file.write_text("former")
    snapshot = Path(config.staging_path("snapshot", "n", "attempt"))
    snapshot.mkdir(parents=True)
    (snapshot / "copied.json").write_text("former")
    purge(config, Report(quiet=True), ["d.t"], Reason("ann", ""), patience=0)
    assert not [file for file in left if file.exists()]
    assert not snapshot.exists()
    assert len(DeltaTable(config.table_path(NAME)).to_pyarrow_table()) == 1
