"""Settings of verifications."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from binlake.config.orchestration import Schedule
from binlake.config.section import Section

VerifyWay = Literal["read", "hash"]


class VerifyConfig(Section):
    """How the lake is compared with the server.

    by: ``read`` reads both sides' rows; ``hash`` lets the server hash its own. connections: how many read the server
    at once; None for as many as there are cores. rows_per_second: the most rows that they read together; None for no
    limit. schedule: when the verify DAG runs; None: only when somebody triggers it.
    """

    by: VerifyWay = "read"
    connections: Annotated[int, Field(ge=1, le=64)] | None = None
    rows_per_second: Annotated[int, Field(ge=1)] | None = None
    schedule: Schedule | None = "@daily"
