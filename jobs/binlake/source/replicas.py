"""Ids that a source and its replicas have."""

from __future__ import annotations

from binlake.source.server import Source


def replica_ids(source: Source) -> list[int]:
    """Of the replicas connected now. Raises SourceError where the account may not list them."""
    if source.is_mariadb or source.version < (8, 4):
        return [int(row["Server_id"]) for row in source.query("SHOW SLAVE HOSTS")]
    return [int(row["Server_Id"]) for row in source.query("SHOW REPLICAS")]
