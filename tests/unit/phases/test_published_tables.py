"""Tables are published with their batches or by the upkeep, as the YAML asks, and compared by a command."""

from __future__ import annotations

import io
import shutil
import time
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from binlake import config
from binlake.cli import command_line
from binlake.config import PipelineConfig
from binlake.errors import LeaseHeld
from binlake.iceberg import table_metadata
from binlake.maintain.maintain import maintain
from binlake.merge import published_tables
from binlake.merge.published_tables import path_of, publish_changed, publish_now
from binlake.planner.outcome import BatchOutcome, LifeOutcome
from binlake.position import Position
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.spark.starting import no_session
from binlake.store.metadata import metadata_of
from iceberg_readers import assert_same
from recorded_lake import record_lake

ORDERS, ITEMS = TableName("shop", "orders"), TableName("shop", "items")
ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})
AT = Position("server", "binlog.000001", 1000, 1)


def lake_of(folder: Path, iceberg: str) -> PipelineConfig:
    """A lake of two tables, of which a batch changed one."""
    yaml = folder / "shop.yaml"
    yaml.write_text(
        "source: {name: shop, connection: nowhere, server_id: 4001}\n"
        f"tables: {{include: ['shop.*']}}\nlake: {{path: {folder}/lake}}\n{iceberg}"
    )
    record_lake(folder / "lake" / "shop", {"shop.orders": ROWS, "shop.items": ROWS}, {"shop.orders": ROWS})
    return config.load(yaml)


def changed(*names: TableName) -> BatchOutcome:
    lives = (
        LifeOutcome(f"life of {name}", name, AT, AT, "following", None, "", True, delta_version=1) for name in names
    )
    return BatchOutcome(tuple(lives))


def published(settings: PipelineConfig, name: TableName) -> table_metadata.TableMetadata | None:
    return table_metadata.newest(path_of(settings, name))


def test_a_batch_publishes_what_it_changed(tmp_path: Path) -> None:
    settings = lake_of(tmp_path, "iceberg: {tables: ['*.orders', '*.elsewhere']}")
    publish_changed(settings, changed(ORDERS, ITEMS), 1, Report(quiet=True))
    metadata = published(settings, ORDERS)
    assert metadata is not None
    assert metadata.tags == {"batch-1": 2}
    assert_same(path_of(settings, ORDERS))
    assert published(settings, ITEMS) is None
    publish_changed(settings, changed(ORDERS), 2, Report(quiet=True))
    assert (published(settings, ORDERS) or metadata).number == metadata.number, "nothing came"


def test_the_format_is_the_yamls(tmp_path: Path) -> None:
    settings = lake_of(tmp_path, "iceberg: {version: 2}")
    publish_changed(settings, changed(ORDERS), 1, Report(quiet=True))
    publish_now(config_with_format(settings, 3), [ITEMS], Report(quiet=True))
    assert formats(settings) == {ORDERS: 2, ITEMS: 3}
    maintain(settings, no_session, metadata_of(settings), Report(quiet=True))
    assert formats(settings) == {ORDERS: 2, ITEMS: 2}


def formats(settings: PipelineConfig) -> dict[TableName, int]:
    """Return the version of Iceberg's format by published table."""
    by_table = {name: published(settings, name) for name in (ORDERS, ITEMS)}
    return {name: metadata.format_version for name, metadata in by_table.items() if metadata}


def config_with_format(settings: PipelineConfig, version: Literal[2, 3]) -> PipelineConfig:
    assert settings.iceberg is not None
    return settings.model_copy(update={"iceberg": settings.iceberg.model_copy(update={"version": version})})


def test_a_run_that_lost_its_lease_publishes_nothing(tmp_path: Path) -> None:
    """What is there by now is another batch's."""
    settings = lake_of(tmp_path, "iceberg: {}")

    def lost() -> None:
        raise LeaseHeld("another run works", remedy="nothing to do")

    with pytest.raises(LeaseHeld):
        publish_changed(settings, changed(ORDERS), 1, Report(quiet=True), lost)
    assert published(settings, ORDERS) is None


def publish_after(settings: PipelineConfig, seconds: float, batch: int, *names: TableName) -> None:
    """Carry a batch that changed these tables, so many seconds from now."""
    with pytest.MonkeyPatch.context() as later:
        later.setattr("time.time", lambda now=time.time: now() + seconds)
        later.setattr("time.monotonic", lambda now=time.monotonic: now() + seconds)
        publish_changed(settings, changed(*names), batch, Report(quiet=True), mirrors=[ORDERS, ITEMS])


