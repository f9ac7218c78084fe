"""Attempts to copy a chunk: where each writes, what it leaves, and which parts of that are deleted.

    {table's folder}/{attempt}/…                                 data files, from where no commit moves them
    {root}/_staging/snapshot/{snapshot}/{attempt}/table.json     notes the attempt, before it writes
    {root}/_staging/snapshot/{snapshot}/{attempt}/copied.json    what it wrote, once all is there
    {root}/_staging/snapshot/{snapshot}/given                    a commit may know its files

Each attempt has a random name, so a run that lost the lease writes into no folder that is read. The rules of deletion:

    1  what a snapshot left that no run takes up again: its rows in metadata are gone, or committed
    2  of that only folders that are noted, and none once ``given`` is there: VACUUM deletes what no commit knows
    3  so a run that commits writes ``given`` first, and then checks that it still holds the lease; a run that deletes
       held the lease when it took the rows away, and looks for ``given`` after that
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field

from binlake.config import PipelineConfig
from binlake.delta.delta_actions import DataFile
from binlake.errors import StagingError
from binlake.records.snapshot_ids import ATTEMPT_PREFIX
from binlake.schema.table import TableName
from binlake.serialization import dumps, loads
from binlake.storage import files


@dataclass(frozen=True)
class Copied:
    """The data files that an attempt wrote.

    invalid_dates: rows with an invalid date, by the column's name. opened_us: when the views were opened in which the
    rows were read, in microseconds since 1970; 0 where no column records it. has_row_metadata: whether those columns of
    the mirror that record what wrote a row have their values.
    """

    files: tuple[DataFile, ...]
    invalid_dates: dict[str, int] = field(default_factory=dict)
    opened_us: int = 0
    has_row_metadata: bool = False

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Return the bytes of all files."""
        return sum(file.bytes for file in self.files)


class Attempts:
    """The attempts of one snapshot of a table."""

    def __init__(self, config: PipelineConfig, table: TableName, snapshot: str) -> None:
        self._table = table
        self.table_path = config.table_path(table)
        self.folder = config.staging_path("snapshot", snapshot)

    @staticmethod
    def new() -> str:
        """Return a name for an attempt."""
        return f"{ATTEMPT_PREFIX}{uuid.uuid4().hex[:16]}"

    def data_folder(self, attempt: str) -> str:
        """Return the folder of an attempt's data files. Raises ValueError for another name, as folders of data files
        are deleted."""
        if not attempt.startswith(ATTEMPT_PREFIX):
            raise ValueError(f"no attempt: {attempt!r}")
        return f"{self.table_path}/{attempt}"

    def staging_folder(self, attempt: str) -> str:
        """Return the folder of an attempt's notes."""
        return f"{self.folder}/{attempt}"

    def begin(self, attempt: str) -> None:
        """Note an attempt, before it writes."""
        files.make_private_folder(self.staging_folder(attempt))
        files.write_text(f"{self.staging_folder(attempt)}/table.json", dumps(self._table))

    def done(self, attempt: str, copied: Copied) -> None:
        """Note what an attempt wrote, once all is written. Delta lists no file of an attempt without rows, though it
        may have made one."""
        if not copied.files:
            files.remove_folder(self.data_folder(attempt))
        files.write_text(f"{self.staging_folder(attempt)}/copied.json", dumps(copied))

    def copied(self, attempt: str) -> Copied:
        """Read what an attempt wrote. Raises StagingError where the note is missing or damaged."""
        path = f"{self.staging_folder(attempt)}/copied.json"
        try:
            return loads(Copied, files.read_text(path))
        except ValueError as error:
            raise StagingError(f"{path} is damaged: {error}", remedy="run again: it is copied again") from error

    def is_whole(self, attempt: str, rows: int) -> bool:
        """Return whether an attempt has so many rows, as far as the sizes of its files show."""
        try:
            copied = self.copied(attempt)
        except StagingError:
            return False
        return copied.rows == rows and all(
            files.size(f"{self.table_path}/{file.path}") == file.bytes for file in copied.files
        )

    @property
    def given(self) -> bool:
        """Return whether a commit may know the data files."""
        return files.exists(f"{self.folder}/given")

    def give(self) -> None:
        """Note that the data files belong to Delta now, whatever becomes of the commit."""
        files.write_text(f"{self.folder}/given", "")

    def discard(self, attempt: str) -> None:
        """Delete the data files of an attempt that failed: no row in metadata has its name."""
        files.remove_folder(self.data_folder(attempt))

    def remove(self) -> None:
        """Delete all that the snapshot left, except data files that were given to Delta."""
        if not self.given:
            self.remove_data()
        self.forget()

    def remove_data(self, except_of: Collection[str] = ()) -> None:
        """Delete the data files, except those of some attempts."""
        for attempt in files.subfolders(self.folder):
            if attempt.startswith(ATTEMPT_PREFIX) and attempt not in except_of:
                files.remove_folder(self.data_folder(attempt))

    def forget(self) -> None:
        """Delete what the snapshot left in staging."""
        files.remove_folder(self.folder)


def remove_dead(config: PipelineConfig, unfinished: Callable[[], Collection[str]]) -> list[str]:
    """Delete what snapshots left that no run takes up again, and return their folders in staging.

    unfinished: called where there are such folders. A snapshot's rows in metadata come before its notes, so a noted
    snapshot without rows is nobody's.
    """
    snapshots = files.subfolders(config.staging_path("snapshot"))
    dead = sorted(set(snapshots) - set(unfinished())) if snapshots else []
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
