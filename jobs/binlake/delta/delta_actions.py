"""The actions of a Delta table's log as records, and what the commits of a log leave, one after the other.

Source: Delta's protocol, "Actions" and "Action Reconciliation".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import unquote

from binlake.errors import LeftToSpark

_decoded = json.JSONDecoder().decode
"""``json.loads`` looks for other kinds of text in each of a commit's lines."""
DeltaAction = dict[str, Any]
"""An action, or its fields, as JSON has it."""
FileKey = tuple[Any, ...]
"""The identity of a data file with its deletion vector."""
VECTOR_KEY = ("storageType", "pathOrInlineDv", "offset")
"""The fields of a deletion vector's descriptor that identify it."""


@dataclass(frozen=True)
class LogAction:
    """An action of a log. fields: all that the log has of it. kind: its name there. The kinds of actions have no fields
    of their own, and inherit its methods."""

    fields: DeltaAction
    kind: ClassVar[str]


class FileAction(LogAction):
    """An action on a data file."""

    @property
    def path(self) -> str:
        """Return the file's path, as the log has it."""
        path: str = self.fields["path"]
        return path

    @property
    def vector(self) -> Mapping[str, Any] | None:
        """Return the descriptor of the file's deletion vector."""
        return self.fields.get("deletionVector")

    @property
    def key(self) -> FileKey:
        """Return the identity of the file with its deletion vector."""
        vector = self.vector or {}
        return self.path, *(vector.get(field) for field in VECTOR_KEY)

    @property
    def names(self) -> set[str]:
        """Return the names of the data file and of its deletion vector's file, without their folders."""
        names = {unquote(self.path).rpartition("/")[2]}
        if self.vector and self.vector.get("storageType"):
            from binlake.delta import deletion_vectors  # it imports pyroaring

            names |= {deletion_vectors.file_name(self.vector) or ""} - {""}
        return names

    @property
    def changes_data(self) -> bool:
        """Return whether rows come or go with it, as they don't where files are put together."""
        return bool(self.fields.get("dataChange", True))


class Add(FileAction):
    """A data file that comes, or gets other statistics or another deletion vector."""

    kind = "add"

    @property
    def size(self) -> int:
        """Return its bytes."""
        return int(self.fields["size"])

    @property
    def modified_ms(self) -> int:
        """Return when it was written, in milliseconds since 1970."""
        return int(self.fields["modificationTime"])

    @property
    def stats(self) -> str | None:
        """Return its statistics as JSON."""
        return self.fields.get("stats")

    @property
    def rows(self) -> int | None:
        """Return the number of its rows, with those that its deletion vector hides; None where its statistics lack
        it."""
        return rows_in(self.fields)

    @property
    def hidden(self) -> int:
        """Return the number of rows that its deletion vector hides."""
        return int((self.vector or {}).get("cardinality", 0))


def rows_in(add: DeltaAction) -> int | None:
    """Return the number of rows of the data file that an action adds, those too that a deletion vector hides; None
    where its statistics lack it."""
    rows: int | None = json.loads(add.get("stats") or "{}").get("numRecords")
    return rows


def counted_rows(add: DeltaAction) -> int:
    """Return the same number. Raises LeftToSpark where the file's statistics lack it."""
    if (rows := rows_in(add)) is None:
        raise LeftToSpark("a data file's statistics don't count its rows")
    return rows


class Remove(FileAction):
    """A data file that goes, or the end of its last deletion vector."""

    kind = "remove"


class Recorded(LogAction):
    """The version that an application records."""

    kind = "txn"

    @property
    def app(self) -> str:
        """Return the application id."""
        app: str = self.fields["appId"]
        return app

    @property
    def version(self) -> int:
        """Return the version that is recorded for the application."""
        return int(self.fields["version"])


class CommitInfo(LogAction):
    """A commit's description of itself."""

    kind = "commitInfo"


class OtherAction(LogAction):
    """An action that may change a table's schema, settings or protocol."""

    kind = ""


