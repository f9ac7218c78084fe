"""A connection whose account may change while a process works: passwords are rotated, and two users take turns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from binlake.errors import AccessDenied, ConnectionFailed

if TYPE_CHECKING:
    from binlake.source.connection import Endpoint


class Renewal:
    """Looks the connection up again once the server refuses its account, for all threads of this process.

    look_up: returns the endpoint as its place (Airflow, a file, the environment) has it now.
    """

    def __init__(self, look_up: Callable[[], Endpoint]) -> None:
        self._look_up = look_up
        self._looking_up = threading.Lock()
        self._newest: Endpoint | None = None

    def newest(self, known: Endpoint) -> Endpoint:
        """Return an endpoint with the newest account that is known."""
        return self._newest.with_account_for(known) if self._newest else known

    def renewed(self, refused: Endpoint, denied: AccessDenied) -> Endpoint:
        """Return the endpoint with another account than the refused one.

        Raises the server's refusal where its place has no other, or has another server's: that one gets nothing that
        is meant for this one. Raises ConnectionFailed where the place doesn't answer.
        """
        with self._looking_up:
            newest = self.newest(refused)
            if newest.account == refused.account:  # no other thread has looked it up
                self._newest = self._looked_up(denied)
                newest = self.newest(refused)
        if newest.account == refused.account:
            raise denied
        return newest

    def _looked_up(self, denied: AccessDenied) -> Endpoint:
        try:
            return self._look_up()
        except Exception as error:  # a backend of secrets may raise anything, and its text may hold anything
            raise ConnectionFailed(
                f"{denied.message}; and the connection can't be looked up again: {type(error).__name__}",
                remedy="check that the place of the connection (Airflow, its secrets backend) answers, then run again",
            ) from None
