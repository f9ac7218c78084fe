"""To which outcome a row of an XA transaction belongs."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from binlake.planner.steps import XaCommit
from binlake.planner.xa_outcomes import outcomes_of


def test_rows_belong_to_the_transaction_of_their_id_within_whose_bounds_they_lie() -> None:
    random = np.random.default_rng(7)
    for _ in range(200):
        commits = []
        for name in ("a", "b"):
            for number in (1, 2):
                bounds = sorted(random.choice(30, 6, replace=False).tolist())
                commits += [XaCommit(name, number, bounds[at], bounds[at + 1], (9, 9)) for at in (0, 2, 4)]
        commits = [commits[place] for place in random.permutation(len(commits))][: random.integers(0, 12)]
        xid = pa.array([(None, "a", "b", "c")[which] for which in random.integers(0, 4, 60)], pa.string())
        file, offset = random.integers(1, 4, 60), random.integers(0, 32, 60)
        expected = [
            next(
                (
                    place
                    for place, commit in enumerate(commits)
                    if (commit.xid, commit.file) == (x, f) and commit.after < o <= commit.prepared
                ),
                -1,
            )
            for x, f, o in zip(xid.to_pylist(), file.tolist(), offset.tolist(), strict=True)
        ]
        assert outcomes_of(commits, xid, file, offset).tolist() == expected


def test_many_transactions_take_no_longer_each() -> None:
    count = 100_000
    commits = [XaCommit("x", 1, 10 * number, 10 * number + 9, (1, 10 * number + 9)) for number in range(count)]
    offset = np.arange(count) * 10 + 5
    began = time.process_time()
    outcomes = outcomes_of(commits, pa.array(["x"] * count), np.ones_like(offset), offset)
    assert time.process_time() - began < 5
    assert outcomes.tolist() == list(range(count))
