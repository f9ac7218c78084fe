"""What a replay can be asked on a command line."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

import pytest

from binlake.cli import replay_arguments
from binlake.errors import UsageError
from binlake.phases.replay import ReplayRequest
from binlake.records.decisions import Reason
from binlake.source.folder import Folder


def asked(*arguments: str) -> ReplayRequest:
    parser = argparse.ArgumentParser()
    replay_arguments.add_to(parser, "ann")
    return replay_arguments.request(parser.parse_args(["--tables", "shop.*", *arguments]))


def test_what_is_asked() -> None:
    assert asked() == ReplayRequest(["shop.*"])
    assert asked("--batch=7", "--prove") == ReplayRequest(["shop.*"], 7, prove=True)
    assert asked("--as-of=2026-01-31T13:00:00Z") == ReplayRequest(
        ["shop.*"], as_of=datetime(2026, 1, 31, 13, tzinfo=UTC)
    )
    archive = asked("--archive=file:///a%20b?lower_case_table_names=1", "--in-place", "--why=changed")
    folder = Folder(Path("/a b"), lower_case_names=True)
    assert archive == ReplayRequest(["shop.*"], archive=folder, in_place=Reason("ann", "changed"))
    assert asked("--in-place", "--why=x", "--who=bob").in_place == Reason("bob", "x")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--as-of=noon", "is not a time"),
        ("--as-of=", "is not a time"),
        ("--archive=/archive", "is no folder"),
        ("--archive=", "is no folder"),
        ("--in-place", "no reason was given"),
    ],
)
def test_what_can_not_be_is_refused(argument: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        asked(argument)
