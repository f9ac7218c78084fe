"""What dead snapshots leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake.config import PipelineConfig
from binlake.schema.table import TableName
from binlake.snapshot.attempts import Attempts, remove_dead


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "source": {"name": "s", "connection": "c", "server_id": 1},
            "tables": {"include": ["*.*"]},
            "lake": {"path": str(tmp_path)},
        }
    )


def begun(config: PipelineConfig, snapshot: str) -> tuple[Attempts, Path]:
    """A snapshot with one attempt, and the attempt's folder of data files."""
    attempts = Attempts(config, TableName("shop", "orders"), snapshot)
    attempts.begin(attempt := attempts.new())
    data = Path(attempts.data_folder(attempt))
    data.mkdir(parents=True)
    (data / "rows.parquet").write_bytes(b"x")
    return attempts, data


def test_only_what_somebody_may_take_up_stays(config: PipelineConfig) -> None:
    dead, dead_data = begun(config, "dead")
    unfinished, unfinished_data = begun(config, "unfinished")
    assert remove_dead(config, lambda: ["unfinished"]) == [dead.folder]
    assert not dead_data.exists()
    assert not Path(dead.folder).exists()
    assert unfinished_data.exists()
    assert Path(unfinished.folder).exists()


def test_data_files_that_a_commit_may_know_stay(config: PipelineConfig) -> None:
    given, data = begun(config, "given")
    given.give()
    assert remove_dead(config, lambda: []) == [given.folder]
    assert not Path(given.folder).exists()
    assert data.exists()


def test_metadata_is_not_asked_where_nothing_is_left(config: PipelineConfig) -> None:
    def refused() -> list[str]:
        raise AssertionError("asked")

    assert remove_dead(config, refused) == []
