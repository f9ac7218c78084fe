"""The YAML's policies on values that no Delta type holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

InvalidDates = Literal["fail", "keep_text"]
InvalidTexts = Literal["fail", "keep_bytes"]


@dataclass(frozen=True)
class InvalidValues:
    """The policies on invalid values.

    dates: on dates such as 0000-00-00 or 2020-02-30. text: on bytes that aren't valid in the column's character set.
    """

    dates: InvalidDates = "fail"
    text: InvalidTexts = "fail"


FAIL, KEEP_DATES = InvalidValues(), InvalidValues(dates="keep_text")
KEEP_ALL = InvalidValues("keep_text", "keep_bytes")
