"""XA transactions that are prepared on a server: the log has their rows, and no read view shows them until they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from pymysql.constants import ER

from binlake.errors import AccessDenied, SourceError
from binlake.source.processes import processes
from binlake.source.server import Source, error_code

_LOOK_AGAIN = 1.0
_SAID_AFTER = 5.0
"""Seconds of waiting after which it is said for which transactions."""
_MOST_NAMED = 5


def prepared_xids(source: Source) -> list[str]:
    """Return the ids of prepared transactions, as XA COMMIT and XA ROLLBACK take them. Raises AccessDenied."""
    try:
        rows = source.query("XA RECOVER FORMAT='SQL'" if source.is_mariadb else "XA RECOVER CONVERT XID")
    except SourceError as error:
        # Without the grant MySQL answers as if the transaction were broken.
        if error_code(error) != ER.XAER_RMERR:
            raise
        raise AccessDenied(
            "the account may not list prepared XA transactions, whose rows would be lost to the snapshot",
            remedy="GRANT XA_RECOVER_ADMIN ON *.* to the account",
        ) from error
    return [row["data"] if source.is_mariadb else _xid(row) for row in rows]


def _xid(row: dict[str, Any]) -> str:
    """Return an XA id from MySQL's row, whose data has both parts in one hexadecimal number."""
    digits, cut = row["data"].removeprefix("0x").lower(), 2 * row["gtrid_length"]
    return f"X'{digits[:cut]}',X'{digits[cut:]}',{row['formatID']}"


def wait_until_ended(
    source: Source,
    seconds: float,
    of: Collection[str] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Wait until no XA transaction is prepared, or so many seconds. Returns the remaining ids. Holds no lock.

    of: only these are waited for. say: is called once with a text that names the transactions.
    """
    began, said = time.monotonic(), False
    while (xids := _prepared(source, of)) and time.monotonic() < began + seconds:
        if not said and time.monotonic() > began + _SAID_AFTER:
            say(f"the snapshot waits for prepared XA transactions: {describe(source, xids)}")
            said = True
        time.sleep(_LOOK_AGAIN)
    return xids


def _prepared(source: Source, of: Collection[str] | None) -> list[str]:
    return [xid for xid in prepared_xids(source) if of is None or xid in of]


def describe(source: Source, xids: Sequence[str]) -> str:
    """Return a text that names the transactions, and their possible owners if the account may see them."""
    named = "; ".join(xids[:_MOST_NAMED])
    more = f" and {len(xids) - _MOST_NAMED} more" if len(xids) > _MOST_NAMED else ""
    return f"{named}{more}{_owners(source)}"


def _owners(source: Source) -> str:
    """Return a text with the owners of InnoDB's open transactions; no server shows who prepared which XA id."""
    with suppress(SourceError):  # without PROCESS
        rows = source.query(
            "SELECT trx_started AS began, trx_mysql_thread_id AS connection FROM information_schema.innodb_trx"
            " WHERE trx_mysql_thread_id = 0 OR trx_rows_modified > 0 ORDER BY trx_started LIMIT %s",
            [_MOST_NAMED],
        )
        clients = {int(row["id"]): f"{row['user']}@{row['host']}" for row in processes(source)} if rows else {}
        if rows:
            return "; open with changes: " + ", ".join(_owner(row, clients.get(int(row["connection"]))) for row in rows)
    return ""


def _owner(row: dict[str, Any], client: str | None) -> str:
    if client is None:
        return f"one since {row['began']} whose client has left"
    return f"one since {row['began']} of {client} (connection {row['connection']})"
