"""The files of a Delta log, and the data files and files of deletion vectors that a version of the table needs.

Source: Delta's protocol, "Delta Log Entries", "Checkpoints" and "Deletion Vectors".
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from binlake.storage import files
from binlake.storage.protocol import StoredFile

_COMMIT = re.compile(r"\d{20}\.json")
_OF_A_VERSION = re.compile(r"\d{20}\.")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
_VECTOR = ("storageType", "pathOrInlineDv", "offset")

FileKey = tuple[Any, ...]
"""What identifies a data file with its deletion vector."""


@dataclass(frozen=True)
class LogFiles:
    """The files of a table's Delta log that belong to versions, oldest version first."""

    table_path: str
    files: tuple[StoredFile, ...]

    @classmethod
    def of(cls, table_path: str) -> LogFiles:
        """List a table's log. Raises LakeError."""
        listed = sorted(files.list_files(f"{table_path}/_delta_log"), key=lambda file: file.name)
        return cls(table_path, tuple(file for file in listed if _OF_A_VERSION.match(file.name)))

    @cached_property
    def commits(self) -> dict[int, float]:
        """The time of each commit, seconds since 1970, by its version."""
        return {_version(file): file.modified for file in self.files if _COMMIT.fullmatch(file.name)}

    @cached_property
    def checkpoints(self) -> dict[int, list[str]]:
        """The names of the files of each checkpoint that has all its parts, by its version."""
        parts: dict[tuple[int, int], list[str]] = defaultdict(list)
        for file in self.files:
            if match := _CHECKPOINT.fullmatch(file.name):
                parts[int(match[1]), int(match[2] or 1)].append(file.name)
        return {version: names for (version, whole), names in parts.items() if len(names) == whole}

    def base(self, version: int) -> int:
        """Return the newest checkpoint at or before a version; -1 where there is none."""
        place = bisect_right(self._bases, version)
        return self._bases[place - 1] if place else -1

    @cached_property
    def _bases(self) -> list[int]:
        return sorted(self.checkpoints)

    def stood_at(self, time: float) -> int:
        """Return the version that stood at a time, seconds since 1970, as far as the log reaches back."""
        since = [version for version, modified in self.commits.items() if modified >= time]
        return min(since) - 1 if since else max(self.commits, default=-1)

    def has(self, first: int, last: int) -> bool:
        """Tell whether all commits from one version to another are there."""
        return self.commits.keys() >= set(range(max(0, first), last + 1))

    def expired(self, stood: int, kept: Collection[int]) -> tuple[StoredFile, ...]:
        """Return the files that no version since ``stood`` needs, and none of the versions ``kept``.

        These are all before the newest complete checkpoint at or before ``stood``, except what leads from a checkpoint
        to a kept version.
        """
        base = max(0, self.base(stood))
        leading: set[int] = set()
        for version in kept:
            leading.update(range(max(0, self.base(version)), version + 1))
        return tuple(file for file in self.files if _version(file) < base and _version(file) not in leading)

    def needed_by(self, version: int) -> set[str] | None:
        """Return the names of the files that a version needs, without their folders; None where its log isn't whole.

        Raises OSError, ArrowException.
        """
        base = self.base(version)
        if not self.has(base + 1, version):
            return None
        added = dict(self._of_checkpoint(base)) if base >= 0 else {}
        for number in range(base + 1, version + 1):
            actions = list(self._actions(number))
            for kind in ("remove", "add"):
                for action in (entry[kind] for entry in actions if entry.get(kind)):
                    if kind == "add":
                        added[file_key(action)] = _names(action)
                    else:
                        added.pop(file_key(action), None)
        return {name for names in added.values() for name in names}

    def named_since(self, version: int) -> set[str] | None:
        """Return the names of the files that commits behind a version added or removed; None where one is missing."""
        newest = max(self.commits, default=version)
        if not self.has(version, newest):
            return None
        named: set[str] = set()
        for number in range(version + 1, newest + 1):
            for entry in self._actions(number):
                if action := entry.get("add") or entry.get("remove"):
                    named |= _names(action)
        return named

    def removed_by(self, gone: Collection[StoredFile]) -> set[str]:
        """Return the names of the files that the commits among these files of the log removed. Raises LakeError."""
        commits = [_version(file) for file in gone if _COMMIT.fullmatch(file.name)]
        actions = (entry["remove"] for number in commits for entry in self._actions(number) if entry.get("remove"))
        return {name for action in actions for name in _names(action)}

    def _actions(self, version: int) -> Iterator[dict[str, Any]]:
        for line in lines_of(files.read_text(f"{self.table_path}/_delta_log/{version:020}.json")):
            if line.strip():
                yield json.loads(line)

    def _of_checkpoint(self, version: int) -> Iterator[tuple[FileKey, set[str]]]:
        import pyarrow.parquet as pq  # for this alone

        columns = ["add.path", *(f"add.deletionVector.{field}" for field in _VECTOR)]
        for name in self.checkpoints[version]:
            with files.opened(f"{self.table_path}/_delta_log/{name}") as source:
                adds = pq.ParquetFile(source).read(columns=columns, use_threads=False)["add"]
            for add in adds.drop_null().to_pylist():
                if add["path"] is not None:
                    yield file_key(add), _names(add)


def lines_of(text: str) -> list[str]:
    """Return the lines of a commit: a text in its JSON may hold what ``str.splitlines`` takes for other ends of lines,
    such as U+2028."""
    return text.split("\n")


def file_key(action: Mapping[str, Any]) -> FileKey:
    """Return what identifies the data file, with its deletion vector, of an add or remove action."""
    vector = action.get("deletionVector") or {}
    return action["path"], *(vector.get(field) for field in _VECTOR)


def _version(file: StoredFile) -> int:
    return int(file.name[:20])


def _names(action: dict[str, Any]) -> set[str]:
    """Return the names of a data file and of its deletion vector's file."""
    vector = action.get("deletionVector")
    from binlake.delta import deletion_vectors  # it imports pyroaring

    own = deletion_vectors.file_name(vector) if vector and vector.get("storageType") else None
    return {unquote(action["path"]).rpartition("/")[2], *([own] if own else [])}
