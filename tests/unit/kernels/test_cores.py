"""How many cores a process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from binlake.kernels import cores

ALL = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("quota", "wanted"),
    [("max 100000", ALL), ("100000 100000", 1), ("50000 100000", 1), ("150000 100000", min(2, ALL)), ("", ALL)],
)
def test_a_containers_quota_counts_as_whole_cores(
    quota: str, wanted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(cores, "QUOTA", tmp_path / "cpu.max")
    assert cores.available_cores() == wanted


def test_without_a_group_all_that_it_may_run_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "QUOTA", tmp_path / "none")
    assert cores.available_cores() == ALL
    others = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(others)})
    try:
        assert cores.available_cores() == 1
    finally:
        os.sched_setaffinity(0, others)
