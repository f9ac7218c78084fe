"""The server's global variables: what a file sets doesn't outlast it."""

from __future__ import annotations

from contextlib import suppress

import pymysql

from servers import Server


def variables(server: Server) -> dict[str, str]:
    return dict(server.execute("SHOW GLOBAL VARIABLES"))


def restore(server: Server, wanted: dict[str, str]) -> None:
    """Those that differ are set again, as far as they can be set."""
    changed = {name: wanted[name] for name, value in variables(server).items() if wanted.get(name, value) != value}
    with server.connect() as connection, connection.cursor() as cursor:
        for name, value in changed.items():
            plain = value.lstrip("-").replace(".", "", 1).isdigit()
            with suppress(pymysql.err.MySQLError):
                cursor.execute(f"SET GLOBAL {name} = {value if plain else connection.escape(value)}")
