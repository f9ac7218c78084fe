"""Settings of following: batches of seconds in one long-lived process."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from binlake.config import units
from binlake.config.section import Section


def _is_duration(text: str) -> str:
    units.seconds_of(text)
    return text


Duration = Annotated[str, AfterValidator(_is_duration)]
"""A length of time, as units.seconds_of reads it."""


class FollowConfig(Section):
    """How ``binlake follow`` works.

    every: how often the log is looked at. spark_idle: how long Spark stays once nothing needs it. batch_mb: after so
    many megabytes (10**6 bytes) of log a batch ends, before the next transaction.
    """

    every: Duration = "1s"
    spark_idle: Duration = "5min"
    batch_mb: Annotated[float, Field(gt=0)] = 256

    @property
    def every_seconds(self) -> float:
        return units.seconds_of(self.every)

    @property
    def spark_idle_seconds(self) -> float:
        return units.seconds_of(self.spark_idle)

    @property
    def batch_bytes(self) -> int:
        return units.bytes_of_mb(self.batch_mb)
