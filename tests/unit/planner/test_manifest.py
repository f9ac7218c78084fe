"""What a manifest of staged mutations says of the log."""

from __future__ import annotations

from binlake.binlog.border import Statement
from binlake.planner.manifest import Manifest, StagedSlice
from binlake.schema.statement_session import Session
from binlake.serialization import dump, load

STATEMENT = Statement("binlog.000001", 4, 0, 0, None, "shop", 0, "ALTER TABLE t ADD a TIMESTAMP")


def test_a_statement_keeps_what_is_told_of_its_session() -> None:
    session = Session(explicit_timestamps=False, began=1577836800, microsecond=5, time_zone="+05:30")
    manifest = Manifest(7, "a", (StagedSlice(0, (), (Statement(**{**vars(STATEMENT), "session": session}),), ()),))
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_a_statement_staged_without_its_session_tells_nothing_of_it() -> None:
    staged = dump(StagedSlice(0, (), (STATEMENT,), ()))
    del staged["statements"][0]["session"]
    assert load(StagedSlice, staged).statements == (STATEMENT,)
    assert STATEMENT.session == Session()
