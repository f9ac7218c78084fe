"""Type of shell-style patterns over ``database.table`` in the YAML."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator


def _has_a_dot(pattern: str) -> str:
    if "." not in pattern:
        raise ValueError(f"{pattern!r} has no dot; write database.table, such as shop.*")
    return pattern


TablePattern = Annotated[str, AfterValidator(_has_a_dot)]
