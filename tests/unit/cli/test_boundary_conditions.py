"""A batch's end, or a place in the log, as a condition on a history or a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from binlake.cli.boundary_conditions import condition
from binlake.errors import UsageError
from binlake.lake.opened_lake import Lake, open_lake
from recorded_lake import record_lake

HISTORY, LOG = "shop.orders__history", "shop.orders__log"


def versions(*rows: tuple[str, str | None]) -> pa.Table:
    ends = zip(*rows, strict=True)
    return pa.table([pa.array(values, pa.string()) for values in ends], ["from_position", "to_position"])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A history in which a row has versions from 500 to 1500 to 2500, the last one behind a batch's end at 2000."""
    root = tmp_path_factory.mktemp("lake")
    first, second, third = (f"000001:{offset:012}:000000000" for offset in (500, 1500, 2500))
    record_lake(
        root / "shop",
        {HISTORY: versions((first, second)), LOG: pa.table({"batch": [1], "position": [first]})},
        {HISTORY: versions((second, third))},
        {HISTORY: versions((third, None))},
    )
    return open_lake(root)


@pytest.mark.parametrize(
    ("boundary", "row"),
    [
        ("1", "000001:000000000500:000000000"),
        ("2", "000001:000000001500:000000000"),
        ("binlog.000001:1500", "000001:000000000500:000000000"),
        ("binlog.000001:1501", "000001:000000001500:000000000"),
        ("binlog.000007:4", "000001:000000002500:000000000"),
    ],
)
def test_one_version_of_a_row_is_current_at_a_boundary(lake: Lake, boundary: str, row: str) -> None:
    rows = lake.sql(f"SELECT from_position FROM {HISTORY} WHERE {condition(lake, HISTORY, boundary)}")
    assert rows["from_position"].to_pylist() == [row]


def test_the_mutations_of_a_log_before_a_boundary(lake: Lake) -> None:
    assert condition(lake, LOG, "1") == "batch <= 1"
    assert condition(lake, LOG, "binlog.000001:501") == "position < '000001:000000000501'"


def test_positions_behind_a_new_numbering_begin_with_its_mark(tmp_path: Path) -> None:
    record_lake(tmp_path / "shop", {HISTORY: versions(("000001:000000000500:000000000", None))}, {})
    noted = CommitProperties(app_transactions=[Transaction("binlake-history-log:shop", 1)])
    lake = open_lake(tmp_path)
    path = lake.described(HISTORY).at.path
    write_deltalake(path, versions(("x", None)), mode="append", commit_properties=noted)
    renewed: Any = lake
    table = renewed._tables[HISTORY]
    renewed._tables[HISTORY] = type(table)(table.name, path, 1)
    assert condition(lake, HISTORY, "binlog.000001:4").startswith("from_position <= 'a000001:000000000004'")


@pytest.mark.parametrize(
    ("table", "boundary", "said"),
    [
        ("shop.orders", "1", "there is no table"),
        (HISTORY, "9", "batch 9 isn't known as a version"),
        (HISTORY, "2026-01-01", "is a time"),
        (HISTORY, "then", "is not a time"),
    ],
)
def test_what_is_no_boundary_is_said(lake: Lake, table: str, boundary: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        condition(lake, table, boundary)
