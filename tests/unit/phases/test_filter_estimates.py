"""What a table's conditions leave is noted behind its snapshot, which ends well where nobody knows it."""

from __future__ import annotations

import io
from typing import Any
from unittest.mock import Mock

import pytest

from binlake.config import PipelineConfig
from binlake.errors import LakeError, SourceError
from binlake.phases import snapshots
from binlake.report import Report
from binlake.schema.row_condition import RefusedCondition
from binlake.schema.table import TableName


@pytest.mark.parametrize("error", [SourceError("gone"), LakeError("gone", remedy=""), RefusedCondition("gone")])
def test_a_snapshot_ends_well_where_the_estimate_fails(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "tests", "connection": "tests", "server_id": 1},
            "tables": {"include": ["shop.*"]},
            "lake": {"path": "/lake"},
            "rows": [{"tables": "shop.t", "where": "id = 1"}],
        }
    )
    monkeypatch.setattr(snapshots, "read_tables", Mock(side_effect=error))
    said, made = io.StringIO(), Mock()
    made.name = TableName("shop", "t")
    asked: Any = Mock(config=config, report=Report(said))
    snapshots._note_estimates(asked, Mock(), Mock(), [made])
    assert "how many rows the conditions leave (rows) isn't noted: gone" in said.getvalue()
