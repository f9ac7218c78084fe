"""Settings of each session, so that no result depends on a default of the server or of the account.

A server's own settings (SET GLOBAL, ``init_connect``) are what its applications need. ``sql_select_limit`` silently
cuts the result of a SELECT, also of the catalog; ``PAD_CHAR_TO_FULL_LENGTH`` changes values; a VIRTUAL column is
computed under the settings of the session that reads it. Numbers are written out: DEFAULT would mean the server's own.
"""

from __future__ import annotations

LOCK_WAIT = 30
"""Seconds for which a statement waits for a table that another session locks; the servers' defaults are a day and a
year."""
IDLE = 7 * 86_400
"""Seconds for which the server keeps an idle connection: a snapshot's waits while rows are copied."""

_MOST = 2**64 - 1
_BOTH = (
    "time_zone='+00:00'",
    "sql_mode=''",
    # A SELECT returns all of its rows
    f"sql_select_limit={_MOST}",
    f"max_join_size={_MOST}",
    "sql_big_selects=1",  # max_join_size sets it, so it comes after
    "sql_auto_is_null=0",
    "sql_buffer_result=0",
    f"group_concat_max_len={1 << 20}",
    # The results of expressions
    "div_precision_increment=4",
    "default_week_format=0",
    "lc_time_names='en_US'",
    "lc_messages='en_US'",  # a refusal is known by its text, too
    "sql_quote_show_create=1",
    # Transactions
    "autocommit=1",
    "completion_type=0",
    f"wait_timeout={IDLE}",
    f"lock_wait_timeout={LOCK_WAIT}",
)
_MYSQL = (
    "transaction_isolation='REPEATABLE-READ'",
    "transaction_read_only=0",
    "max_execution_time=0",
    "block_encryption_mode='aes-128-ecb'",
    "windowing_use_high_precision=1",
    # Numbers of rows up to a day old would make one chunk of a table that has just been filled.
    "information_schema_stats_expiry=0",
)
_MARIADB = (
    "tx_isolation='REPEATABLE-READ'",
    "tx_read_only=0",
    "max_statement_time=0",
    "old_mode=''",
    "default_regex_flags=''",
    "system_versioning_asof=DEFAULT",  # here it's the present, whatever the server's own
    "idle_transaction_timeout=0",
    "idle_readonly_transaction_timeout=0",
    "idle_write_transaction_timeout=0",
    # Limits at which it refuses a question
    f"max_session_mem_used={2**63 - 1}",
    f"tmp_disk_table_size={_MOST}",
    f"sort_buffer_size={2 << 20}",
)


def assignments(*, mariadb: bool) -> tuple[str, ...]:
    """Return the variables with their values, as SET SESSION takes them, for a server of a known kind."""
    return (*_BOTH, *(_MARIADB if mariadb else _MYSQL))


def statement() -> str:
    """Return a SET for a server of either kind: each reads only the versioned comments that are meant for it.

    MariaDB skips the comments of MySQL 5.7 to 9.9, and MySQL those with an M.
    """
    parts = [f"SESSION {assignment}" for assignment in _BOTH]
    text = "SET " + ", ".join(parts)
    text += "".join(f" /*!80000 , SESSION {assignment} */" for assignment in _MYSQL)
    return text + "".join(f" /*M!100500 , SESSION {assignment} */" for assignment in _MARIADB)
