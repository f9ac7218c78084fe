"""``python on_a_cluster.py``: run binlake's commands, a JSON list of arguments on each line of standard input, in one
Spark session, once one could be built; print the exit code of each. Every range is staged by Spark's executors.

``["at", POINT]``: from now on who comes to the point prints it, and continues.
"""

import json
import os
import sys
from contextlib import redirect_stdout
from typing import Any

from binlake import faults
from binlake.cli import command_line
from binlake.errors import BinlakeError
from binlake.spark import session
from binlake.staging import stage

_points: set[str] = set()
_answers = sys.stdout


def answer(text: object) -> None:
    print(f"answer {text}", file=_answers, flush=True)


def at_point(point: str) -> None:
    if point in _points:
        _points.remove(point)
        answer(point)


if __name__ == "__main__":
    stage.SHORT_RANGE = 0
    faults.at_point = at_point
    build, built, lakes = session.build, list[Any](), set[Any]()

    def once(name, **options):  # type: ignore[no-untyped-def]
        if not built:
            try:
                built.append(build(name, **options))
            except BinlakeError:  # the next command tries again, in the same JVM
                session.stop_active()
                os.environ.pop("PYSPARK_PYTHON", None)
                raise
        elif options["lake"] not in lakes:
            session.tell_store(built[0].sparkContext, options["lake"])
        lakes.add(options["lake"])
        return built[0]

    session.build = once
    with redirect_stdout(sys.stderr):
        for line in sys.stdin:
            command, *arguments = json.loads(line)
            if command == "at":
                _points.update(arguments)
            else:
                answer(command_line.run([command, *arguments]))
    for spark in built:
        spark.stop()
