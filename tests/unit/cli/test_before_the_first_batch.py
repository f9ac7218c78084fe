"""What commands say of a lake that has a snapshot, while its server is quiet: no batch is recorded yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from begun_source import begin
from binlake import config
from binlake.cli import command_line
from binlake.doctor import beforehand
from binlake.errors import UsageError
from binlake.phases.replay import ReplayRequest
from binlake.schema.table import TableName

COMES = "one comes with the first binlake sync that finds a change in the log after the snapshot"


@pytest.fixture
def yaml(tmp_path: Path) -> str:
    return str(begin(tmp_path, [TableName("shop", "orders")]))


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
