"""The YAML's policies on values that no Delta type holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

InvalidDates = Literal["fail", "keep_text"]


@dataclass(frozen=True)
class InvalidValues:
    """dates: such as 0000-00-00 or 2020-02-30."""

    dates: InvalidDates = "fail"


FAIL, KEEP = InvalidValues(), InvalidValues(dates="keep_text")
"""Nothing is kept, everything is."""
