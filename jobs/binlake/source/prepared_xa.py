"""XA transactions that are prepared on a server: their rows are in its log, and in no read view until they end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pymysql.constants import ER

from binlake.errors import AccessDenied, SourceError
from binlake.source.server import Source, error_code

_LOOK_AGAIN = 1.0
_MOST_NAMED = 5


def prepared_xids(source: Source) -> list[str]:
    """Each as XA COMMIT and XA ROLLBACK take it. Raises AccessDenied."""
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
    """From MySQL's row, whose data are both parts in one hexadecimal number; MariaDB writes it itself."""
    digits, cut = row["data"].removeprefix("0x").lower(), 2 * row["gtrid_length"]
    return f"X'{digits[:cut]}',X'{digits[cut:]}',{row['formatID']}"


def wait_until_ended(source: Source, seconds: float) -> list[str]:
    """The xids that are still prepared after so many seconds; none as soon as there are none. Holds no lock."""
    deadline = time.monotonic() + seconds
    while (xids := prepared_xids(source)) and time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN)
    return xids


def told(source: Source, xids: Sequence[str]) -> str:
    """Which transactions they are, and what the account may see of whose they are."""
    named = "; ".join(xids[:_MOST_NAMED])
    more = f" and {len(xids) - _MOST_NAMED} more" if len(xids) > _MOST_NAMED else ""
    return f"{named}{more}{_owners(source)}"


def _owners(source: Source) -> str:
    """No server says which connection prepared which xid, but InnoDB knows whose transactions are open."""
    with suppress(SourceError):  # without PROCESS
        rows = source.query(
            "SELECT t.trx_started AS began, t.trx_mysql_thread_id AS connection, p.user AS user, p.host AS host"
            " FROM information_schema.innodb_trx t LEFT JOIN information_schema.processlist p"
            " ON p.id = t.trx_mysql_thread_id WHERE t.trx_mysql_thread_id = 0 OR t.trx_rows_modified > 0"
            " ORDER BY t.trx_started LIMIT %s",
            [_MOST_NAMED],
        )
        if rows:
            return "; open with changes: " + ", ".join(_owner(row) for row in rows)
    return ""


def _owner(row: dict[str, Any]) -> str:
    if row["user"] is None:
        return f"one since {row['began']} whose client has left"
    return f"one since {row['began']} of {row['user']}@{row['host']} (connection {row['connection']})"
