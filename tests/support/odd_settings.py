"""Every session variable of a server, and values that nobody's applications need: what a session of ours must bear."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pymysql

from binlake.names import mysql_string
from servers import Server

TELLING: dict[str, tuple[str, ...]] = {
    "sql_mode": (
        "ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,STRICT_ALL_TABLES,NO_UNSIGNED_SUBTRACTION,HIGH_NOT_PRECEDENCE",
        "ALLOW_INVALID_DATES,NO_ZERO_DATE,NO_ZERO_IN_DATE,TIME_TRUNCATE_FRACTIONAL",
        "ORACLE,EMPTY_STRING_IS_NULL",
        "TRADITIONAL",
    ),
    "time_zone": ("-07:30", "+13:00"),
    "character_set_client": ("latin1",),
    "character_set_connection": ("latin1", "gbk"),
    "character_set_database": ("latin1",),
    "character_set_results": ("latin1", "ascii"),
    "character_set_server": ("latin1", "ucs2"),
    "character_set_filesystem": ("latin1",),
    "collation_connection": ("latin1_bin", "utf8mb4_bin"),
    "collation_database": ("latin1_bin",),
    "collation_server": ("utf8mb4_bin", "latin1_german2_ci"),
    "default_collation_for_utf8mb4": ("utf8mb4_general_ci",),
    "lc_time_names": ("de_DE", "ja_JP"),
    "lc_messages": ("de_DE", "ja_JP"),
    "block_encryption_mode": ("aes-256-cbc",),
    "system_versioning_asof": ("2020-01-01 00:00:00",),
    "default_regex_flags": ("DOTALL,EXTENDED,UNGREEDY",),
    "old_mode": ("ZERO_DATE_TIME_CAST,NO_PROGRESS_INFO,COMPAT_5_1_CHECKSUM", ""),
    "default_storage_engine": ("MyISAM",),
    "default_tmp_storage_engine": ("MyISAM",),
    "optimizer_switch": (
        "derived_merge=off,materialization=off,semijoin=off,index_merge=off",
        "mrr=on,mrr_cost_based=off,index_condition_pushdown=off",
    ),
    "optimizer_trace": ("enabled=on",),
    "session_track_system_variables": ("*",),
}
"""Of variables whose values aren't numbers or members of a list."""
GENERAL = ("0", "1", "2", "3", "20", "1000", "4294967295", "18446744073709551615", "0.001")
"""Numbers, which ON, OFF and the members of a list have, too."""
_BUFFERS = ("_size", "_length", "_memory", "_limit_mem", "_used")
"""Names' ends of variables of which the largest value takes the machine's memory."""
LOGGED_OTHERWISE = frozenset(
    {"binlog_format", "binlog_row_image", "binlog_row_value_options", "sql_log_bin", "server_id", "wsrep_on"}
)
"""What they change is what writers log: refused by name by doctor and by the log's reader, which have their tests."""
ALONE = frozenset({"max_session_mem_used"})
"""Beside other odd values the server takes no statement, not even the one that lifts it."""
_NUMBER = re.compile(r"-?[0-9.]+")
_NOT_TO_BE_TRIED = frozenset(
    {"init_connect", "debug", "debug_dbug", "sql_slave_skip_counter", "enforce_storage_engine"}
)


def candidates(name: str) -> Sequence[str]:
    """Values of a variable, as SET takes them."""
    if name in TELLING:
        return [f"'{value}'" for value in TELLING[name]]
    large = name.endswith(_BUFFERS) and not name.startswith(("max_join", "max_sort"))
    return [value for value in GENERAL if not (large and int(float(value)) > 1000)]


def session_variables(server: Server) -> dict[str, str]:
    """Those that a session takes from the server, with the values that this one has."""
    of_sessions = {name for name, _ in server.execute("SHOW SESSION VARIABLES")}
    globally = dict(server.execute("SHOW GLOBAL VARIABLES"))
    of_sessions -= LOGGED_OTHERWISE | ALONE | _NOT_TO_BE_TRIED
    return {name: globally[name] for name in sorted(of_sessions & globally.keys()) if _is_taken(server, name)}


def _is_taken(server: Server, name: str) -> bool:
    """Whether a session has a value of its own."""
    try:
        server.execute(f"SET SESSION {name} = DEFAULT")
    except pymysql.MySQLError:
        return False
    return True


class OddSettings:
    """A server's variables, set all at once or some, and set back."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.as_it_was = session_variables(server)

    def rounds(self) -> int:
        return max(len(candidates(name)) for name in self.as_it_was)

    def accepted(self, number: int) -> dict[str, str]:
        """Of each variable its value of this round, where the server takes it."""
        chosen: dict[str, str] = {}
        with self._server.connect() as session, session.cursor() as cursor:
            for name in self.as_it_was:
                values = candidates(name)
                with suppress(pymysql.MySQLError):
                    cursor.execute(f"SET GLOBAL {name} = {values[number % len(values)]}")
                    chosen[name] = values[number % len(values)]
                    self._back(cursor, [name])
        return chosen

    @contextmanager
    def set_to(self, values: dict[str, str]) -> Iterator[None]:
        with self._server.connect() as session, session.cursor() as cursor:
            cursor.execute("SET SESSION wait_timeout = 600, net_read_timeout = 600")
            try:
                for name, value in values.items():
                    cursor.execute(f"SET GLOBAL {name} = {value}")
                yield
            finally:
                self._back(cursor, values)

    def _back(self, cursor: pymysql.cursors.Cursor, names: Sequence[str] | dict[str, str]) -> None:
        for name in names:
            value = self.as_it_was[name]
            written = value if _NUMBER.fullmatch(value) else mysql_string(value)
            try:
                cursor.execute(f"SET GLOBAL {name} = {written}")
            except pymysql.MySQLError:  # it is shown otherwise than it is written
                cursor.execute(f"SET GLOBAL {name} = DEFAULT")
