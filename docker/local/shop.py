"""The demo's shop on a private server: its schema, its rows, its changes, and the account that mirrors it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from servers import ROOT, Kind, Server

SQL = ROOT / "sql"
ACCOUNT = "binlake"
_COMMENT_LINE = re.compile(r"^\s*--.*\n", re.MULTILINE)


def statements(path: Path) -> Iterator[str]:
    """The statements of a file of sql/: each ends with a semicolon at the end of a line."""
    text = _COMMENT_LINE.sub("", path.read_text(encoding="utf-8"))
    yield from (statement.strip() for statement in re.split(r";\n", text) if statement.strip())


def run(server: Server, name: str) -> None:
    server.execute(*statements(SQL / f"{name}.sql"))


def fill(server: Server) -> int:
    """Schema and rows; gives the number of rows."""
    run(server, "demo_schema")
    run(server, "demo_rows")
    tables = [str(name) for (name,) in server.execute("SHOW TABLES FROM shop")]
    return sum(int(server.execute(f"SELECT COUNT(*) FROM shop.{table}")[0][0]) for table in tables)


def order_first(server: Server) -> None:
    """One order before the hour."""
    server.execute(
        "INSERT INTO shop.orders (customer_id, status, total, note, ordered_at) "
        "VALUES (1, 'new', 10, NULL, '2025-12-31 23:00:00')"
    )


def change(server: Server) -> None:
    """An hour in the shop: some 8,000 changed rows and one ALTER TABLE."""
    run(server, "demo_changes")


def grants(kind: Kind) -> list[str]:
    return list(statements(SQL / f"grants_{kind}.sql"))


def create_account(server: Server) -> str:
    """The mirroring account with no more than its grants; gives its connection as Airflow reads it."""
    password = secrets.token_urlsafe(24)
    server.create_account(ACCOUNT, password)
    server.execute(*grants(server.kind))
    return server.uri(ACCOUNT, password)