def test_the_first_batch_behind_a_time_publishes_what_changed_within_it(tmp_path: Path) -> None:
    """Whichever tables that batch itself changed."""
    settings = lake_of(tmp_path, "iceberg: {every: 2h}")
    publish_after(settings, 0, 1, ITEMS)
    first, other = published(settings, ITEMS), published(settings, ORDERS)
    assert first is not None
    assert first.tags == {"batch-1": 1}
    write_deltalake(path_of(settings, ITEMS), ROWS, mode="append")
    publish_after(settings, 60, 2, ITEMS)
    assert published(settings, ITEMS) == first
    publish_after(settings, 7201, 3)
    now = published(settings, ITEMS)
    assert now is not None
    assert now.tags == {"batch-1": 1, "batch-3": 2}
    assert published(settings, ORDERS) == other, "it didn't change"
    assert_same(path_of(settings, ITEMS))


@pytest.mark.parametrize("follows", [True, False])
def test_a_process_that_doesnt_know_what_changed_looks_at_all_tables(tmp_path: Path, follows: bool) -> None:
    """One that begins, and one that followed before another did."""
    settings = lake_of(tmp_path, "iceberg: {every: 2h}")
    publish_after(settings, 0, 1, ITEMS, ORDERS)
    first = published(settings, ITEMS)
    write_deltalake(path_of(settings, ITEMS), ROWS, mode="append")
    if not follows:
        published_tables._waiting.drop([settings.root])
    publish_after(settings, 60, 9)
    assert published(settings, ITEMS) == first
    publish_after(settings, 7201, 10)
    assert_same(path_of(settings, ITEMS))
    assert (published(settings, ITEMS) or first) != first


def test_what_changed_beside_the_log_is_published_at_once(tmp_path: Path) -> None:
    settings = lake_of(tmp_path, "iceberg: {every: 2h}")
    publish_after(settings, 0, 1)
    write_deltalake(path_of(settings, ITEMS), ROWS, mode="append")
    publish_now(settings, [ITEMS], Report(quiet=True))
    assert_same(path_of(settings, ITEMS))


@pytest.mark.parametrize("iceberg", ["", "iceberg: {every: upkeep}"])
def test_a_batch_publishes_nothing_that_isnt_asked_for(tmp_path: Path, iceberg: str) -> None:
    settings = lake_of(tmp_path, iceberg)
    publish_changed(settings, changed(ORDERS, ITEMS), 1, Report(quiet=True))
    publish_now(settings, [ORDERS, ITEMS], Report(quiet=True))
    assert not list(tmp_path.rglob("_iceberg"))


def test_the_upkeep_publishes_all_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = lake_of(tmp_path, "iceberg: {every: upkeep}")
    check = ["verify", "--iceberg", "--config", str(tmp_path / "shop.yaml")]
    assert command_line.run(check) == 1
    assert "it was never published" in capsys.readouterr().out
    maintain(settings, no_session, metadata_of(settings), Report(quiet=True))
    for name in (ORDERS, ITEMS):
        assert_same(path_of(settings, name))
    write_deltalake(path_of(settings, ITEMS), ROWS, mode="append")
    assert command_line.run(check) == 0
    said = capsys.readouterr().out
    assert "equal     shop.items: Delta version 0, the table is at 1" in said
    assert "equal     shop.orders: Delta version 1\n" in said
    assert command_line.run([*check, "--json", "--tables", "shop.orders"]) == 0


def test_a_table_that_cant_be_published_is_said_once_and_holds_nothing_back(tmp_path: Path) -> None:
    settings = lake_of(tmp_path, "iceberg: {}")
    shutil.rmtree(path_of(settings, ORDERS))
    structs = pa.table({"id": [1], "v": pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))})
    write_deltalake(path_of(settings, ORDERS), structs)
    said = io.StringIO()
    for batch in (1, 2):
        publish_changed(settings, changed(ORDERS, ITEMS), batch, Report(said))
    assert said.getvalue().count("column 'v' has a type that Iceberg has no name for") == 1
    assert published(settings, ITEMS) is not None


def test_nothing_is_compared_where_nothing_is_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake_of(tmp_path, "")
    assert command_line.run(["verify", "--iceberg", "--config", str(tmp_path / "shop.yaml")]) == 2
    assert "none of these tables is published" in capsys.readouterr().err
