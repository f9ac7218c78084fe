"""Somebody who writes while something else continues."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mirror import Mirror


@contextmanager
def writing(mirror: Mirror, work: Callable[[Any, int], None]) -> Iterator[None]:
    """Transactions, one after the other, while the body runs."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        connection = mirror.server.connect(database=mirror.database, autocommit=False)
        try:
            number = 0
            while not stop.is_set():
                with connection.cursor() as cursor:
                    work(cursor, number)
                connection.commit()
                number += 1
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not errors
