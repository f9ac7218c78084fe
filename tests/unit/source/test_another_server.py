"""A lake whose connection leads to a server that isn't its own: that is said, before its GTIDs are read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from binlake.errors import PositionLost
from binlake.position import Position
from binlake.source.folder import Folder
from binlake.source.folder_log import FolderLog
from binlake.source.lineage import prove, range_elsewhere

MARIADB = Path(__file__).parents[2] / "binlogs" / "mariadb-plain.000001"
MYSQL_SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_a_lake_of_mysql_is_not_read_on_from_mariadb(tmp_path: Path) -> None:
    shutil.copy(MARIADB, tmp_path / "binlog.000001")
    log = FolderLog(Folder(tmp_path))
    lake = Position(MYSQL_SERVER, "binlog.000001", 4, 1, f"{MYSQL_SERVER}:1-44")
    said = rf"the lake belongs to another server: it follows {MYSQL_SERVER}, of mysql, .* of mariadb"
    with pytest.raises(PositionLost, match=said) as lost:
        range_elsewhere(log, log.transport(), lake, log.head())
    assert lost.value.remedy.startswith("point the connection at the server the lake follows")
    with pytest.raises(PositionLost, match=said):
        prove(log, log.transport(), lake)
