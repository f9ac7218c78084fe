"""Read views that are closed by whoever is done first."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import cast

from binlake.source.server import Source
from binlake.verify.views import ViewPool


class Connection:
    """Refuses to be closed twice, as a connection of the package does where two threads close it at once."""

    def __init__(self, both: threading.Barrier) -> None:
        self._both, self.closed = both, 0

    def close(self) -> None:
        is_open = not self.closed
        with suppress(threading.BrokenBarrierError):
            self._both.wait(0.2)  # another thread gets as far, unless it is kept out
        self.closed += is_open


def test_two_threads_that_close_the_views_close_each_once() -> None:
    source = Connection(threading.Barrier(2))
    pool = ViewPool([cast("Source", source)])
    closing = [threading.Thread(target=pool.close) for _ in range(2)]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join()
    assert source.closed == 1
