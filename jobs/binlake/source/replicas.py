"""The replicas that a server has."""

from __future__ import annotations

from dataclasses import dataclass

from binlake.source.server import Source


@dataclass(frozen=True)
class Replica:
    """A replica that is connected to a server. name: the host with which it registered."""

    server_id: int
    name: str


def replicas(source: Source) -> list[Replica]:
    """Return those connected now. Raises SourceError where the account may not list them."""
    rows = source.query(source.release.replicas)
    # The servers write Server_id or Server_Id, whatever the statement's name.
    named = [{column.lower(): value for column, value in row.items()} for row in rows]
    return [Replica(int(row["server_id"]), row["host"]) for row in named]
