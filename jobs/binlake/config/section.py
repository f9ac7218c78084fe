"""The parts of a YAML as models, and patterns in them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


class Section(BaseModel):
    """A part of a YAML: a key that it doesn't know and a number without end are errors, and nothing changes it once it
    is read.

    Its validator is built when a YAML is read: as parts of others most models never need their own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, allow_inf_nan=False)


def _has_a_dot(pattern: str) -> str:
    if "." not in pattern:
        raise ValueError(f"{pattern!r} has no dot; write database.table, such as shop.*")
    return pattern


TablePattern = Annotated[str, AfterValidator(_has_a_dot)]
"""A shell-style pattern over ``database.table``."""
