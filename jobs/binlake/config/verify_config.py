"""Settings of verifications."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from binlake.config.orchestration import Schedule
from binlake.config.section import Section

VerifyWay = Literal["read", "hash"]
RepairPolicy = Literal["ask", "auto", "never"]


def _is_share(share: str) -> str:
    if not re.fullmatch(r"\d{1,3}([.]\d+)?%", share) or not 0 < float(share[:-1]) <= 100:
        raise ValueError(f"{share!r} is not a share; write a percentage above 0%, up to 100%, such as 5%")
    return share


class VerifyConfig(Section):
    """How the lake is compared with the server.

    connection: an Airflow connection's id, of a replica that is read in the source's place; None for the source itself.
    by: ``read`` reads both sides' rows; ``hash`` lets the server hash its own. connections: how many read the server
    at once; None for as many as there are cores. rows_per_second: the most rows that they read together; None for no
    limit. max_threads_running: nothing begins to be read while more other threads run on the server; None for no limit.
    without_spark_rows: where Spark's executors are on a cluster, they read the tables with more rows than these.
    schedule: when the verify DAG runs; None: only when somebody triggers it. changed: whether its scheduled runs
    compare only what may have changed since it was compared, and a share of the rest. share: of all rows, in percent.
    repair: whether the verify DAG puts differing rows right: when somebody asks for it, by itself, or never.
    """

    connection: Annotated[str, Field(min_length=1)] | None = None
    by: VerifyWay = "read"
    connections: Annotated[int, Field(ge=1, le=64)] | None = None
    rows_per_second: Annotated[int, Field(ge=1)] | None = None
    max_threads_running: Annotated[int, Field(ge=1)] | None = None
    without_spark_rows: Annotated[int, Field(ge=0)] = 50_000_000
    schedule: Schedule | None = "@daily"
    changed: bool = True
    share: Annotated[str, AfterValidator(_is_share)] = "5%"
    repair: RepairPolicy = "ask"

    @property
    def share_of_rows(self) -> float:
        return float(self.share.removesuffix("%")) / 100
