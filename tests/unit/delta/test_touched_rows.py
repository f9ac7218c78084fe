"""Which rows commits touched since a version, as far as their log is there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64

from binlake.delta import data_rows, deletion_vectors, delta_commits
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.plain_files import added_file
from binlake.delta.plain_tables import removed


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table with a data file of three rows in each of versions 0 and 1; of the later two rows are hidden, one in each
    of versions 2 and 3."""
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"n": [0, 1, 2]}))
    added = added_file(path, pa.table({"n": [3, 4, 5]}))
    commit(path, {"add": added})
    first, both = deletion_vectors.write(path, [BitMap64([0]), BitMap64([0, 2])])
    commit(path, removed(added), {"add": {**added, "deletionVector": first}})
    commit(path, removed({**added, "deletionVector": first}), {"add": {**added, "deletionVector": both}})
    return path


def commit(path: str, *actions: DeltaAction) -> None:
    delta_commits.commit(DeltaTable(path), path, actions)


def test_rows_that_came_and_went_are_touched(path: str) -> None:
    (rows,) = (data_rows.touched_since(path, 1, 3) or {}).values()
    assert rows == BitMap64([0, 2])
    assert list((data_rows.touched_since(path, 0, 3) or {}).values()) == [None], "the whole file came"
    assert data_rows.touched_since(path, 3, 3) == {}


@pytest.mark.parametrize("gone", [f"_delta_log/{2:020}.json", "deletion_vector_*.bin"])
def test_where_upkeep_removed_a_file_it_cant_be_told(path: str, gone: str) -> None:
    for file in Path(path).glob(gone):
        file.unlink()
    assert data_rows.touched_since(path, 1, 3) is None
