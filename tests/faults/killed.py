"""``python killed.py POINT COUNT ARGUMENTS…``: run the command line, and die by SIGKILL at a named point.

The point is one of the pipeline's own (``planned``, ``epoch committed`` …) the COUNT-th time it is reached; or
``within stage`` and ``within merge``: while Spark works, a moment after the phase began.
"""

import os
import signal
import sys
import threading
from itertools import count
from typing import Any

from binlake import cli, faults
from binlake.lake import apply

POINT, COUNT = sys.argv[1], int(sys.argv[2])
_reached = count(1)


def die() -> None:
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
        from binlake import stage

        stage.stage_batch = dying_within(stage.stage_batch, 2.0)
    if POINT == "within merge":
        apply.apply_batch = dying_within(apply.apply_batch, 6.0)
    sys.exit(cli.run(sys.argv[3:]))
