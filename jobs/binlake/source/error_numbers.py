"""The servers' error numbers, grouped by their meaning for binlake; pymysql names only some.

Sources: MySQL share/messages_to_clients.txt, MariaDB sql/share/errmsg-utf8.txt.
"""

from __future__ import annotations

from typing import Final

from pymysql.constants import CR, ER

CONNECTION_KILLED: Final = 1927
"""MariaDB's."""
SESSION_WAS_KILLED: Final = 3169
"""MySQL's."""
CLIENT_INTERACTION_TIMEOUT: Final = 4031
"""MySQL's, after wait_timeout."""
SLAVE_SAME_ID: Final = 4052
"""MariaDB's, sent to the older of two replicas with the same server id."""
SOURCE_HAS_PURGED_REQUIRED_GTIDS: Final = 1789
INDEX_CORRUPT, TABLESPACE_MISSING, TABLESPACE_DISCARDED = 1712, 1812, 1814
NO_SUCH_TABLE_IN_ENGINE: Final = 1932
"""MariaDB's."""

DENIED: Final = frozenset(
    {
        ER.ACCESS_DENIED_ERROR,
        ER.DBACCESS_DENIED_ERROR,
        ER.TABLEACCESS_DENIED_ERROR,
        ER.SPECIFIC_ACCESS_DENIED_ERROR,
    }
)
FULL: Final = frozenset({ER.CON_COUNT_ERROR, ER.TOO_MANY_USER_CONNECTIONS, ER.USER_LIMIT_REACHED})
"""Errors that mean that no connection is free."""
KILLED: Final = frozenset({CONNECTION_KILLED, ER.QUERY_INTERRUPTED, SESSION_WAS_KILLED})
LOST: Final = frozenset(
    {
        CR.CR_CONNECTION_ERROR,
        CR.CR_CONN_HOST_ERROR,
        CR.CR_SERVER_LOST,
        CR.CR_SERVER_GONE_ERROR,
        ER.SERVER_SHUTDOWN,
        ER.NORMAL_SHUTDOWN,
        CONNECTION_KILLED,
        SESSION_WAS_KILLED,
        CLIENT_INTERACTION_TIMEOUT,
    }
)
"""Errors that mean that the connection is lost."""
LOG_REFUSED: Final = frozenset({ER.MASTER_FATAL_ERROR_READING_BINLOG, SOURCE_HAS_PURGED_REQUIRED_GTIDS})
"""Errors for a replica that asked for what the log lacks, or whose server id another one has."""
UNKNOWN_PARTITION: Final = 1735
SHAPE_CHANGED: Final = frozenset(
    {ER.BAD_FIELD_ERROR, ER.NO_SUCH_TABLE, ER.TABLE_DEF_CHANGED, ER.KEY_DOES_NOT_EXITS, UNKNOWN_PARTITION}
)
UNREADABLE: Final = frozenset(
    {
        ER.FILE_NOT_FOUND,
        ER.GET_ERRNO,
        ER.NOT_KEYFILE,
        ER.WRONG_MRG_TABLE,
        ER.CRASHED_ON_USAGE,
        ER.CRASHED_ON_REPAIR,
        INDEX_CORRUPT,
        TABLESPACE_MISSING,
        TABLESPACE_DISCARDED,
        NO_SUCH_TABLE_IN_ENGINE,
    }
)
"""Errors for a table whose files the server can't read."""


def number_of(error: BaseException | None) -> int:
    """Return the server's or client's own number of an error of pymysql; 0 if it has none."""
    first = error.args[0] if error is not None and error.args else None
    return first if isinstance(first, int) else 0
