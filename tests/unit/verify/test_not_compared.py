"""What a verification says of tables that it can't compare."""

from __future__ import annotations

from typing import Any

import pytest

from binlake.errors import TAKEN_REMEDY
from binlake.position import Position
from binlake.schema.table import TableName
from binlake.verify.verify import not_compared

ORDERS = TableName("my_shop", "orders")
HERE = Position("server", "binlog.000001", 4, 1)
FOLLOWING: dict[str, Any] = {"status": "following", "batch": 3, "position": str(HERE)}


def test_a_table_that_the_account_does_not_see_is_dropped_or_lacks_a_grant() -> None:
    result = not_compared(ORDERS, FOLLOWING, on_server=False, position=HERE)
    assert result is not None
    assert "it was dropped just now, or SELECT is missing" in result.reason
    assert result.remedy == (
        r"if it was dropped, run binlake sync, then verify again; else GRANT SELECT ON `my\_shop`.* to the account"
    )


@pytest.mark.parametrize("status", [None, "missing", "resnapshot", "dropped"])
def test_no_snapshot_is_advised_of_a_table_whose_place_is_taken(status: str | None) -> None:
    mark = status and {**FOLLOWING, "status": status, "reason": "included", "remedy": "binlake snapshot"}
    result = not_compared(ORDERS, mark or None, on_server=True, position=HERE, taken="its place is another's")
    assert result is not None
    assert (result.reason, result.remedy) == ("its place is another's", TAKEN_REMEDY)
    assert result.state == ("resnapshot" if status == "resnapshot" else "missing")


def test_a_table_without_a_snapshot_is_advised_to_have_one() -> None:
    result = not_compared(ORDERS, None, on_server=True, position=HERE)
    assert result is not None
    assert (result.state, result.reason) == ("missing", "included, but never snapshotted")
    assert result.remedy.startswith("binlake snapshot")
