"""QUERY_EVENT: a statement, and what it was run with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from binlake.binlog.events import ByteCursor, FormatDescription
from binlake.errors import Malformed
from binlake.schema.statement_session import Session
from binlake.schema.virtual import leaves_generated_columns_out

_OPTION_EXPLICIT_DEF_TIMESTAMP = 1 << 24
"""MariaDB's sql/sql_priv.h."""


@dataclass(frozen=True)
class Query:
    """QUERY_EVENT. The text is in bytes of the client's character set.

    thread: the server's number of the session. seconds: how long the statement took. error: the server's number of the
    error with which the statement failed half way; 0 if it didn't. client_collation: the client's collation number;
    server_collation: the one for new databases; 0 if the event lacks it. has_xid: it is DDL that changed something
    (logged by MySQL 8 and later for engines with transactions). flags: the session's options that MariaDB logs; None if
    the event lacks them. explicit_timestamps: MySQL's explicit_defaults_for_timestamp, logged for statements that name
    the type TIMESTAMP. microsecond: of the header's second; time_zone: the session's; both are logged only if the
    statement used them.
    """

    thread: int
    database: str
    error: int
    sql_mode: int
    client_collation: int
    server_collation: int
    has_xid: bool
    text: bytes = field(repr=False)
    flags: int | None = None
    explicit_timestamps: bool | None = None
    microsecond: int | None = None
    time_zone: str = ""
    seconds: int = 0

    def session(self, began: int, description: FormatDescription) -> Session:
        """Return the event's settings of its session. began: the header's timestamp in seconds."""
        explicit = self.explicit_timestamps
        if description.mariadb and self.flags is not None and description.has_explicit_timestamps:
            explicit = bool(self.flags & _OPTION_EXPLICIT_DEF_TIMESTAMP)
        unlogged = description.mariadb and leaves_generated_columns_out(description.numbers)
        return Session(explicit, began, self.microsecond, self.time_zone, unlogged)

    @classmethod
    def parse(cls, body: bytes) -> Query:
        """Parse a QUERY_EVENT's body. Raises Malformed."""
        cursor = ByteCursor(body)
        thread, seconds = cursor.uint(4), cursor.uint(4)
        database_size = cursor.uint(1)
        error = cursor.uint(2)
        status = ByteCursor(cursor.take(cursor.uint(2)))
        database = cursor.take(database_size).decode("utf-8", "replace")
        cursor.skip(1)
        text = cursor.rest()
        return cls(
            thread=thread, database=database, error=error, text=text, seconds=seconds, **_status_variables(status, text)
        )  # fmt: skip


def _text_of(status: ByteCursor) -> str:
    return status.take(status.uint(1)).decode("utf-8", "replace")


_STATUS_FIELDS: dict[int, tuple[str, Callable[[ByteCursor], Any]]] = {
    0: ("flags", lambda status: status.uint(4)),
    1: ("sql_mode", lambda status: status.uint(8)),
    5: ("time_zone", _text_of),
    13: ("microsecond", lambda status: status.uint(3)),
    16: ("explicit_timestamps", lambda status: bool(status.uint(1))),
    128: ("microsecond", lambda status: status.uint(3)),
}
"""Status variables that a Query keeps, by their code: the field, and how its value is read."""
_STATUS_SIZES = {3: 4, 7: 2, 8: 2, 9: 8, 10: 4, 129: 8}
"""Sizes in bytes of status variables that aren't needed, by their code ("Query_event::Query_event_status_vars",
statement_events.h). Codes from 128 on are MariaDB's own (sql/log_event.h). Only 131, since 11.4, comes before smaller
ones."""
_CHARSET, _XID = 4, 17
"""Codes of the client's and the server's collations, and of the transaction id of DDL."""


def _status_variables(status: ByteCursor, text: bytes) -> dict[str, Any]:
    """Read status variables as fields of a Query. text: the statement; one in ASCII needs no character set.

    Raises Malformed for an unknown variable in front of the client's character set, where the text needs it.
    """
    fields: dict[str, Any] = {"sql_mode": 0, "client_collation": 0, "server_collation": 0, "has_xid": False}
    while status.left:
        code = status.uint(1)
        if code == _XID:
            fields["has_xid"] = True
            break  # nothing after it is needed
        if code in _STATUS_FIELDS:
            name, read = _STATUS_FIELDS[code]
            fields[name] = read(status)
        elif code == _CHARSET:
            fields["client_collation"], _, fields["server_collation"] = (status.uint(2) for _ in range(3))
        elif not _skip_status_variable(code, status):
            if fields["client_collation"] or text.isascii():
                break
            raise Malformed(f"the status variable {code} before the client's character set")
    return fields


def _skip_status_variable(code: int, status: ByteCursor) -> bool:
    """Step over a variable that isn't needed; return False where its size isn't known."""
    if code in _STATUS_SIZES:
        status.skip(_STATUS_SIZES[code])
    elif code == 6:  # catalog
        status.skip(status.uint(1))
    elif code == 2:  # catalog, with a zero at its end
        status.skip(status.uint(1) + 1)
    elif code == 11:  # user and host
        status.skip(status.uint(1))
        status.skip(status.uint(1))
    elif code == 12:  # databases that it changes, or that there are too many to tell
        for _ in range(status.uint(1) % 254):
            while status.uint(1):
                pass
    elif code == 131:  # default collations of character sets, which come before the client's
        status.skip(4 * status.uint(1))
    else:
        return False
    return True
