"""What a verification says of tables that it can't compare."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binlake.errors import TAKEN_REMEDY
from binlake.planner.steps import Status
from binlake.position import Position
from binlake.records import watermarks
from binlake.schema.table import TableName
from binlake.verify.table_comparison import not_compared

ORDERS = TableName("my_shop", "orders")
HERE = Position("server", "binlog.000001", 4, 1)
FOLLOWING = watermarks.unsnapshotted_row(ORDERS, "following", "included", batch=3, position=HERE)


def test_a_table_that_the_account_does_not_see_is_dropped_or_lacks_a_grant() -> None:
    result = not_compared(ORDERS, FOLLOWING, on_server=False, position=HERE)
    assert result is not None
    assert "it was dropped just now, or SELECT is missing" in result.reason
    assert result.remedy == (
        r"if it was dropped, run binlake sync, then verify again; else GRANT SELECT ON `my\_shop`.* to the account"
    )


@pytest.mark.parametrize("status", [None, "missing", "resnapshot", "dropped"])
def test_no_snapshot_is_advised_of_a_table_whose_place_is_taken(status: Status | None) -> None:
    mark = replace(FOLLOWING, status=status) if status else None
    result = not_compared(ORDERS, mark, on_server=True, position=HERE, taken="its place is another's")
    assert result is not None
    assert (result.reason, result.remedy) == ("its place is another's", TAKEN_REMEDY)
    assert result.state == ("resnapshot" if status == "resnapshot" else "missing")


def test_a_table_without_a_snapshot_is_advised_to_have_one() -> None:
    result = not_compared(ORDERS, None, on_server=True, position=HERE)
    assert result is not None
    assert (result.state, result.reason) == ("missing", "included, but never snapshotted")
    assert result.remedy.startswith("binlake snapshot")
