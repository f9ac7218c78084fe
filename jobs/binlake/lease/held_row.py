"""Rows of metadata that one process holds at a time: the source's lease, and the row of each feed.

Such a row has the columns holder, token and expires_us (microseconds since 1970). Every change is a compare and swap on
the holder's token. A thread renews the expiry; a row whose holder died, or didn't renew it, is taken over.
"""

from __future__ import annotations

import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from binlake.errors import LakeError, LeaseHeld
from binlake.lease.holder import BY_TURNS, LIFETIME, Watch, known_here, refuse_alive, renewed_every, this_process
from binlake.retries import Retries, growing
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.typed_rows import OfHolder

BRIEF = "brief-"
"""Prefix of the token of a row that is held for a moment: others wait for it instead of ending."""
_WAITED = {BRIEF: 30.0, BY_TURNS: 600.0}
"""Seconds for which others wait for a row that is given back soon, by the prefix of its token."""
LOOK_AGAIN = 0.2
"""Seconds between two looks at a row that is waited for. After releasing the row, wait for longer than this before
taking it again."""
_CHANGING = Retries(growing(0.1), attempts=8)
"""A change, while others write other rows of the table."""

RowValues = Mapping[str, str | int | None]
_GIVEN_BACK: RowValues = {"holder": None, "token": None, "expires_us": 0}
"""Values of the row while nobody holds it."""


R = TypeVar("R", bound=OfHolder)


@dataclass(frozen=True)
class SharedRow(Generic[R]):
    """A row that processes hold by turns.

    kind: its class. condition: chooses the row there, in SQL; None where it is the only one. subject: what is
    held, for messages.
    """

    metadata: Metadata
    kind: type[R]
    condition: str | None
    subject: str

    def read(self) -> R | None:
        """Return the row; None where there is none. Raises LakeError."""
        return self.kind.first(self.metadata, where=self.condition)

    def token(self) -> str | None:
        """Return the token of the process that holds the row; None where nobody does. Raises LakeError."""
        row = self.read()
        return row.token if row else None

    def swap(self, token: str | None, changes: RowValues) -> bool:
        """Change the row while the token holds it, or nobody with None; return False where another holds it by now.

        Writers of other rows can make a swap fail, so it is tried again while the token stays. Raises LakeError.
        """
        held = f"token = {literal(token)}" if token else "token IS NULL"
        predicate = f"{self.condition} AND {held}" if self.condition else held

        def swapped() -> bool | None:
            if self.metadata.swap(self.kind.TABLE, predicate, changes):
                return True
            return None if self.token() == token else False

        done = _CHANGING.until(swapped)
        if done is None:
            raise LakeError(
                f"{self.subject}: its row in metadata couldn't be written, as others write that table",
                remedy="run again",
            )
        return done

    def take_away(self) -> str | None:
        """Free the row, and return its holder, None where nobody holds it. A holder elsewhere can write nothing any
        more.

        Raises UsageError where that process is alive here, LeaseHeld where another was quicker, LakeError.
        """
        row = self.read()
        if row is None or not row.token or not row.holder:
            return None
        refuse_alive(row.holder, row.token)
        if not self.swap(row.token, _GIVEN_BACK):
            raise LeaseHeld(f"{self.subject} was given back or taken a moment ago", remedy="look: binlake status")
        return row.holder


class HeldRow(ABC, Generic[R]):
    """A row that this process holds. Its methods raise LeaseHeld once another run took it over."""

    def __init__(self, row: SharedRow[R], token: str) -> None:
        self._row, self._token = row, token
        self._lock = threading.Lock()  # the renewing thread and the worker change one row
        self.lost = False
        """The row couldn't be renewed, as another run took it over."""

    @abstractmethod
    def check(self) -> None:
        """Raise LeaseHeld when another run took the row over."""

    @abstractmethod
    def _refused(self, row: R) -> LeaseHeld:
        """Return the error for a row that another process holds."""

    def update(self, **changes: str | int | None) -> None:
        """Change the row, and extend the lease."""
        with self._lock:
            if not self._row.swap(self._token, {**changes, "expires_us": _expiry()}):
                self.check()

    def release(self) -> None:
        """Give the row back, if it is still held."""
        with self._lock:
            self._row.swap(self._token, _GIVEN_BACK)

    @classmethod
    def new_token(cls, *, prefix: str = "") -> str:
        """Return a token that no other process has. prefix: BRIEF, BY_TURNS, or none."""
        return prefix + uuid.uuid4().hex

    @contextmanager
    def held(
        self, *, patience: float = 0, changes: RowValues | None = None, watch: Watch | None = None
    ) -> Iterator[Self]:
        """Take the row as soon as it is free, renew it by a thread while the block runs, and release it.

        patience: seconds to wait for it; longer for a row that is released soon. changes: of other columns. watch: the
        one by which this process looked at the row before. Raises LeaseHeld, naming the holder. It replaces any other
        error in a process that lost its row, since others took away the files it was working with.
        """
        with known_here(self._token):  # before other threads of this process can see it in the row
            self._acquire(patience, changes or {}, watch or Watch())
            with self.kept():
                yield self

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew the row that was taken by a thread while the block runs, and give it back."""
        with known_here(self._token), self._renewed():
            yield

    def _acquire(self, patience: float, changes: RowValues, watch: Watch) -> None:
        began, waited = time.monotonic(), patience
        while True:
            try:
                return self.take(watch, changes)
            except LeaseHeld:
                token = self._row.token()  # none: it was given back meanwhile
                waited = max(patience, _waited_for(token)) if token else max(waited, _WAITED[BRIEF])
                if not watch.in_doubt and time.monotonic() - began >= waited:
                    raise
            time.sleep(LOOK_AGAIN)

    def take(self, watch: Watch, changes: RowValues) -> None:
        """Take the row if nobody holds it. Raises LeaseHeld, naming the holder."""
        row = self._row.read()
        if row and watch.is_held(row.holder, row.token, row.expires_us):
            raise self._refused(row)
        taken: RowValues = {"holder": this_process(), "token": self._token, "expires_us": _expiry(), **changes}
        if not self._row.swap(row.token if row else None, taken):
            raise LeaseHeld(
                f"another run took {self._row.subject} a moment ago", remedy="wait for it to end, then run again"
            )

    @contextmanager
    def _renewed(self) -> Iterator[None]:
        done = threading.Event()

        def renew() -> None:
            while not done.wait(renewed_every(self._token)):
                try:
                    self.update()
                except LeaseHeld:
                    self.lost = True
                    return
                except LakeError:  # the next try may find space again; until then everybody else waits
                    continue

        thread = threading.Thread(target=renew, name=f"lease of {self._row.subject}", daemon=True)
        thread.start()
        try:
            yield
        except Exception:
            self.check()
            raise
        finally:
            done.set()
            thread.join()
            with suppress(LakeError):  # a full disk's own error is the one to tell; this lease is over all the same
                self.release()


def _waited_for(token: str) -> float:
    """Return the seconds for which a row is waited for that is held under a token."""
    return next((seconds for prefix, seconds in _WAITED.items() if token.startswith(prefix)), 0.0)


def _expiry() -> int:
    return now_us() + LIFETIME * 1_000_000
