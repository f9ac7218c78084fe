"""The parts of a YAML as models."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of a YAML: a key that it doesn't know and a number without end are errors, and nothing changes it once it
    is read.

    Its validator is built when a YAML is read: as parts of others most models never need their own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, allow_inf_nan=False)
