"""Which versions of a table beside a mirror serve as the beginning of a replay, by what its commits tell."""

from __future__ import annotations

import json
from typing import Any

from binlake.verify.repair.beside_bases import NOTHING, BesideBase, bases

OF = "shop.t"


def of_batch(version: int, batch: int, **more: Any) -> dict[str, Any]:
    note = {"beside": "log", "of": OF, "batch": batch, "number": 1, **more}
    return {"version": version, "operation": "WRITE", "userMetadata": json.dumps({"binlake": note})}


def other(version: int, operation: str) -> dict[str, Any]:
    return {"version": version, "operation": operation}


def known(*commits: dict[str, Any], noted: set[int] | None = None) -> list[tuple[int, int]]:
    """Return (version, first batch) of commits that are told the oldest first."""
    every = {int(commit["version"]) for commit in commits}
    serving = bases(reversed(commits), "log", OF, every if noted is None else noted)
    assert all(isinstance(base, BesideBase) for base in serving)
    return [(base.version, base.first) for base in serving]


def test_the_versions_at_which_batches_ended() -> None:
    assert known(of_batch(0, 1), of_batch(1, 2), of_batch(2, 4)) == [(2, 5), (1, 4), (0, 2), (NOTHING, 1)]


def test_a_batch_of_several_commits_has_one() -> None:
    assert known(of_batch(0, 1), of_batch(1, 2), of_batch(2, 2), of_batch(3, 3)) == [
        (3, 4), (2, 3), (0, 2), (NOTHING, 1),
    ]  # fmt: skip


def test_the_newest_batch_may_have_been_cut_off() -> None:
    assert known(of_batch(0, 1), of_batch(1, 2), of_batch(2, 2), noted={0}) == [(0, 2), (NOTHING, 1)]


def test_upkeep_leaves_the_rows() -> None:
    assert known(of_batch(0, 1), other(1, "OPTIMIZE"), of_batch(2, 2)) == [(2, 3), (1, 2), (0, 2), (NOTHING, 1)]


def test_nothing_behind_somebody_elses_commit_serves() -> None:
    assert known(of_batch(0, 1), other(1, "DELETE"), of_batch(2, 2)) == [(0, 2), (NOTHING, 1)]


def test_nothing_before_a_repair_that_no_batch_repeats() -> None:
    assert known(of_batch(0, 1), of_batch(1, 2, repair="r"), of_batch(2, 3)) == [(2, 4), (1, 3)]


def test_nothing_before_the_mode_began_anew() -> None:
    assert known(of_batch(0, 1), of_batch(1, 4, number=0), of_batch(2, 4), of_batch(3, 5)) == [(3, 6), (2, 5)]


def test_a_replay_wrote_batches_that_older_commits_lack() -> None:
    again = {"first": 2, "rows": {}}
    assert known(of_batch(0, 1), of_batch(1, 5, repair="r", replayed=again), of_batch(2, 6)) == [
        (2, 7), (1, 6), (0, 2), (NOTHING, 1),
    ]  # fmt: skip


def test_nothing_before_commits_that_are_gone() -> None:
    assert known(of_batch(0, 1), of_batch(3, 4), of_batch(4, 5)) == [(4, 6), (3, 5)]


def test_a_history_begins_with_a_version() -> None:
    assert bases([of_batch(0, 1, beside="history")], "history", OF, {0}) == [BesideBase(0, 2)]
