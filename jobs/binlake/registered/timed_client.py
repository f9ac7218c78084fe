"""Requests to one catalog, all of which end until a given time: what isn't answered by then isn't asked once more."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from typing import Any

from binlake.errors import LakeError
from binlake.registered import timed_http

PATIENCE_SECONDS = 10.0
"""For how long one request is waited for."""
_MOST_BYTES, _MOST_OF_REFUSAL = 64 << 20, 1 << 20
"""What an answer may have: of a table of a thousand columns and a hundred schemas it has less."""


class CatalogSilent(LakeError):
    """The catalog didn't answer. late: it had answered, and the time for all requests was over."""

    def __init__(self, message: str, *, remedy: str, late: bool) -> None:
        super().__init__(message, remedy=remedy)
        self.late = late


class TimedClient:
    """What sends requests to a catalog until a deadline. catalog: what messages call it, and where it is."""

    def __init__(self, catalog: str, remedy: str, seconds: float, tls: ssl.SSLContext | None = None) -> None:
        """remedy: where it can't be reached. seconds: for all requests together. tls: None for the system's
        certificates."""
        self._deadline = time.monotonic() + seconds
        self._catalog, self._remedy = catalog, remedy
        self._opener = timed_http.opener(self._deadline, PATIENCE_SECONDS, tls)
        self._silent: CatalogSilent | None = None
        self._has_answered = False

    @property
    def silent(self) -> CatalogSilent | None:
        """Return why the catalog isn't asked any more, if it isn't."""
        return self._silent

    @property
    def left(self) -> float:
        """Return for how many seconds a request may take, or what comes before it."""
        return min(self._deadline - time.monotonic(), PATIENCE_SECONDS)

    def answer(self, request: urllib.request.Request) -> Any:
        """Return what a catalog answers, as parsed JSON; an empty object for nothing. Raises CatalogSilent, and
        HTTPError where it refuses."""
        if self._silent is not None:
            raise self._silent  # it isn't waited for once more for each table
        try:
            if (left := self.left) <= 0:
                raise TimeoutError(timed_http.TOO_LATE)
            with self._opener.open(request, timeout=left) as answer:
                text = timed_http.read(answer, _MOST_BYTES)
            said = json.loads(text) if text else {}
        except urllib.error.HTTPError:
            self._has_answered = True
            raise
        except (OSError, ValueError, http.client.HTTPException) as error:
            # The text of others than the system's errors may hold what was sent.
            reason = getattr(error, "reason", error)
            words, is_over = type(error).__name__, time.monotonic() >= self._deadline
            if isinstance(reason, OSError):
                words = timed_http.TOO_LATE if is_over else str(reason)
            failed = self.failed(f"didn't answer: {words}")
            self._silent = CatalogSilent(failed.message, remedy=failed.remedy, late=is_over and self._has_answered)
            raise self._silent from None
        self._has_answered = True
        return said

    def failed(self, what: str) -> LakeError:
        """Return an error that says what the catalog did."""
        return LakeError(f"the catalog {self._catalog} {what}", remedy=self._remedy)


def refusal_of(error: urllib.error.HTTPError) -> Any:
    """Return what a catalog says of a refusal, as parsed JSON; None where it isn't JSON."""
    try:
        return json.loads(error.read(_MOST_OF_REFUSAL))
    except (OSError, ValueError, http.client.HTTPException):
        return None
