"""Tables of which a snapshot copies nothing: DDL during it may have given a withheld column another name."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from binlake.config import PipelineConfig
from binlake.errors import TableError
from binlake.report import Report
from binlake.schema.table import Column, TableName, TableSchema
from binlake.snapshot import snapshot
from binlake.snapshot.chunks import TableSnapshot
from binlake.snapshot.snapshot import SnapshotTask
from binlake.snapshot.waves import TableChanged
from binlake.source.catalog import SourceTable

T = TableName("shop", "t")


def shape(columns: str) -> TableSchema:
    return TableSchema(tuple(Column(name, "int") for name in columns.split()), ("id",), "primary")


def snapshotter(monkeypatch: pytest.MonkeyPatch, columns: str, **options: Any) -> Any:
    """Return the inside of a snapshot, for which the server's table has these columns by now."""
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "tests", "connection": "tests", "server_id": 1},
            "tables": {"include": ["shop.*"], "exclude_columns": ["shop.t.pin"]},
            "lake": {"path": "/lake"},
        }
    )
    there = {T: SourceTable(T, "BASE TABLE", "InnoDB", 0, 0, config.excluding(T, shape(columns)))}
    monkeypatch.setattr(snapshot, "read_tables", lambda source, names, excluding: there)
    monkeypatch.setattr(snapshot, "Records", Mock())
    cut = TableSnapshot("cut again", T, shape(columns), "InnoDB", 0)
    monkeypatch.setattr(snapshot._Snapshotter, "_plan", lambda self, table: cut)
    monkeypatch.setattr(snapshot._Snapshotter, "_cut", lambda self, table: cut)
    monkeypatch.setattr(snapshot._Snapshotter, "_already_committed", lambda self, table: None)
    return snapshot._Snapshotter(Mock(), SnapshotTask(config, Mock(), Mock(), Mock(), Report(quiet=True), 0, **options))


@pytest.mark.parametrize(
    ("columns", "copied"),
    [
        ("id shown", False),
        ("id name", True),
        ("id pin name", True),
        ("id more pin name", True),
        ("id name pin", False),
        ("name pin id", False),
    ],
    ids=["renamed", "dropped", "same", "added", "swapped", "moved"],
)
def test_ddl_during_a_snapshot_shows_no_withheld_column_under_another_name(
    monkeypatch: pytest.MonkeyPatch, columns: str, copied: bool
) -> None:
    made, open_tables = snapshotter(monkeypatch, columns), list[TableSnapshot]()
    old = TableSnapshot("first", T, shape("id pin name"), "InnoDB", 0)
    made._start_again(open_tables, old, TableChanged([old]))
    assert made.records.drop.called == copied, "the next snapshot knows with which columns this one began"
    assert ([table.id for table in open_tables] == ["cut again"], not made.failed) == (copied, copied)
    assert all("may have another name since DDL during its snapshot" in str(error) for error in made.failed)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_snapshot_that_is_given_up_leaves_the_columns_that_it_began_with(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    made, old = snapshotter(monkeypatch, "id name"), TableSnapshot("fourth", T, shape("id pin name"), "InnoDB", 0)
    if not is_there:
        monkeypatch.setattr(snapshot, "read_tables", lambda source, names, excluding: {})
    old.tries = 99
    made._start_again([], old, TableChanged([old]))
    assert len(made.failed) == 1
    assert not made.records.drop.called


@pytest.mark.parametrize("refused", [True, False])
def test_the_columns_that_a_snapshot_begins_with_are_those_that_were_looked_at(
    monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    def refusal(name: TableName, now: TableSchema) -> TableError | None:
        return TableError(f"{name}: {now.columns[1].name}") if refused else None

    made = snapshotter(monkeypatch, "id shown", refusal=refusal)
    assert len(made._begin([T])) == (not refused)
    assert [str(error) for error in made.failed] == (["shop.t: shown"] if refused else [])
