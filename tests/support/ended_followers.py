"""Followers that end by themselves."""

from __future__ import annotations

from dataclasses import dataclass

from binlake.config import PipelineConfig
from binlake.interrupts import Ending
from binlake.lease import lease
from binlake.source.server import Source
from mirror import Mirror


@dataclass
class EndAtHead:
    """Work beside a follower that lets it end where the lake is at the log's head."""

    mirror: Mirror
    ending: Ending

    def begin(self, config: PipelineConfig, batch: int | None) -> None:
        place = lease.read(self.mirror.metadata).position
        with Source.open(self.mirror.endpoint) as source:
            if place is not None and (place.file, place.offset) == source.head()[:2]:
                self.ending.ask()

    def end(self) -> None:
        """It has no thread."""
