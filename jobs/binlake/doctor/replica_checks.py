"""Checks of the replica that a verification reads in the source's place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from binlake.config import PipelineConfig
from binlake.doctor import server_checks
from binlake.doctor.check import Check
from binlake.doctor.server_checks import VARIABLES, Examined
from binlake.errors import BinlakeError, ConnectionFailed
from binlake.metadata import lease
from binlake.metadata.metadata import metadata_of
from binlake.source.connection import Endpoint
from binlake.source.log import Origin
from binlake.source.read_replica import ReadReplica
from binlake.source.server import Source

_NAME = "replica"
_WAIT = 1.0
"""Seconds for which a replica that is behind the lake is waited for."""


def replica_checks(config: PipelineConfig, origin: Origin, endpoint: Endpoint) -> Iterator[Check]:
    """Check that the replica can be read as a verification reads it, and how far it is."""
    try:
        with Source.open(endpoint) as server:
            yield replace(server_checks.reached(server), name=_NAME)
            for check in server_checks.snapshot_grants(Examined(server, server.variables(VARIABLES))):
                yield replace(check, name=f"{_NAME}'s {check.name}")
        yield from _place(config, ReadReplica(endpoint, origin))
    except BinlakeError as error:
        yield Check(_NAME, False, error.message, error.remedy)


def _place(config: PipelineConfig, replica: ReadReplica) -> Iterator[Check]:
    """Check that the replica has executed what the lake holds. One that is behind is waited for by a verification."""
    position = lease.read(metadata_of(config)).position
    if position is None:
        return
    try:
        replica.wait_for(position, _WAIT)
        yield Check(f"{_NAME}'s position", True, f"has executed what the lake holds, up to {position.short}")
    except ConnectionFailed as error:
        yield Check(f"{_NAME}'s position", "warn", error.message, error.remedy)
