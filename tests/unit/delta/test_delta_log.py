"""What the commits of a table tell."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from binlake.delta import delta_commits, log_files
from binlake.delta.delta_actions import Add, Commit, CommitInfo
from binlake.delta.delta_log import LakeLog
from binlake.delta.log_files import LogFiles
from binlake.delta.plain_files import added_file
from binlake.errors import LakeError


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


def test_a_commit_is_read_whose_texts_hold_other_ends_of_lines(tmp_path: Path) -> None:
    """Statistics have a file's least and greatest texts, and the condition of Spark's MERGE a batch's keys."""
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"k": ["a"]}))
    added = added_file(path, pa.table({"k": ["\x0b\x1c\x85b", "c\u2028\u2029d"]}))
    merge = {"operation": "MERGE", "operationParameters": {"predicate": "k BETWEEN 'b' AND 'c\u2028d'"}}
    delta_commits.commit(DeltaTable(path), path, [{"commitInfo": merge}, {"add": added}])
    assert "\u2028" in (tmp_path / "t" / "_delta_log" / f"{1:020}.json").read_text(encoding="utf-8")
    assert log_files.added(path, 1, [added["path"]]) == {added["path"]: Add(added)}
    assert log_files.commits_of_files(path, 0) == [Commit(1, [CommitInfo(merge), Add(added)])]
    assert next(LakeLog(path, "app").history()) == {**merge, "version": 1}
    listed = LogFiles.of(path)
    assert listed.named_since(0) == {added["path"]}
    assert listed.needed_by(1) == {uri.rpartition("/")[2] for uri in DeltaTable(path).file_uris()}


@pytest.mark.parametrize("content", ["", '{"metaData": {"id"'])
def test_a_log_whose_first_commit_is_damaged_is_to_be_restored_or_begun_anew(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a table"
    write_deltalake(path, pa.table({"id": [1]}))
    (path / "_delta_log" / f"{0:020}.json").write_text(content)
    with pytest.raises(LakeError, match="reading the Delta table") as caught:
        LakeLog(str(path), "app").opened()
    assert f"move {path} away and run again" in caught.value.remedy
