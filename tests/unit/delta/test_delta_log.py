"""What the commits of a table tell."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from binlake.delta import delta_actions, delta_commits
from binlake.delta.delta_log import LakeLog
from binlake.delta.log_files import LogFiles
from binlake.delta.plain_files import added_file


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
    assert delta_actions.added(path, 1, [added["path"]]) == {added["path"]: added}
    assert delta_actions.commits_of_files(path, 0) == [[{"commitInfo": merge}, {"add": added}]]
    assert next(LakeLog(path, "app").history()) == {**merge, "version": 1}
    log_files = LogFiles.of(path)
    assert log_files.named_since(0) == {added["path"]}
    assert log_files.needed_by(1) == {uri.rpartition("/")[2] for uri in DeltaTable(path).file_uris()}
