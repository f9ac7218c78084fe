"""A Spark session that must not be asked for."""

from __future__ import annotations

from typing import NoReturn

import pytest


class NoSession:
    def __call__(self, why: str, /) -> NoReturn:
        pytest.fail(f"Spark was asked for: {why}")  # no error of code, which would cost its table alone

    def rest(self, seconds: float) -> None:
        """There is none."""
