"""A course of random operations on a server and its lake: ``random_operations.py KIND COUNT [SEED [OPERATION …]]``.

KIND is mysql, mariadb or mariadb-11.8. Roles, grants, locks of others, the log renamed, filtered, switched off and on,
replicas promoted and demoted, files, commits, statistics and metadata damaged: after each operation the lake equals the
server, by verify and by a comparison that shares no code with it, or a remedy that was named is carried out and leads
there. Spark isn't started. With names, only these operations are drawn. A failure prints the seed, what was done, and
what differs; the course continues with a new server.
"""

from __future__ import annotations

import random
import sys
import time
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

from course import Course  # noqa: E402


def main(server: str, count: int, seed: int, names: list[str]) -> int:
    print(f"{server}: {count} operations, seed {seed}", flush=True)
    kind, _, release = server.partition("-")
    began = time.monotonic()
    course = Course(kind, release, seed, partial(print, flush=True), names)  # type: ignore[arg-type]  # of servers.Kind
    course.run(count)
    outcomes = ", ".join(f"{many} {outcome}" for outcome, many in course.outcomes.most_common())
    print(f"{server}: {course.done} operations in {time.monotonic() - began:,.0f} s: {outcomes};", end=" ")
    print(f"{len(course.failures)} failed: {', '.join(failure.name for failure in course.failures)}", flush=True)
    return 1 if course.failures else 0


if __name__ == "__main__":
    chosen = int(sys.argv[3]) if len(sys.argv) > 3 else random.randint(1, 10**6)
    sys.exit(main(sys.argv[1], int(sys.argv[2]), chosen, sys.argv[4:]))
