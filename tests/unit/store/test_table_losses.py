"""What is said where metadata tables are gone."""

from __future__ import annotations

from binlake.store.table_losses import LOSSES
from binlake.store.table_schemas import SCHEMAS


def test_each_metadata_table_has_its_loss() -> None:
    assert LOSSES.keys() == SCHEMAS.keys()
