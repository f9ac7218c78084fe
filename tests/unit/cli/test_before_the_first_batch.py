"""What commands say of a lake that has a snapshot, while its server is quiet: no batch is recorded yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake import config
from binlake.batch.steps import Life
from binlake.cli import command_line
from binlake.doctor import beforehand
from binlake.errors import UsageError
from binlake.metadata import lease, watermarks
from binlake.metadata.lease import RecordedState
from binlake.metadata.metadata import metadata_of
from binlake.phases.replay import ReplayRequest
from binlake.position import Position
from binlake.schema.table import Column, TableName, TableSchema

HERE = Position("server", "binlog.000001", 4, 1)
SCHEMA = TableSchema((Column("id", "bigint", nullable=False),), ("id",), "primary")
COMES = "one comes with the first binlake sync that finds a change in the log after the snapshot"


@pytest.fixture
def yaml(tmp_path: Path) -> str:
    path = tmp_path / "shop.yaml"
    path.write_text(
        "source: {name: shop, connection: nowhere, server_id: 4001}\n"
        f"tables: {{include: ['*.*']}}\nlake: {{path: {tmp_path}/lake}}\n"
    )
    life = Life("life", TableName("shop", "orders"), SCHEMA, HERE, HERE)
    with lease.held(metadata_of(config.load(path))) as held:
        watermarks.started(held.metadata, [life], batch=0, versions={life.id: 0})
        held.stand(RecordedState(0, HERE))
    return str(path)


@pytest.mark.parametrize("command", [["sql", "SELECT 1"], ["views", "--dialect", "spark"]], ids=["sql", "views"])
def test_a_version_is_read(yaml: str, capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert command_line.run([*command, "--config", yaml]) == 2
    said = capsys.readouterr().err
    assert "the lake has no version yet, as no batch is recorded" in said
    assert f"{COMES}; until then read the tables at their Delta paths" in said


def test_versions_are_listed(yaml: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["versions", "--config", yaml]) == 0
    assert f"there is no version yet: {COMES}" in capsys.readouterr().out


@pytest.mark.parametrize("batch", [None, 0, 7])
def test_a_table_is_replayed(yaml: str, batch: int | None) -> None:
    with pytest.raises(UsageError, match="no batch is recorded that could be replayed") as refused:
        beforehand.check_replay(config.load(yaml), ReplayRequest(["shop.orders"], batch))
    assert COMES in refused.value.remedy
