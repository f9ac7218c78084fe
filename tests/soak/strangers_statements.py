"""Statements as strangers write them: ``strangers_statements.py [STATEMENTS] [SEED] [SECONDS]``.

Each is followed on both flavours, between mutations of two tables. It ends in time (SECONDS of CPU time, 10 without
them), raises nothing, and no table stops for an error that wasn't expected.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import get_args

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support")]

from binlake.position import Flavour  # noqa: E402
from strangers_statements import StrangersStatements, followed  # noqa: E402


class TooSlowError(BaseException):
    """A statement took longer than it may; no handler of errors in the engine catches it."""


def _stop(number: int, frame: object) -> None:
    raise TooSlowError


def _what_is_wrong(text: str, flavour: Flavour, seconds: float) -> str:
    """Return what went wrong with a statement; empty if nothing did."""
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        steps = followed(text, flavour)
    except TooSlowError:
        return f"took more than {seconds} s"
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    reasons = [table.life.reason for table in steps.tables] + [note.reason or "" for note in steps.history]
    return next((reason for reason in reasons if "Error at " in reason), "")


def main() -> None:
    arguments = [float(argument) for argument in sys.argv[1:]]
    count, seed, seconds = (*arguments, *(100_000, 1, 10.0)[len(arguments) :])
    signal.signal(signal.SIGVTALRM, _stop)
    strangers, slowest, began, wrong = StrangersStatements(int(seed)), (0.0, ""), time.monotonic(), 0
    for number in range(1, int(count) + 1):
        text = strangers.statement()
        for flavour in get_args(Flavour):
            started = time.process_time()
            if why := _what_is_wrong(text, flavour, seconds):
                wrong += 1
                print(f"statement {number}, {flavour}, {len(text):,} characters: {why}: {text[:200]!r}", flush=True)
            slowest = max(slowest, (time.process_time() - started, text[:100]))
        if number % 5000 == 0:
            print(f"{number:,} statements in {time.monotonic() - began:,.0f} s", flush=True)
    print(
        f"{int(count):,} statements on each flavour, {wrong} wrong; the slowest took {slowest[0]:.2f} s: {slowest[1]!r}"
    )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
