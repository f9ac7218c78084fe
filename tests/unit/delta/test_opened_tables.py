"""Tables that are lent: always at their newest version, each to one user at a time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from binlake.delta import opened_tables
from binlake.delta.opened_tables import lent


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    write(path, 0)
    return path


def write(path: str, number: int) -> None:
    """Let somebody else commit."""
    write_deltalake(path, pa.table({"n": [number]}), mode="append")


def test_a_table_that_was_lent_is_lent_again_at_its_newest_version(path: str) -> None:
    with lent(path) as first:
        assert first.version() == 0
    write(path, 1)
    with lent(path) as again:
        assert again is first
        assert again.version() == 1


def test_nobody_else_has_it_meanwhile(path: str) -> None:
    with lent(path) as mine, lent(path) as others:
        assert mine is not others


def test_its_version_is_pinned_while_it_is_lent(path: str) -> None:
    with lent(path) as table:
        write_deltalake(path, pa.table({"n": [7]}), mode="overwrite")
        with pytest.raises(CommitFailedError):
            table.update(updates={"n": "n + 1"})


def test_one_whose_use_failed_isnt_lent_again(path: str) -> None:
    with pytest.raises(ZeroDivisionError), lent(path) as failed:
        raise ZeroDivisionError
    with lent(path) as fresh:
        assert fresh is not failed


def test_a_log_that_was_shortened_meanwhile_is_read_on(path: str) -> None:
    with lent(path) as table:
        table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    for number in range(30):
        write(path, number)
    DeltaTable(path).create_checkpoint()
    DeltaTable(path).cleanup_metadata()
    assert not (Path(path) / "_delta_log" / f"{2:020}.json").exists()
    with lent(path) as again:
        assert again.version() == 31
        assert len(again.file_uris()) == 31


def test_a_table_in_the_place_of_one_that_went_is_opened_anew(path: str) -> None:
    with lent(path):
        pass
    shutil.rmtree(path)
    write(path, 7)
    with lent(path) as table:
        assert table.to_pyarrow_table()["n"].to_pylist() == [7]


def test_one_in_a_store_is_opened_anew(path: str) -> None:
    with lent(f"file://{path}") as first:
        pass
    with lent(f"file://{path}") as second:
        assert second is not first


def test_one_that_nobody_used_for_long_is_opened_anew(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with lent(path) as old:
        pass
    monkeypatch.setattr(opened_tables, "_KEPT_SECONDS", 0.0)
    with lent(path) as fresh:
        assert fresh is not old


def test_a_table_that_is_read_is_opened_again_only_behind_a_commit(path: str) -> None:
    first = opened_tables.newest(path)
    assert opened_tables.newest(path) is first
    write(path, 1)
    second = opened_tables.newest(path)
    assert (first.version(), second.version()) == (0, 1), "whoever has the first reads on at its version"
    shutil.rmtree(path)
    for number in range(2):
        write(path, number)
    third = opened_tables.newest(path)
    assert third is not second
    assert third.metadata().id != second.metadata().id


def test_a_table_that_nobody_else_reads_is_brought_up_to_date(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_tables.newest(path)
    monkeypatch.setattr(opened_tables, "opened", lambda path: pytest.fail(f"{path} was opened again"))
    for version in (1, 2):
        write(path, version)
        assert opened_tables.newest(path).version() == version


def test_a_table_that_was_brought_up_to_date_often_is_opened_anew(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_tables, "_CONTINUED_TIMES", 1)
    opens: list[str] = []

    def opened(path: str) -> DeltaTable:
        opens.append(path)
        return DeltaTable(path)

    monkeypatch.setattr(opened_tables, "opened", opened)
    for version in range(1, 5):
        assert opened_tables.newest(path).version() == version - 1
        write(path, version)
    assert opens == [path, path]


def test_a_table_is_where_a_commit_or_a_checkpoint_is(path: str, tmp_path: Path) -> None:
    assert opened_tables.is_table(path)
    assert not opened_tables.is_table(str(tmp_path / "nowhere"))
    (tmp_path / "file").write_text("no folder")
    assert not opened_tables.is_table(str(tmp_path / "file"))
    (tmp_path / "empty/_delta_log").mkdir(parents=True)
    (tmp_path / "empty/_delta_log/_last_checkpoint").write_text("{}")
    assert not opened_tables.is_table(str(tmp_path / "empty"))
    DeltaTable(path).create_checkpoint()
    Path(path, "_delta_log/00000000000000000000.json").unlink()
    assert opened_tables.is_table(path)


def test_of_many_tables_a_few_are_kept_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kept in (opened_tables._lent, opened_tables._logs):
        kept.clear()
        monkeypatch.setattr(kept, "most", 3)
    paths = [str(tmp_path / f"t{number}") for number in range(5)]
    for number, path in enumerate(paths):
        write(path, number)
    for _ in range(2):
        for number, path in enumerate(paths):
            with lent(path) as table:
                assert table.to_pyarrow_table()["n"].to_pylist() == [number]
            assert opened_tables.newest(path).to_pyarrow_table()["n"].to_pylist() == [number]
    assert (opened_tables._lent.weight, opened_tables._logs.weight) == (3, 3)


def test_a_table_that_was_read_is_there_until_it_goes(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_tables.newest(path)
    write(path, 1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", None)
        assert opened_tables.is_table(path), "without a list of its commits"
    shutil.rmtree(path)
    assert not opened_tables.is_table(path)
