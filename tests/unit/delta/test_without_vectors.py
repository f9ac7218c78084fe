"""Rows of a table without deletion vectors go with their data files, which are written anew."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from binlake.config import PipelineConfig
from binlake.delta import plain_files
from binlake.delta.delta_log import LakeLog
from binlake.schema.table import TableName
from iceberg_readers import by_delta, ordered
from plain_table import PlainTable


@pytest.fixture
def table(tmp_path: Path) -> PlainTable:
    """A table of two data files."""
    table = PlainTable(tmp_path / "t", [("id", "INT"), ("v", "STRING")], has_vectors=False)
    for first in (0, 100):
        table.append([{"id": number, "v": f"v{number}"} for number in range(first, first + 10)])
    return table


def test_files_are_written_without_the_rows_that_go(table: PlainTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_files, "_AT_ONCE", 3)
    first, second = (add["path"] for add in table.files)
    before = pq.read_schema(Path(table.path, first))
    table.hide({first: [0, 4, 9], second: [2]})
    assert not {first, second} & {add["path"] for add in table.files}
    assert not any(add.get("deletionVector") for add in table.files)
    there = {number for number in (*range(10), *range(100, 110)) if number not in {0, 4, 9, 102}}
    assert {row["id"] for row in by_delta(table.path)} == there
    for add in table.files:
        assert pq.read_schema(Path(table.path, add["path"])).equals(before, check_metadata=True), "ids of columns stay"


def test_what_reads_parquet_alone_reads_the_table(table: PlainTable) -> None:
    table.hide({table.files[0]["path"]: [1, 2]})
    plain = pyarrow.dataset.dataset([f"{table.path}/{add['path']}" for add in table.files])
    assert ordered(plain.to_table()) == by_delta(table.path)
    assert ordered(table.log.opened().to_pyarrow_table()) == by_delta(table.path), "refused of others"


@pytest.mark.parametrize(
    ("without", "kept"),
    [("all.orders", ["t_b.items"]), ("t_a.*", ["t_b.items", "t_b.orders"]), ("*.items", ["t_a.orders", "t_b.orders"])],
)
def test_a_merged_table_without_vectors_has_shards_without_them(tmp_path: Path, without: str, kept: list[str]) -> None:
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "s", "connection": "c", "server_id": 1},
            "tables": {"include": ["*.*"]},
            "merge_tables": [{"from": "t_%.orders", "into": "all.orders", "source_column": "tenant"}],
            "lake": {"path": str(tmp_path), "without_deletion_vectors": [without]},
        }
    )
    names = [TableName("t_a", "orders"), TableName("t_b", "items"), TableName("t_b", "orders")]
    assert [str(name) for name in names if LakeLog.of(config, name, "").has_vectors] == kept
