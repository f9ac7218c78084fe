"""``python killed.py POINT COUNT ARGUMENTS…``: run the command line, and die by SIGKILL at a named point.

The point is one of the pipeline's own (``planned``, ``epoch committed`` …) the COUNT-th time it is reached; or
``within stage``: before the first staged files are closed, or ``within merge``: while Spark works.
"""

import os
import signal
import sys
import threading
from itertools import count
from typing import Any

from binlake import faults
from binlake.cli import command_line
from binlake.spark import session
from binlake.staging import staged_files

POINT, COUNT = sys.argv[1], int(sys.argv[2])
_reached = count(1)


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_point(point: str) -> None:
    if point == POINT and next(_reached) == COUNT:
        die()


def dying_within(work: Any, seconds: float) -> Any:
    def begun(*arguments: Any, **options: Any) -> Any:
        threading.Timer(seconds, die).start()
        return work(*arguments, **options)

    return begun


if __name__ == "__main__":
    faults.at_point = at_point
    if POINT == "within stage":
        staged_files.SliceWriter.finish = die  # type: ignore[method-assign,assignment]
    if POINT == "within merge":
        session.of_this_thread = dying_within(session.of_this_thread, 3.0)
    sys.exit(command_line.run(sys.argv[3:]))
