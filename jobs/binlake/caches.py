"""Values that a process keeps in memory so as not to read or make them again: all are of one kind, and listed here.

Nothing is lost with a value that is dropped. A forked process doesn't see the values of a Cache; it has copies of what
``remembered`` functions have returned.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, wraps
from typing import Generic, ParamSpec, TypeVar

Given = ParamSpec("Given")
Made = TypeVar("Made")
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class CacheBound:
    """How much a cache keeps. most: of what is counted in ``of``; None where no more can come. oldest_first: what is
    dropped of more. Batches use the same tables in the same order, so that the oldest is needed soonest: of these any
    is dropped."""

    most: int | None
    of: str
    oldest_first: bool = False


BOUNDS: Mapping[str, CacheBound] = {
    "tables to be lent": CacheBound(256, "tables"),
    "logs of tables": CacheBound(256, "tables"),
    "checkpoints by deltalake": CacheBound(10_000, "tables"),
    "files of Iceberg tables": CacheBound(5_000, "data files and vectors"),  # some 10 kB each
    "schemas of manifests": CacheBound(256, "partitions"),
    "sources whose tables were published": CacheBound(256, "sources"),
    "tables that weren't published": CacheBound(256, "tables"),
    "problems of catalogs": CacheBound(256, "sources"),
    "catalogs that failed": CacheBound(256, "catalogs"),
    "names that catalogs were asked for": CacheBound(16, "catalogs"),
    "tables in AWS Glue": CacheBound(10_000, "tables"),
    "rows of data files": CacheBound(32_000_000, "bytes"),
    "columns of data files": CacheBound(5_000, "data files"),
    "data files of metadata": CacheBound(256, "tables"),
    "answers of metadata": CacheBound(64, "answers"),
    "rows of metadata": CacheBound(2_000, "rows", oldest_first=True),
    "rows of staged files": CacheBound(16 << 20, "bytes", oldest_first=True),
    "conditions of metadata": CacheBound(256, "conditions"),
    "texts of the lease": CacheBound(8, "rows"),  # each step of a batch reads the row
    "shapes of watermarks": CacheBound(1024, "shapes"),  # most shapes stay from batch to batch
    "positions of watermarks": CacheBound(2048, "positions"),
    "shapes of feeds": CacheBound(1024, "shapes"),
    "readers of Avro": CacheBound(1024, "schemas"),
    "table maps": CacheBound(512, "shapes"),  # a follower meets the same ones in each batch
    "schemas of staged files": CacheBound(1024, "shapes"),
    "row conditions": CacheBound(1024, "conditions"),
    "forms of dataclasses": CacheBound(None, "classes"),
    "decoders of charsets": CacheBound(None, "charsets"),
    "encoders to charsets": CacheBound(None, "charsets"),
    "converters of charsets": CacheBound(None, "charsets"),
    "charsets that keep ASCII": CacheBound(None, "charsets"),
    "containers of stores": CacheBound(64, "containers"),
    "clients of HDFS": CacheBound(64, "clusters"),
    "file systems of HDFS": CacheBound(64, "clusters"),
    "accounts of connections": CacheBound(256, "connections"),
    "misreadings of columns": CacheBound(10_000, "columns"),
    "side columns of columns": CacheBound(10_000, "columns"),
    "credentials of readers": CacheBound(10_000, "tables"),
    "metadata on the page": CacheBound(512, "sources"),
    "reasons of failed tasks on the page": CacheBound(256, "tasks"),
    "totals on the page": CacheBound(512, "sources"),
}
"""All caches by their names. An open table takes 0.1 MB, and a megabyte with 1,000 files; a row of metadata two
kilobytes."""
_weights: dict[str, Callable[[], int]] = {}
"""How much the caches of this process keep, of those whose modules are imported."""


class Cache(Generic[_Key, _Value]):
    """Values by their keys, for all threads of a process. name: one of BOUNDS. weigh: returns how much a value counts
    there."""

    def __init__(self, name: str, weigh: Callable[[_Value], int] = lambda value: 1) -> None:
        self.most, self._weigh, self._oldest_first = BOUNDS[name].most, weigh, BOUNDS[name].oldest_first
        self._kept: dict[tuple[int, _Key], tuple[_Value, int]] = {}
        self._weight = 0
        self._keeping = threading.Lock()
        _weights[name] = lambda: self._weight

    @property
    def weight(self) -> int:
        """How much is kept, as the bound counts it."""
        return self._weight

    def get(self, key: _Key) -> _Value | None:
        """Return the value that this process put under the key; None without one."""
        with self._keeping:
            value, _ = self._kept.get((os.getpid(), key), (None, 0))
        return value

    def take(self, key: _Key) -> _Value | None:
        """Return a value, which is dropped."""
        with self._keeping:
            return self._drop((os.getpid(), key))

    def put(self, key: _Key, value: _Value) -> None:
        """Keep a value under the key, and drop others beyond the cache's bound."""
        place, weight = (os.getpid(), key), self._weigh(value)
        with self._keeping:
            self._drop(place)
            self._kept[place] = value, weight
            self._weight += weight
            while self.most is not None and self._weight > self.most:
                self._drop(next(iter(self._kept)) if self._oldest_first else random.choice(tuple(self._kept)))

    def drop(self, keys: Iterable[_Key]) -> None:
        """Drop the values under these keys; unknown keys change nothing."""
        with self._keeping:
            for key in keys:
                self._drop((os.getpid(), key))

    def clear(self) -> None:
        """Drop all values."""
        with self._keeping:
            self._kept.clear()
            self._weight = 0

    def _drop(self, place: tuple[int, _Key]) -> _Value | None:
        value, weight = self._kept.pop(place, (None, 0))
        self._weight -= weight
        return value


def remembered(name: str) -> Callable[[Callable[Given, Made]], Callable[Given, Made]]:
    """Return a decorator of functions whose results are kept by their arguments. name: one of BOUNDS."""

    def decorated(make: Callable[Given, Made]) -> Callable[Given, Made]:
        kept = lru_cache(BOUNDS[name].most)(make)
        _weights[name] = lambda: kept.cache_info().currsize
        return kept  # type: ignore[return-value]  # mypy: it asks for what can be hashed

    return decorated


def described() -> list[str]:
    """Return a line for each cache: how much it keeps in this process, and how much it may."""
    return [
        f"cache of {name}: {_weights[name]() if name in _weights else 0:,} of "
        f"{'all' if bound.most is None else f'{bound.most:,}'} {bound.of}"
        for name, bound in BOUNDS.items()
    ]


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
