"""A table whose mutations can't be staged stops; the others are staged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "binlogs"))

import logs

from binlake.binlog.border import Mutations
from binlake.binlog.reader import read
from binlake.binlog.transport import FileTransport
from binlake.schema.invalid import KEEP_DATES
from binlake.staging import staged_files
from binlake.staging.staged_files import stage_slice

LOG = logs.log("mysql-plain")


@pytest.mark.parametrize("error", [RecursionError(), MemoryError(), KeyError("secret"), ValueError("secret")])
@pytest.mark.parametrize("fails_from", [0, 1])
def test_an_unexpected_error_stops_its_table(
    error: Exception, fails_from: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = list(read(FileTransport(LOG.path), LOG.part, lambda *_: True, invalid=KEEP_DATES))
    mutations = [item for item in items if isinstance(item, Mutations)]
    failing = mutations[0].name
    ours = [item for item in mutations if item.name == failing]
    whole = stage_slice(items, LOG.part, 0, str(tmp_path / "whole"), KEEP_DATES)
    write, calls = staged_files._OpenFile.write, 0

    def fails(file: Any, batch: Any) -> None:
        nonlocal calls
        if file.mutations.name == failing:
            calls += 1
            if calls > fails_from:
                raise error
        write(file, batch)

    monkeypatch.setattr(staged_files._OpenFile, "write", fails)
    staged = stage_slice(items, LOG.part, 0, str(tmp_path / "staged"), KEEP_DATES)
    others = [file.name for file in whole.files if file.name != failing]
    assert [file.name for file in staged.files if file.name != failing] == others
    first, *_, last = staged.stopped
    assert {stop.name for stop in staged.stopped} == {failing}
    assert f"its mutations can't be staged: {type(error).__name__} at" in first.reason
    assert "secret" not in first.reason
    assert "binlake snapshot" in first.remedy
    assert last.offset == ours[-1].batch.column("offset")[-1].as_py()
    kept = [file for file in staged.files if file.name == failing]
    assert all(file.last[1] < first.offset for file in kept)
    assert sum(file.inserted + file.updated + file.deleted for file in kept) == sum(
        item.batch.num_rows for item in ours if item.batch.column("offset")[0].as_py() < first.offset
    )
