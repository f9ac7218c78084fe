"""A Spark session that must not be asked for."""

from __future__ import annotations

from typing import NoReturn


class NoSession:
    def __call__(self, why: str, /) -> NoReturn:
        raise AssertionError(f"Spark was asked for: {why}")

    def rest(self, seconds: float) -> None:
        """There is none."""
