"""Versions of a table beside a mirror from which it can be written again by replaying batches.

Such a version has all that the table's batches wrote up to one of them, and nothing that a later one wrote. Upkeep
keeps what it needs for maintain.history_hours. Rows that a repair wrote and no batch has can't be replayed, so that no
version before the repair serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from binlake.config.table_modes import BesideMode
from binlake.delta import data_rows, opened_tables, plain_tables
from binlake.delta.claimed_statistics import WrongFiles
from binlake.delta.delta_actions import Add, DeltaAction
from binlake.delta.delta_log import COMPUTED_STATISTICS, changes_rows, note_of
from binlake.errors import LakeError, LeftToSpark, StagingError

NOTHING = -1
"""The version of a table that isn't there yet."""
_DAMAGED = (DeltaError, OSError, pa.ArrowException, LakeError, StagingError, LeftToSpark, ValueError, KeyError)


@dataclass(frozen=True)
class BesideBase:
    """A version with which a replay can begin. first: the first batch to be replayed."""

    version: int
    first: int


def bases(commits: Iterable[dict[str, Any]], mode: BesideMode, of: str, noted: AbstractSet[int]) -> list[BesideBase]:
    """Return the versions that may serve, the newest first.

    commits: the descriptions of kept commits, the newest first. of: the mirror's name. noted: versions at which batches
    are known to have ended: the newest batch may not have come to its end.
    """
    known: list[BesideBase] = []
    behind: list[int] = []  # versions with the rows that the next older batch left
    later, expected = None, None
    for commit in commits:
        note, version = note_of(commit), int(commit["version"])
        if version != (version if expected is None else expected):
            return known
        expected = version - 1
        if (note.get("beside"), note.get("of")) != (mode, of) or "batch" not in note:
            changed = changes_rows(commit)  # by somebody else: none behind it is what batches wrote
            known, behind = ([], []) if changed else (known, [*behind, version])
            continue
        batch, behind = int(note["batch"]), [*behind, version]
        if batch < later if later is not None else not noted.isdisjoint(behind):
            known += [BesideBase(number, batch + 1 if later is None else later) for number in behind]
        if _begins_again(commit, note):
            return known
        behind, later = [], int(note["replayed"]["first"]) if "replayed" in note else batch
    if expected == NOTHING and mode == "log" and later is not None:
        known.append(BesideBase(NOTHING, later))
    return known


def _begins_again(commit: Mapping[str, Any], note: Mapping[str, Any]) -> bool:
    """Return whether a commit wrote rows that no replay of batches writes: by a repair, or as a mode began."""
    is_repair = "repair" in note and "replayed" not in note and commit.get("operation") != COMPUTED_STATISTICS
    return is_repair or note.get("number") == 0


class ReadableFiles:
    """Data files of a table that can be read, and that the Delta log describes truly. Each is read once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[Any, bool] = {}

    def have_all(self, version: int) -> bool:
        """Return whether all files of a version are."""
        try:
            log = opened_tables.opened(self._path, version)
            adds = plain_tables.actions_of(log, self._path, pa.table(log.get_add_actions())["path"].to_pylist())
        except _DAMAGED:
            return False
        return all(self._is_readable(log, add) for add in adds)

    def _is_readable(self, table: DeltaTable, add: DeltaAction) -> bool:
        key = Add(add).key
        if key not in self._known:
            self._known[key] = self._read(table, add)
        return self._known[key]

    def _read(self, table: DeltaTable, add: DeltaAction) -> bool:
        wrong: WrongFiles = {}
        fields = list(pa.schema(table.schema().to_arrow()))
        try:
            for file in data_rows.of_files(table, self._path, fields, [add["path"]], wrong=wrong):
                for _ in file.numbered():
                    pass
        except _DAMAGED:
            return False
        return not wrong
