"""The log of a mirrored Delta table, read without a JVM: how far each life of the table has come, and who committed.

Each commit of a life carries the application id ``binlake:{source}:{table id}`` and the version
``batch * 2**20 + step``, so that what a table has is read from the table itself.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Self

from arro3.core import Table
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.config.table_modes import BesideMode, beside_table
from binlake.delta import opened_tables
from binlake.delta.delta_actions import info_of
from binlake.delta.log_files import LogFiles, commit_path
from binlake.errors import (
    SNAPSHOTTED_BY_ITSELF,
    CommitsLost,
    LakeError,
    LakeTableChanged,
    LogUnreadable,
    SnapshotUnfinished,
    StagingError,
)
from binlake.schema.table import TableName
from binlake.storage import files, storage_errors
from binlake.storage.kinds import storage_of
from binlake.storage.protocol import Storage

_SNAPSHOT = "snapshot the table again: binlake snapshot --config FILE --tables TABLE"
APPLICATIONS = "binlake:"
FENCE = "binlake-snapshot"
"""The application id of snapshots' fences (merge/lake_table.py): its version shows which batches a snapshot has
overtaken at its path."""
STEPS_PER_BATCH = 1 << 20
FENCES = 3
"""Put up for one commit: another is wanted only where somebody who lost the lease comes between two transactions."""
_OVERTAKEN = STEPS_PER_BATCH // 2
"""Version, within a batch's, of snapshots that overtake the batch."""
COMPUTED_STATISTICS = "COMPUTE STATS"
"""Delta's name for a commit that adds data files again, which stay as they are, with other statistics."""
_LEAVE_ROWS = frozenset(
    {
        "OPTIMIZE", "AUTO OPTIMIZE", "REORG", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES",
        "UPGRADE PROTOCOL", "CHANGE COLUMN", "ADD CONSTRAINT", "DROP CONSTRAINT", COMPUTED_STATISTICS, "CLUSTER BY",
        "ADD FEATURE", "DROP FEATURE", "CHECKPOINT", "Manual Update",
    }
)  # fmt: skip
"""Operations of Delta that change no row."""
_UPKEEP = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES"})
"""Operations of a table's upkeep, by binlake or others."""
_LOOKED_AT = 50
"""Newest commits that are searched."""


def app_of(config: PipelineConfig, life: str) -> str:
    """Return the application id of a life. life: its table id."""
    return f"{APPLICATIONS}{config.source.name}:{life}"


def transaction_version(batch: int, step: int) -> int:
    """Return the version of a batch's step, which grows with both. Steps count from 1 in each batch."""
    if not 0 <= step < _OVERTAKEN:
        raise ValueError(f"step {step} of batch {batch}")
    return batch * STEPS_PER_BATCH + step


def overtaking(batch: int) -> int:
    """Return the version of a snapshot that overtakes a batch: behind all its steps, before those of the next batch."""
    return batch * STEPS_PER_BATCH + _OVERTAKEN


def fenced(recorded: Mapping[str, int], fence: int) -> dict[str, int]:
    """Return what a fence records: for it, and for all lives known here, that the steps up to ``fence`` are done."""
    ours = {app: max(fence, version) for app, version in recorded.items() if app.startswith(APPLICATIONS)}
    return {**ours, FENCE: fence}


def is_fenced(recorded: Mapping[str, int], fence: int) -> bool:
    """Return whether the fence and all lives are recorded up to ``fence``."""
    ours = [version for app, version in recorded.items() if app.startswith(APPLICATIONS)]
    return min([recorded.get(FENCE, -1), *ours]) >= fence


@dataclass(frozen=True)
class NewestBatch:
    """The newest batch that may have changed a table. stop: its position, as ``file:offset``; None where it is
    recorded."""

    number: int
    stop: str | None = None

    def is_behind(self, note: Mapping[str, Any]) -> bool:
        """Return whether the note of a step's commit is of a later batch, or of this number with another stop."""
        batch = note.get("batch")
        if "step" not in note or not isinstance(batch, int):
            return False
        return batch > self.number or (batch == self.number and self.stop is not None and note["position"] != self.stop)


