"""The replicas that a server has."""

from __future__ import annotations

from dataclasses import dataclass

from binlake.source.server import Source


@dataclass(frozen=True)
class Replica:
    """name: the host that it told the server when it registered."""

    server_id: int
    name: str


def replicas(source: Source) -> list[Replica]:
    """Those connected now. Raises SourceError where the account may not list them."""
    if source.is_mariadb or source.version < (8, 4):
        return [Replica(int(row["Server_id"]), row["Host"]) for row in source.query("SHOW SLAVE HOSTS")]
    return [Replica(int(row["Server_Id"]), row["Host"]) for row in source.query("SHOW REPLICAS")]
