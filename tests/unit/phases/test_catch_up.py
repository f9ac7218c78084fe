"""A paused table whose log the server no longer has: it alone is snapshotted again, the others are ahead."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from binlake import config, pipeline
from binlake.errors import TableError
from binlake.records import decisions, watermarks
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.source.folder import Folder
from binlake.store.metadata import now_us
from binlake.store.rows import WatermarkRow
from no_session import NoSession
from past import Past

LOGS = Path(__file__).parents[2] / "binlogs"
WHY = Reason("tests", "to see")


@pytest.fixture
def past(tmp_path: Path) -> Past:
    """A source with three batches of binlog.000001, which was purged."""
    log = tmp_path / "log"
    log.mkdir()
    shutil.copy(LOGS / "mysql-plain.000001", log / "binlog.000002")
    yaml = tmp_path / "shop.yaml"
    yaml.write_text(
        f'source: {{name: shop, connection: "file://{log}"}}\ntables: {{include: ["shop.*"]}}\nlake: {{path: ./lake}}\n'
    )
    return Past(config.load(yaml), now_us()).write()


def test_a_paused_table_whose_log_was_purged(past: Past, tmp_path: Path) -> None:
    name = past.name(0)
    row = next(row for row in WatermarkRow.read(past.metadata) if row.table == name.table)
    watermarks.write(past.metadata, [replace(row, status="paused")])
    with pytest.raises(TableError, match=f"binlog.000001 is purged or missing; {name} is at") as refused:
        pipeline.resume(past.config, Folder(tmp_path / "log"), NoSession(), Report(), name, WHY)
    again = f"snapshot it again: binlake table resnapshot --config FILE --table '{name}' --why …"
    assert refused.value.remedy == again
    row = next(row for row in WatermarkRow.read(past.metadata) if row.table == name.table)
    assert (row.status, row.remedy) == ("paused", again)
    assert "is snapshotted again" in decisions.resnapshot(past.config, name, WHY)