_KINDS: Mapping[str, type[LogAction]] = {of.kind: of for of in (Add, Remove, Recorded, CommitInfo)}


@dataclass(frozen=True)
class Commit:
    """A commit of a table. digest: of its file, as ``log_files.digest_of_commit`` has it; empty where it wasn't read
    from there."""

    version: int
    actions: Sequence[LogAction]
    digest: str = field(default="", compare=False)

    @property
    def files(self) -> list[FileAction]:
        """Return the actions on data files, in their order."""
        return [action for action in self.actions if isinstance(action, FileAction)]

    @property
    def added(self) -> list[Add]:
        """Return the files that it adds."""
        return [action for action in self.actions if isinstance(action, Add)]

    @property
    def removed(self) -> list[Remove]:
        """Return the files that it removes."""
        return [action for action in self.actions if isinstance(action, Remove)]

    @property
    def info(self) -> DeltaAction:
        """Return its description of itself; empty where it has none."""
        return next((action.fields for action in self.actions if isinstance(action, CommitInfo)), {})

    @property
    def is_of_plain_files(self) -> bool:
        """Return whether it changes data files and recorded versions alone, and has no path that Delta's log
        encodes."""
        return not any(
            "%" in action.path if isinstance(action, FileAction) else isinstance(action, OtherAction)
            for action in self.actions
        )


def actions_in(text: str) -> Iterator[LogAction]:
    """Yield the actions that the file of a commit holds. Raises ValueError."""
    for line in _lines_of(text):
        if line.strip():
            for kind, fields in _decoded(line).items():
                if fields:
                    yield of_kind(kind, fields)


def of_kind(kind: str, fields: DeltaAction) -> LogAction:
    """Return an action by its name in the log."""
    return _KINDS.get(kind, OtherAction)(fields)


def info_of(text: str) -> DeltaAction:
    """Return what the commit in a file of the log says of itself, without parsing the rest. Raises ValueError."""
    first = (line for line in _lines_of(text) if line.startswith('{"commitInfo"'))
    info: DeltaAction = next((json.loads(line)["commitInfo"] for line in first), {})
    return info


def _lines_of(text: str) -> list[str]:
    """Return the lines of a commit: a text in its JSON may hold what ``str.splitlines`` takes for other ends of lines,
    such as U+2028."""
    return text.split("\n")


@dataclass
class Replay:
    """The remaining actions of commits that follow each other.

    files: the data files that are there, by path. gone: those that aren't, and deletion vectors that no file has any
    more; the last action on each. recorded: by application id.
    """

    files: dict[str, Add] = field(default_factory=dict)
    gone: dict[FileKey, Remove] = field(default_factory=dict)
    recorded: dict[str, Recorded] = field(default_factory=dict)

    def take(self, actions: Iterable[LogAction]) -> Replay:
        """Continue by the actions of the next commits; return this. Within a commit they are in any order: a file that
        gets another deletion vector is removed with the old one, and added with the new one."""
        for action in actions:
            if isinstance(action, Add):
                path = action.path
                if path in self.files:
                    del self.files[path]  # it becomes the newest
                self.files[path] = action
                if self.gone:
                    self.gone.pop(action.key, None)
            elif isinstance(action, Remove):
                there = self.files.get(action.path)
                if there and there.key == action.key:
                    del self.files[action.path]
                self.gone[action.key] = action
            elif isinstance(action, Recorded):
                self.recorded[action.app] = action
        return self

    def take_all(self, commits: Iterable[Commit]) -> Replay:
        """Do the same by the next commits."""
        return self.take(action for commit in commits for action in commit.actions)


@dataclass(frozen=True)
class DataFile:
    """A data file that an attempt wrote. path: below the table's folder. action: Delta's AddFile as JSON, with the
    statistics."""

    path: str
    bytes: int
    rows: int
    action: str

    @property
    def action_path(self) -> str:
        """Return the path as Delta writes it, as part of a URL."""
        return str(json.loads(self.action)["add"]["path"])
