"""Requests of the page's users, as decisions in the source's metadata: who, when, why, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

from binlake.config import PipelineConfig
from binlake.delta import opened_tables
from binlake.errors import BinlakeError
from binlake.records import decisions
from binlake.records.decisions import Reason
from binlake.schema.table import TableName
from binlake.store.metadata import metadata_of
from binlake_airflow.page.access import Reader

Why = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]
"""The reason for a decision about a table or an event, which must be given."""
MayBeWhy = Annotated[str, StringConstraints(strip_whitespace=True, max_length=500)]
"""A reason that may be left out."""


class Asked(BaseModel):
    """A user's request. why: the reason to record; it may be empty."""

    model_config = ConfigDict(extra="forbid")
    why: MayBeWhy = ""


def note(
    config: PipelineConfig,
    action: str,
    reason: Reason,
    result: str,
    *,
    run: str | None = None,
    names: Iterable[TableName] = (),
) -> str:
    """Record an action that was done, and return its result, with why it couldn't be recorded where it couldn't.

    Nothing is recorded where no lake was begun. run: Airflow's, ``DAG/RUN``.
    """
    metadata = metadata_of(config)
    try:
        if opened_tables.is_table(metadata.location("lease")):
            decisions.note(metadata, action, reason, names, run=run, result=result)
    except BinlakeError as error:
        return f"{result}; it couldn't be recorded: {error.message}"
    return result


def reason_of(reader: Reader, asked: Asked) -> Reason:
    """Return the user, and the reason given."""
    return Reason(reader.name, asked.why)
