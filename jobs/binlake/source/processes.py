"""The sessions of a server, and what each runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

_LISTED = """
    SELECT id AS id, user AS user, host AS host, time AS seconds, command AS command, state AS state,
        LEFT(info, {characters}) AS info
    FROM information_schema.processlist WHERE id <> CONNECTION_ID()"""


class QueriedServer(Protocol):
    """A server that is asked: a Source."""

    @property
    def is_mariadb(self) -> bool:
        """Return whether the server is MariaDB."""

    @property
    def connection_id(self) -> int:
        """Return the server's number of this connection."""

    def query(self, sql: str, args: Sequence[object] | None = None) -> list[dict[str, Any]]:
        """Return a query's rows by column."""

    def grants(self) -> list[str]:
        """Return the GRANT statements of the account."""


def processes(source: QueriedServer, characters: int = 200) -> list[dict[str, Any]]:
    """Return the sessions that the account may see, without its own: id, user, host, seconds, command, state and info.

    characters: length at which the texts of statements are cut; MySQL cuts them at 100.

    MySQL's information_schema.processlist fails with error 3854 while any session's statement has bytes that aren't
    UTF-8, such as those of a binary literal, even if its text isn't asked for (tried on 9.7).
    """
    if source.is_mariadb:
        return source.query(_LISTED.format(characters=characters))
    own = source.connection_id
    rows = [{name.lower(): value for name, value in row.items()} for row in source.query("SHOW PROCESSLIST")]
    return [{**row, "seconds": row["time"]} for row in rows if row["id"] != own]
