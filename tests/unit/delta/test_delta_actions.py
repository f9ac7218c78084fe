"""Add actions as a table's log has them: the newest of each data file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from binlake.delta import log_files
from binlake.delta.delta_actions import Add


def write_commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    log = table / "_delta_log"
    log.mkdir(exist_ok=True)
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")


def add(path: str, vector: str | None = None) -> dict[str, Any]:
    marks = {"deletionVector": {"pathOrInlineDv": vector}} if vector else {}
    return {"add": {"path": path, "size": 7, **marks}}


def remove(path: str, vector: str | None = None) -> dict[str, Any]:
    marks = {"deletionVector": {"pathOrInlineDv": vector}} if vector else {}
    return {"remove": {"path": path, **marks}}


@pytest.mark.parametrize("path", ["a.parquet", "folder/a.parquet", "ä.parquet"], ids=["plain", "below", "escaped"])
def test_the_newest_action_of_a_data_file_counts(tmp_path: Path, path: str) -> None:
    write_commit(tmp_path, 0, add(path), add("other"))
    write_commit(tmp_path, 1, add("more"))
    write_commit(tmp_path, 2, remove(path), add(path, "marks"))
    write_commit(tmp_path, 3, add("still more"))
    assert log_files.added(str(tmp_path), 1, [path]) == {path: Add(add(path)["add"])}
    assert log_files.added(str(tmp_path), 3, [path]) == {path: Add(add(path, "marks")["add"])}


def test_a_data_file_that_went_has_none(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, add("a"), add("b"))
    write_commit(tmp_path, 1, remove("a"))
    assert log_files.added(str(tmp_path), 1, ["a", "b"]) is None
    assert log_files.added(str(tmp_path), 1, ["b"]) == {"b": Add(add("b")["add"])}
