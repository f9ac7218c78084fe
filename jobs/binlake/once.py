"""Values that are made once in a process, even if several threads ask for them at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Made = TypeVar("Made")


def once(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """Return a cached function that is called once only; concurrent first callers wait.

    ``functools.cache`` would call it for each of them.
    """
    making = threading.Lock()
    kept = cache(make)

    @wraps(make)
    def given(*arguments: Given.args, **named: Given.kwargs) -> Made:
        with making:
            return kept(*arguments, **named)  # type: ignore[arg-type]  # mypy: cache asks for what can be hashed

    return given
