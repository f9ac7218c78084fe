"""Distribution of work among readers, each of which takes the next piece when it is free."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

Piece = TypeVar("Piece")
Reader = TypeVar("Reader")
Result = TypeVar("Result")


def share_out(
    pieces: Iterable[Piece],
    readers: Sequence[Reader],
    work: Callable[[Piece, Reader], Result],
    ended: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Run ``work`` for each piece, in the pieces' order. Returns the results in that order, too.

    A reader has one piece at a time. ended: called in this thread with each result when its piece ends. Raises what
    ``work`` or ``ended`` raises, after all running pieces have ended; no further piece is begun.
    """
    waiting = deque(enumerate(pieces))
    free = deque(readers)
    running: dict[Future[Result], tuple[int, Reader]] = {}
    results: dict[int, Result] = {}
    with ThreadPoolExecutor(len(readers), thread_name_prefix="reader") as pool:
        while waiting or running:
            while waiting and free:
                (number, piece), reader = waiting.popleft(), free.popleft()
                running[pool.submit(work, piece, reader)] = number, reader
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda future: running[future][0]):
                number, reader = running.pop(future)
                results[number] = future.result()
                free.append(reader)
                ended(results[number])
    return [results[number] for number in sorted(results)]