@dataclass(frozen=True)
class LakeLog:
    """The Delta log at a path, as one life of a table reads it.

    app: the life's application id. has_vectors: whether a table that is made here may get deletion vectors; of one that
    is there, its own setting counts.
    """

    path: str
    app: str
    has_vectors: bool = True

    @classmethod
    def of(cls, config: PipelineConfig, name: TableName, life: str) -> Self:
        """Return the log at the path of a table. life: its table id.

        Of a shard, the setting of its merged table counts, too: that names the shard's data files and vectors.
        """
        app, shard = app_of(config, life), config.shard_of(name)
        named = [name, *([shard.into] if shard else [])]
        has_vectors = all(config.lake.has_vectors(each.database, each.table) for each in named)
        return cls(config.table_path(name), app, has_vectors)

    @classmethod
    def beside(cls, config: PipelineConfig, name: TableName, mode: BesideMode) -> Self:
        """Return the log of the table that a mode keeps beside a mirror. Its id is that of the name, whatever lives had
        it."""
        app = f"{APPLICATIONS.removesuffix(':')}-{mode}:{config.source.name}"
        has_vectors = config.lake.has_vectors(name.database, beside_table(name.table, mode))
        return cls(config.beside_path(name, mode), app, has_vectors)

    @cached_property
    def storage(self) -> Storage:
        """Return the storage that the table lies in, for those who read several of its files."""
        return storage_of(self.path)

    def opened(self) -> DeltaTable:
        """Open the table, to be read only. Raises LakeError."""
        try:
            return opened_tables.newest(self.path)
        except (DeltaError, OSError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> LakeError:
        """Return the error of a log that can't be read: LogUnreadable where deltalake names no cause of the storage."""
        failed = storage_errors.failed(f"reading the Delta table {self.path} failed", error)
        if failed.remedy != storage_errors.OTHER:
            return failed
        remedy = (
            "run again; if it stays, files of its log are damaged: restore them from a backup, or move "
            f"{self.path} away and run again, which asks for its snapshot"
        )
        return (LogUnreadable if isinstance(error, DeltaError) else LakeError)(failed.message, remedy=remedy)

    def exists(self) -> bool:
        """Return whether a table is at the path. Raises LakeError."""
        return opened_tables.is_table(self.path)

    def recorded(self) -> int:
        """Return the transaction version that the table records for this life; -1 when there is none."""
        if not self.exists():
            return -1
        version = self.transaction_version(self.opened())
        return -1 if version is None else version

    def transaction_version(self, table: DeltaTable, app: str = "") -> int | None:
        """Return the transaction version that the opened table records for an application id, by default for this
        life; None when there is none. Raises LakeError."""
        try:
            return opened_tables.transaction_version(self.path, table, app or self.app)
        except (DeltaError, OSError) as error:
            raise self._unreadable(error) from error

    def prove(self, version: int) -> None:
        """Raise LakeTableChanged where a transaction version that was committed isn't recorded."""
        recorded = self.recorded()
        if recorded < version:
            raise LakeTableChanged(
                f"{self.path} records transaction {recorded}, {version} was expected",
                remedy="somebody replaced the table while it was written; snapshot it again",
            )

    def version(self) -> int:
        """Return the newest Delta version."""
        return int(self.opened().version())

    def is_at(self, version: int) -> bool:
        """Return whether this is the newest Delta version, by looking for two files of the log; none is read."""
        there, next_one = (files.exists(commit_path(self.path, number)) for number in (version, version + 1))
        return there and not next_one

    def size(self) -> int:
        """Return the bytes of the data files; 0 where no table is."""
        if not self.exists():
            return 0
        added = Table.from_arrow(self.opened().get_add_actions())
        return sum(added.column("size_bytes").to_pylist())

    def rows(self) -> int:
        """Return the number of rows by the log, without those that deletion vectors hide."""
        log = self.opened()
        from binlake.delta import layout  # who looks at the log alone needs no Arrow

        return int(log.count()) - layout.deleted_rows(log, self.path).total()

    def refuse_others(self, lives: Collection[str], since: int, newest_batch: NewestBatch | None = None) -> int:
        """Check that nobody but ``lives`` changed rows behind the Delta version ``since``; return the version up to
        which that holds.

        newest_batch: none of theirs is of a later batch. It is where metadata were restored from an earlier copy than
        the table: a new batch of that number would be taken for merged.
        RESTORE keeps Delta's transaction ids, so the table itself would continue as if nothing had happened. Raises
        LakeTableChanged, or SnapshotUnfinished where binlake itself committed a snapshot.
        """
        if self.is_at(since):
            return since
        newest = self._refuse_lost(since)
        for commit in self.history(since):
            note = note_of(commit)
            operation, life = commit.get("operation", "an unknown operation"), note.get("life")
            if "snapshot" in note:  # of this life, too: a woken run repeats the snapshot that another took up
                raise SnapshotUnfinished(
                    f"{self.path}: a snapshot was committed at Delta version {commit['version']} by a run that "
                    "didn't come to its end",
                    remedy=SNAPSHOTTED_BY_ITSELF,
                )
            if newest_batch is not None and newest_batch.is_behind(note):
                raise LakeTableChanged(
                    f"{self.path}: it has batch {note['batch']} up to {note['position']}, at Delta version "
                    f"{commit['version']}, of which metadata know nothing: they are from an earlier time",
                    remedy=f"restore metadata and tables of one time (binlake help backup), or {_SNAPSHOT}",
                )
            if life not in lives and (life or operation not in _LEAVE_ROWS):
                raise self._changed(f"{operation} at Delta version {commit['version']} changed what binlake wrote")
        return newest

    def refuse_others_beside(self, mode: str, of: str, since: int) -> None:
        """Check the same of a table that a mode keeps beside the mirror ``of``, which is written for it alone. Raises
        LakeTableChanged."""
        if self.is_at(since):
            return
        self._refuse_lost(since)
        for commit in self.history(since):
            note = note_of(commit)
            is_own = (note.get("beside"), note.get("of")) == (mode, of)
            if not is_own and changes_rows(commit):
                operation = commit.get("operation", "an unknown operation")
                raise self._changed(f"{operation} at Delta version {commit['version']} changed what binlake wrote")

    def _refuse_lost(self, since: int) -> int:
        """Return the newest Delta version. Raises CommitsLost where it is before one that was recorded."""
        newest = self.version()
        if newest < since:
            raise CommitsLost(
                f"{self.path}: it is at Delta version {newest}, {since} was recorded: commits are lost",
                remedy=f"restore its folder, or {_SNAPSHOT}",
            )
        return newest

    def overtaken(self) -> SnapshotUnfinished:
        """Return the error of a life that comes to the path behind the fence of a snapshot."""
        return SnapshotUnfinished(
            f"{self.path}: a snapshot was committed over a batch that was begun before", remedy=SNAPSHOTTED_BY_ITSELF
        )

    def history(self, since: int = -1) -> Iterator[dict[str, Any]]:
        """Yield the description of each commit behind a version, with its ``version``, the newest first.

        Where upkeep removed commits between kept ones, those that are there are yielded. deltalake counts down from the
        newest version, and gives those behind such a gap the numbers of others. Raises LakeError.
        """
        newest = self.version()
        for version in range(newest, since, -1):
            if (info := _commit_info(self.path, version)) is None:
                older = [number for number in LogFiles.of(self.path).commits if since < number < version]
                rest = (_commit_info(self.path, number) for number in sorted(older, reverse=True))
                yield from (info for info in rest if info is not None)
                return
            yield info

    def info_at(self, version: int) -> dict[str, Any] | None:
        """Return the description of the commit of a version, with its ``version``; None where upkeep removed it. Raises
        LakeError."""
        return _commit_info(self.path, version)

    def _changed(self, what: str) -> LakeTableChanged:
        return LakeTableChanged(f"{self.path}: {what}", remedy="let nobody else write it, and snapshot the table again")

    def last_own_version(self, life: str) -> int:
        """Return the newest Delta version that a step of this life committed, as far as the newest commits show."""
        for commit in islice(self.history(), _LOOKED_AT):
            note = note_of(commit)
            if note.get("life") == life and "step" in note:
                return int(commit["version"])
        return self.version()

    def last_change(self) -> dict[str, Any]:
        """Return the newest commit, as Delta's history has it, that is no upkeep."""
        newest = list(islice(self.history(), _LOOKED_AT))
        return next((commit for commit in newest if commit.get("operation") not in _UPKEEP), newest[0])

    def last_version_of(self, life: str) -> int:
        """Return the newest Delta version that isn't another life's: in a swap the other may have taken the path
        already.

        Raises LakeTableChanged when the history doesn't reach back so far.
        """
        candidate: int | None = None  # what others than binlake committed (OPTIMIZE) belongs to the life before it
        for commit in self.history():
            committer = note_of(commit).get("life")
            if committer is not None and committer != life:
                candidate = None
                continue
            candidate = int(commit["version"]) if candidate is None else candidate
            if committer == life:
                return candidate
        if candidate is not None:
            return candidate
        raise LakeTableChanged(
            f"{self.path} holds another table's rows, and its history doesn't reach back further",
            remedy="snapshot the renamed table again",
        )


def _commit_info(path: str, version: int) -> dict[str, Any] | None:
    """Return a commit's description of itself; None where it is gone. Raises LakeError."""
    if (info := opened_tables.info_at(path, version)) is not None:
        return {**info, "version": version}
    file = commit_path(path, version)
    try:
        text = files.read_text(file)
    except StagingError as error:
        if files.exists(file):
            raise storage_errors.failed(f"reading the Delta table {path} failed", error) from error
        return None
    return {**info_of(text), "version": version}


@dataclass(frozen=True)
class TableCommit:
    """One commit of a Delta table. ours: binlake made it. batch: which it belongs to, None where it is of none. Counts
    are Delta's own, None where it has none."""

    version: int
    at_us: int
    operation: str
    ours: bool
    batch: int | None
    rows_written: int | None
    files_added: int | None
    files_removed: int | None


def commits(path: str, count: int) -> list[TableCommit]:
    """Return the newest commits of a table, the newest first; none where no table is.

    The operations' parameters are left out: the condition of a MERGE holds values of keys. Raises LakeError.
    """
    if not opened_tables.is_table(path):
        return []
    try:
        return [_commit(row) for row in islice(LakeLog(path, "").history(), count)]
    except (DeltaError, OSError) as error:
        raise storage_errors.failed(f"reading the Delta table {path} failed", error) from error


def _commit(row: dict[str, Any]) -> TableCommit:
    note, metrics = note_of(row), row.get("operationMetrics") or {}

    def number(*names: str) -> int | None:
        counts = [metrics[name] for name in names if name in metrics]
        return sum(map(int, counts)) if counts else None

    return TableCommit(
        int(row["version"]),
        int(row.get("timestamp") or 0) * 1000,
        str(row.get("operation", "unknown")),
        bool(note),
        note.get("batch"),
        number("numOutputRows", "num_added_rows"),
        number("numTargetFilesAdded", "numFiles", "numAddedFiles", "num_added_files"),
        number("numTargetFilesRemoved", "numRemovedFiles", "num_removed_files"),
    )


def changes_rows(commit: dict[str, Any]) -> bool:
    """Return whether somebody else's commit may have changed rows."""
    return commit.get("operation", "an unknown operation") not in _LEAVE_ROWS


def note_of(commit: dict[str, Any]) -> dict[str, Any]:
    """Return the note that binlake left in a commit; empty for others' commits."""
    try:
        metadata = json.loads(commit.get("userMetadata") or "{}")
    except ValueError:
        return {}
    note = metadata.get("binlake") if isinstance(metadata, dict) else None
    return note if isinstance(note, dict) else {}
