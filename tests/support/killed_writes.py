"""Work on a table that is killed at each of its writes to the storage, in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from binlake.iceberg import published_table
from binlake.storage import files
from plain_table import PlainTable

WRITES = ("write_bytes", "write_if_absent", "replace_bytes", "remove_file", "make_readers_folder")


class Killed(BaseException):
    """The process ends."""


class Killing:
    """Ends the process at one of its writes, before it or behind it. at: the write's number, from 1."""

    def __init__(self, at: int, *, behind: bool) -> None:
        self.at, self.behind, self.writes = at, behind, 0

    def instead_of(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.writes += 1
            if self.writes == self.at and not self.behind:
                raise Killed
            done = write(*arguments)
            if self.writes == self.at:
                raise Killed
            return done

        return counted


def killed_at_each(table: PlainTable, change: Callable[[], None], work: Callable[[], object]) -> Iterator[int]:
    """Change the table and kill the work on it at its next write, again and again; yield before it is repeated."""
    at, behind = 1, False
    while True:
        change()
        killing = Killing(at, behind=behind)
        with pytest.MonkeyPatch.context() as patched:
            for name in WRITES:
                patched.setattr(files, name, killing.instead_of(getattr(files, name)))
            try:
                work()
            except Killed:
                pass
            else:
                return
        published_table.forget(table.path)
        yield at
        at, behind = at + behind, not behind
