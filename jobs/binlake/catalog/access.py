"""The sources and tables that a client of the catalog may read.

A scope is a source's name, ``shop``, or a pattern of its tables behind a colon, ``shop:shop.order*``. ``*`` is every
source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from binlake import names
from binlake.errors import UsageError
from binlake.schema.table import TableName

_SCOPE = re.compile(r"([^\s:]+)(?::([^\s.]+\.\S+))?")


@dataclass(frozen=True)
class Scope:
    """Tables that may be read. source: a source's name, or ``*``. tables: a pattern of its tables."""

    source: str
    tables: str = "*.*"

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Read a scope. Raises UsageError."""
        parts = _SCOPE.fullmatch(text)
        if parts is None:
            raise UsageError(
                f"{names.shown(text)} is no scope",
                remedy="write SOURCE, SOURCE:DATABASE.TABLE with * for any characters, or * for everything",
            )
        return cls(parts[1], parts[2] or "*.*")

    def __str__(self) -> str:
        return self.source if self.tables == "*.*" else f"{self.source}:{self.tables}"

    def is_of(self, source: str) -> bool:
        """Return whether the scope is of a source."""
        return self.source in ("*", source)

    def allows(self, source: str, name: TableName) -> bool:
        """Return whether a source's table may be read."""
        return self.is_of(source) and names.matches_any([self.tables], name.database, name.table)


@dataclass(frozen=True)
class Access:
    """What may be read: what a scope of each list allows. A token that was asked for with scopes has two lists: the
    client's, and these."""

    lists: tuple[tuple[Scope, ...], ...]

    @classmethod
    def of(cls, scopes: Sequence[Scope], asked: Sequence[Scope] = ()) -> Access:
        """Return the access by a client's scopes, and, where there are any, by those that were asked for."""
        return cls((tuple(scopes), *([tuple(asked)] if asked else [])))

    def is_of(self, source: str) -> bool:
        """Return whether anything of a source may be read."""
        return all(any(scope.is_of(source) for scope in scopes) for scopes in self.lists)

    def allows(self, source: str, name: TableName) -> bool:
        """Return whether a source's table may be read."""
        return all(any(scope.allows(source, name) for scope in scopes) for scopes in self.lists)


EVERYTHING = Access.of([Scope("*")])
