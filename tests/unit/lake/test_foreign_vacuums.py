"""Which versions of a table a VACUUM took, by its log and its folder."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from binlake.lake.foreign_vacuums import foreign_vacuums
from binlake.schema.table import TableName

NAME = TableName("shop", "t")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table of six versions: 0 to 2 and 4 to 5 each replace all rows, 3 adds some."""
    for number in range(6):
        write_deltalake(table(tmp_path), pa.table({"id": [number]}), mode="append" if number == 3 else "overwrite")
    return tmp_path


def table(root: Path) -> str:
    return f"{root}/shop/t"


def vacuumed(root: Path) -> list[str]:
    return DeltaTable(table(root)).vacuum(0, dry_run=False, enforce_retention_duration=False)


def lost(root: Path, *versions: int) -> list[int]:
    vacuums = foreign_vacuums(str(root), {NAME: versions})
    return sorted(vacuums[NAME].lost) if vacuums else []


def test_all_versions_but_the_newest(root: Path) -> None:
    assert lost(root, 0, 1, 2, 3, 4) == []
    vacuumed(root)
    assert lost(root, 0, 1, 2, 3, 4) == [0, 1, 2, 3, 4]
    assert lost(root, 5) == []
    (vacuum,) = foreign_vacuums(str(root), {NAME: [1]}).values()
    assert vacuum.why.startswith("a VACUUM that isn't binlake's removed files of shop.t: Delta version 7, by delta-rs")


@pytest.mark.parametrize("checkpoint", [False, True])
def test_only_those_that_need_what_is_gone(root: Path, checkpoint: bool) -> None:
    """Somebody kept the files of versions 0 and 2. A version's log may begin with a checkpoint."""
    kept = [Path(DeltaTable(table(root), version=version).file_uris()[0]) for version in (0, 2)]
    contents = [path.read_bytes() for path in kept]
    vacuumed(root)
    for path, content in zip(kept, contents, strict=True):
        path.write_bytes(content)
    if checkpoint:
        DeltaTable(table(root), version=1).create_checkpoint()
    assert lost(root, 0, 1, 2, 3, 4) == [1, 3, 4]


def test_versions_without_their_log_are_told_by_others(root: Path) -> None:
    vacuumed(root)
    Path(table(root), "_delta_log", f"{0:020}.json").unlink()
    assert lost(root, 0, 1, 2) == []


def test_what_is_gone_without_a_vacuum_is_not_looked_for(root: Path) -> None:
    for path in Path(table(root)).glob("*.parquet"):
        path.unlink()
    assert lost(root, 0, 1, 2, 3, 4) == []


def test_a_table_that_is_gone(tmp_path: Path) -> None:
    assert lost(tmp_path, 0, 1) == []
