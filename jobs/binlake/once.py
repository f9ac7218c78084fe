"""What is made once in a process, also where several threads ask for it at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Made = TypeVar("Made")


def once(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """``functools.cache`` whose first callers wait for one another: cache itself lets each of them make one."""
    making = threading.Lock()
    kept = cache(make)

    @wraps(make)
    def given(*arguments: Given.args, **named: Given.kwargs) -> Made:
        with making:
            return kept(*arguments, **named)  # type: ignore[arg-type]  # mypy: cache asks for what can be hashed

    return given
