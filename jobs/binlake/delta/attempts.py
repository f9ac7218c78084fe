"""Attempts to copy a chunk: where each writes, what it leaves, and what is removed of it.

    {table's folder}/{attempt}/…                                 data files, from where no commit moves them
    {root}/_staging/snapshot/{snapshot}/{attempt}/table.json     notes the attempt, before it writes
    {root}/_staging/snapshot/{snapshot}/{attempt}/copied.json    what it wrote, once all is there
    {root}/_staging/snapshot/{snapshot}/given                    a commit may know its files

Each attempt has a random name: who lost the lease writes into no folder that is read. What is removed:

    1  of a snapshot that no run takes up again: its rows in metadata are gone, or committed
    2  noted folders alone; and none once ``given`` is there: VACUUM removes what no commit knows
    3  so who commits writes ``given``, and then asks whether the lease is still his: who removes had it when he took
       the rows away, and looks for ``given`` after that
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field

from binlake.config import PipelineConfig
from binlake.errors import StagingError
from binlake.schema.table import TableName
from binlake.serialization import dumps, loads
from binlake.storage import files

_PREFIX = "snapshot-"
OF_KEYS = "-keys"
"""Ends the id of a snapshot of a range of keys: no run takes up what another left of it."""


@dataclass(frozen=True)
class DataFile:
    """path: below the table's folder. action: Delta's AddFile as JSON, with the statistics."""

    path: str
    bytes: int
    rows: int
    action: str

    @property
    def action_path(self) -> str:
        """The path as Delta writes it: a URL's."""
        return str(json.loads(self.action)["add"]["path"])


@dataclass(frozen=True)
class Copied:
    """What an attempt wrote. invalid_dates: how many rows have one, by the column's name."""

    files: tuple[DataFile, ...]
    invalid_dates: dict[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def is_of_an_attempt(path: str) -> bool:
    """Whether a file lies where an attempt writes. path: below the table's folder."""
    return path.startswith(_PREFIX) and "/" in path


class Attempts:
    """Those of one snapshot of a table."""

    def __init__(self, config: PipelineConfig, table: TableName, snapshot: str) -> None:
        self._table = table
        self.table_path = config.table_path(table)
        self.folder = config.staging_path("snapshot", snapshot)

    @staticmethod
    def new() -> str:
        """A name."""
        return f"{_PREFIX}{uuid.uuid4().hex[:16]}"

    def data_folder(self, attempt: str) -> str:
        """Raises ValueError for what is no attempt: folders of data files are removed."""
        if not attempt.startswith(_PREFIX):
            raise ValueError(f"no attempt: {attempt!r}")
        return f"{self.table_path}/{attempt}"

    def staging_folder(self, attempt: str) -> str:
        return f"{self.folder}/{attempt}"

    def begin(self, attempt: str) -> None:
        files.make_private_folder(self.staging_folder(attempt))
        files.write_text(f"{self.staging_folder(attempt)}/table.json", dumps(self._table))

    def done(self, attempt: str, copied: Copied) -> None:
        """All is written. Of an attempt without rows Delta lists no file, though it may have made one."""
        if not copied.files:
            files.remove_folder(self.data_folder(attempt))
        files.write_text(f"{self.staging_folder(attempt)}/copied.json", dumps(copied))

    def copied(self, attempt: str) -> Copied:
        """Raises StagingError where it is missing or damaged."""
        path = f"{self.staging_folder(attempt)}/copied.json"
        try:
            return loads(Copied, files.read_text(path))
        except ValueError as error:
            raise StagingError(f"{path} is damaged: {error}", remedy="run again: it is copied anew") from error

    def is_whole(self, attempt: str, rows: int) -> bool:
        """Whether it has these rows, as far as the sizes of its files tell."""
        try:
            copied = self.copied(attempt)
        except StagingError:
            return False
        return copied.rows == rows and all(
            files.size(f"{self.table_path}/{file.path}") == file.bytes for file in copied.files
        )

    @property
    def given(self) -> bool:
        return files.exists(f"{self.folder}/given")

    def give(self) -> None:
        """To Delta, whatever becomes of the commit."""
        files.write_text(f"{self.folder}/given", "")

    def discard(self, attempt: str) -> None:
        """The data files of an attempt that failed: no row has its name."""
        files.remove_folder(self.data_folder(attempt))

    def remove(self) -> None:
        """All that the snapshot left, but for data files that were given to Delta."""
        if not self.given:
            self.remove_data()
        self.forget()

    def remove_data(self, but: Collection[str] = ()) -> None:
        """Data files, but for those of some attempts."""
        for attempt in files.subfolders(self.folder):
            if attempt.startswith(_PREFIX) and attempt not in but:
                files.remove_folder(self.data_folder(attempt))

    def forget(self) -> None:
        """What the snapshot left in staging."""
        files.remove_folder(self.folder)


def remove_dead(config: PipelineConfig, unfinished: Callable[[], Collection[str]]) -> list[str]:
    """What snapshots left that no run takes up again. Gives their folders in staging.

    unfinished: asked once something is there. Rows come before notes: what is noted and has none by then is nobody's.
    """
    there = files.subfolders(config.staging_path("snapshot"))
    dead = sorted(set(there) - set(unfinished())) if there else []
    return [_remove_dead(config, snapshot) for snapshot in dead]


def _remove_dead(config: PipelineConfig, snapshot: str) -> str:
    folder = config.staging_path("snapshot", snapshot)
    for attempt in files.subfolders(folder):
        with suppress(StagingError, ValueError):
            table = loads(TableName, files.read_text(f"{folder}/{attempt}/table.json"))
            Attempts(config, table, snapshot).remove()
            return folder
    files.remove_folder(folder)
    return folder
