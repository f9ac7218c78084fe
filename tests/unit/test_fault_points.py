"""The named points of a run: a test cuts a run off at each of them."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from binlake.faults import FaultPoint

TESTS = [
    path.read_text()
    for folder in ("faults", "integration")
    for path in sorted((Path(__file__).parents[1] / folder).rglob("test_*.py"))
]


@pytest.mark.parametrize("point", get_args(FaultPoint))
def test_a_test_cuts_a_run_off_at_the_point(point: FaultPoint) -> None:
    assert any(f'"{point}"' in source for source in TESTS), f"no test cuts a run off at {point!r}"
