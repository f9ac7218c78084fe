"""What the commits of a table tell."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from binlake.delta.delta_log import LakeLog


def test_commits_keep_their_versions_where_others_between_them_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for number in range(24):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    DeltaTable(path).create_checkpoint()
    log = LakeLog(str(path), "app")
    assert [commit["version"] for commit in log.history()] == list(range(23, -1, -1))
    for version in (*range(4), *range(7, 19)):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    assert [commit["version"] for commit in log.history()] == [23, 22, 21, 20, 19, 6, 5, 4]
    assert [commit["version"] for commit in log.history(since=5)] == [23, 22, 21, 20, 19, 6]
    assert {commit["operation"] for commit in log.history()} == {"WRITE"}
