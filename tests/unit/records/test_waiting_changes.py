"""What the status reads to know which tables wait for an answer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from binlake.records import waiting_changes
from binlake.store.metadata import Metadata
from binlake.store.rows import StatementRow


def test_the_history_of_statements_is_read_once_however_many_tables_stopped(tmp_path: Path) -> None:
    metadata = Metadata(str(tmp_path))
    rows: list[Any] = [SimpleNamespace(status="stopped", table_id=str(number), reason="1:2: x") for number in range(9)]
    with mock.patch.object(StatementRow, "read", return_value=[]) as read:
        assert not waiting_changes.waiting(metadata, rows)
        assert read.call_count == 1
        assert not waiting_changes.waiting(metadata, [])
        assert read.call_count == 1
