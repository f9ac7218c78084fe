"""Lower sequence numbers in a MariaDB domain: a server's own log proves that it is the one, or that it isn't."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from binlake.binlog.integrity import format_description
from binlake.errors import PositionLost
from binlake.position import Position
from binlake.source import lineage
from binlake.source.folder import Folder
from binlake.source.folder_log import FolderLog
from binlake.source.lineage import check_position

LOG = Path(__file__).parents[2] / "binlogs" / "mariadb-plain.000001"


class WithLowerNumbers(FolderLog):
    """The log of a server that has counted again since."""

    def head(self) -> tuple[str, int, str]:
        file, offset, _ = super().head()
        return file, offset, "0-9-1"


@pytest.mark.parametrize(("change", "is_proved"), [("", True), ("7", False)])
def test_the_transaction_at_the_position_proves_the_server(
    change: str, is_proved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """change: is added to the number of the transaction that the lake read last."""
    monkeypatch.setattr(lineage, "_PATIENCE", 0)
    shutil.copy(LOG, tmp_path / "binlog.000001")
    log = WithLowerNumbers(Folder(tmp_path))
    file, offset, gtids = FolderLog(Folder(tmp_path)).head()
    created = format_description(log.transport(), file)
    position = Position(log.server_identity, file, offset, created, gtids + change)
    if is_proved:
        check_position(log, log.transport(), position)
        return
    with pytest.raises(PositionLost, match="lacks transactions"):
        check_position(log, log.transport(), position)
