"""Work shared out among readers, of which each takes the next piece when it gets free."""

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
    """What ``work`` gives for each piece, in the pieces' order. They are begun in that order, too.

    A reader has one piece at a time. ended: called in this thread with each result, as they come.
    Raises what ``work`` or ``ended`` raises, once the pieces that were begun have ended; no other is begun then.
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
            for future in sorted(done, key=lambda one: running[one][0]):
                number, reader = running.pop(future)
                results[number] = future.result()
                free.append(reader)
                ended(results[number])
    return [results[number] for number in sorted(results)]
