"""``python stopped.py FOLDER``: run the command line again and again, frozen at a named point each time.

The process stops itself (SIGSTOP) before each run and at the point; who started it wakes it up. What to run is in
``FOLDER/next``, a JSON list of the point and the arguments; its exit code and what it said in ``FOLDER/done``.
"""

import contextlib
import io
import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from binlake import faults
from binlake.cli import command_line
from binlake.merge.lake_table import LakeTable
from binlake.records import record
from binlake.spark.transaction import OptimisticTransaction

at = ""


def stop() -> None:
    """Stop the process in this thread: a signal to the process may reach a thread that is scheduled later."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def reached(point: str) -> None:
    global at
    if point == at:
        at = ""  # the first time only
        stop()


def stopping_before(point: str, work: Any) -> Any:
    def stopped(*arguments: Any, **options: Any) -> Any:
        reached(point)
        return work(*arguments, **options)

    return stopped


def main(folder: Path) -> None:
    global at
    faults.at_point = reached
    record._quarantine_rows = stopping_before("within record", record._quarantine_rows)
    LakeTable.begin = stopping_before("before the snapshot's commit", LakeTable.begin)  # type: ignore[method-assign]
    OptimisticTransaction.replace = stopping_before("within the snapshot's commit", OptimisticTransaction.replace)  # type: ignore[method-assign]
    while True:
        stop()
        at, arguments = json.loads((folder / "next").read_text())
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = command_line.run(arguments)
        (folder / "done").write_text(json.dumps([code, said.getvalue()]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
