"""Random operations on a server and its lake: each ends equal, or what is refused names a remedy that helps.

``BINLAKE_OPERATIONS`` a server (default 12) says how many at most, within 8 seconds or ``BINLAKE_OPERATIONS_SECONDS``;
``BINLAKE_OPERATIONS_SEED`` which ones. The soak runs more: tests/soak/random_operations.py.
"""

from __future__ import annotations

import os

import pytest

from course import Course
from servers import KINDS, RELEASES, Kind, Server

COUNT = int(os.environ.get("BINLAKE_OPERATIONS", "12"))
SECONDS = float(os.environ.get("BINLAKE_OPERATIONS_SECONDS", "8"))
SEED = int(os.environ.get("BINLAKE_OPERATIONS_SEED", "23719"))


@pytest.mark.parametrize("kind", KINDS)
def test_each_operation_ends_equal(kind: Kind, new_server: type[Server]) -> None:
    course = Course(kind, RELEASES[kind], SEED)
    course.run(COUNT, seconds=SECONDS)
    assert course.failures == []
    assert course.done > 0
