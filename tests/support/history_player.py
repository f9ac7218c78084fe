"""A table's history, played event by event in plain Python: what the engine's must equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Row = Mapping[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Version:
    """One version of a row. began, ended: position and commit time."""

    row: Row
    began: tuple[str, int]
    ended: tuple[str, int] | None = None


@dataclass
class Player:
    """The history of one table.

    tracked: columns that make versions; None for all. by_mutation: each change of a row in a transaction counts, not
    the last alone.
    """

    key: Sequence[str]
    tracked: Sequence[str] | None = None
    by_mutation: bool = False
    closed: list[Version] = field(default_factory=list)
    current: dict[Key, Version] = field(default_factory=dict)
    _waiting: dict[Key, tuple[Row | None, str, int]] = field(default_factory=dict)

    def insert(self, row: Row, position: str, at: int) -> None:
        self._put(self._key_of(row), row, position, at)

    def update(self, before: Row, after: Row, position: str, at: int) -> None:
        if self._key_of(before) != self._key_of(after):
            self._put(self._key_of(before), None, position, at)
        self._put(self._key_of(after), after, position, at)

    def delete(self, row: Row, position: str, at: int) -> None:
        self._put(self._key_of(row), None, position, at)

    def commit(self) -> None:
        for key, change in self._waiting.items():
            self._change(key, *change)
        self._waiting.clear()

    def close_all(self, position: str, at: int) -> None:
        for key in list(self.current):
            self._change(key, None, position, at)

    def versions(self) -> list[Version]:
        return [*self.closed, *self.current.values()]

    def _key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key)

    def _put(self, key: Key, row: Row | None, position: str, at: int) -> None:
        self._waiting[key] = (row, position, at)
        if self.by_mutation:
            self.commit()

    def _change(self, key: Key, row: Row | None, position: str, at: int) -> None:
        version = self.current.get(key)
        if version is not None and row is not None and self._looks_alike(version.row, row):
            self.current[key] = replace(version, row={**version.row, **row})
            return
        if version is not None:
            self.closed.append(replace(self.current.pop(key), ended=(position, at)))
        if row is not None:
            self.current[key] = Version(row, (position, at))

    def _looks_alike(self, former: Row, latter: Row) -> bool:
        return all(former.get(name) == latter[name] for name in (latter if self.tracked is None else self.tracked))
