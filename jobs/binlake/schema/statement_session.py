"""Facts in the log about a statement's session besides its sql_mode: settings, and when the statement began."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

_EPOCH = datetime(1970, 1, 1)
_LATEST = 2**31 - 1
"""The last second of TIMESTAMP (MySQL manual 13.2.2; MariaDB before 11.5)."""
_OFFSET = re.compile(r"([+-])(\d\d?):(\d\d)", re.ASCII)


@dataclass(frozen=True)
class Session:
    """The session of a statement. None or "": the log doesn't say.

    explicit_timestamps: explicit_defaults_for_timestamp; while it is off, columns of the type TIMESTAMP get attributes
        that the statement doesn't write.
    began, microsecond: seconds since 1970 UTC, and microseconds of that second: what NOW(6) gives in the statement,
        SET timestamp included. Both servers write the microsecond if the statement used it.
    time_zone: the session's: an offset, a name or SYSTEM.
    unlogged: the server leaves generated columns out of the log (see virtual.py).
    """

    explicit_timestamps: bool | None = None
    began: int | None = None
    microsecond: int | None = None
    time_zone: str = ""
    unlogged: bool = False

    def now(self, fraction: int) -> str | None:
        """Return CURRENT_TIMESTAMP(fraction) in UTC, as the server's text; None if it isn't known or no TIMESTAMP.

        The server cuts off further digits (THD::query_start_timeval_trunc; MariaDB's my_timeval_trunc).
        """
        if self.began is None or not 0 < self.began < _LATEST or (fraction and self.microsecond is None):
            return None
        return _time_text(_EPOCH + timedelta(seconds=self.began), f"{self.microsecond or 0:06}"[:fraction])

    def local_now(self, fraction: int) -> str | None:
        """Return the same in the session's time zone; None if that isn't known either."""
        text, offset = self.now(fraction), self._offset()
        return None if text is None or offset is None else _moved(text, offset)

    def utc(self, text: str) -> str | None:
        """Convert a time in the session's time zone, the server's text, to UTC.

        Returns None if the zone isn't an offset or the time is no TIMESTAMP.
        """
        offset = self._offset()
        if offset is None:
            return None
        try:
            moved = _moved(text, -offset)
            second = (datetime.fromisoformat(moved.partition(".")[0]) - _EPOCH) // timedelta(seconds=1)
        except (ValueError, OverflowError):
            return None
        return moved if 0 < second < _LATEST else None

    def _offset(self) -> timedelta | None:
        """Return the session's offset from UTC; None for SYSTEM and for names, whose rules only the server knows."""
        parts = _OFFSET.fullmatch(self.time_zone)
        if not parts:
            return None
        size = timedelta(hours=int(parts[2]), minutes=int(parts[3]))
        return -size if parts[1] == "-" else size


UNKNOWN_SESSION = Session()


def _time_text(time: datetime, fraction: str) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}" + (f".{fraction}" if fraction else "")


def _moved(text: str, offset: timedelta) -> str:
    """Return a time moved by ``offset``. Raises ValueError if it is no date, OverflowError beyond the calendar."""
    whole, _, fraction = text.partition(".")
    return _time_text(datetime.fromisoformat(whole) + offset, fraction)
