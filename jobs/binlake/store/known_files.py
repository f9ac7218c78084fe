"""The data files of a metadata table, continued by the commits behind those that were known.

A process that follows a source looks at a metadata table behind each commit of its own. deltalake takes 3 ms to bring a
table up to date; here the new commits alone are read. A table is known by the file of its newest commit, so that one
that was removed and made again isn't taken for it; one in a store isn't known here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arro3.core import Schema
from deltalake import DeltaTable

from binlake.caches import Cache
from binlake.delta import log_files, opened_tables
from binlake.delta.delta_actions import Add, Replay
from binlake.delta.opened_tables import CommitFile, commit_file


@dataclass(frozen=True)
class MetadataFile:
    """A data file. rows: their number, None where the log doesn't say. least, most: by column, as far as it does."""

    path: str
    size: int
    rows: int | None
    least: Mapping[str, Any]
    most: Mapping[str, Any]


@dataclass(frozen=True)
class KnownFiles:
    """The data files of a table at a version, by path. commit: the file of that version."""

    version: int
    commit: CommitFile
    files: Mapping[str, MetadataFile]

    @property
    def only(self) -> MetadataFile | None:
        """Return the table's data file; None unless it is the only one, and has one row."""
        first = next(iter(self.files.values()), None)
        return first if first and len(self.files) == 1 and first.rows == 1 else None


_known: Cache[str, KnownFiles] = Cache("data files of metadata")


def known(location: str, schema: Schema) -> KnownFiles | None:
    """Return the data files of a table of a schema at its newest version.

    Returns None where no such table is on a disk here, or it is one that deltalake alone reads. Raises what deltalake
    raises; OSError.
    """
    if "://" in location:
        return None
    before = _known.get(location)
    current = _continued(location, before) if before else None
    if current is None:
        current = _opened(location, schema)
    if current is None:
        _known.drop([location])
    elif current is not before:
        _known.put(location, current)
    return current


def _opened(location: str, schema: Schema) -> KnownFiles | None:
    if not opened_tables.is_table(location):
        return None
    with opened_tables.lent(location) as table:
        protocol, version = table.protocol(), table.version()
        columns = {field.name for field in table.schema().fields}
        if protocol.reader_features or columns != set(schema.names) or table.metadata().partition_columns:
            return None
        commit = commit_file(location, version)
        return KnownFiles(version, commit, _files(table)) if commit else None


def _files(table: DeltaTable) -> dict[str, MetadataFile]:
    added = table.get_add_actions()
    columns = {name: added[name].to_pylist() for name in added.column_names if name != "null_count"}
    nothing: Sequence[None] = [None] * added.num_rows
    files = zip(
        columns["path"],
        columns["size_bytes"],
        columns.get("num_records", nothing),
        columns.get("min", nothing),
        columns.get("max", nothing),
        strict=True,
    )
    return {path: MetadataFile(path, size, rows, least or {}, most or {}) for path, size, rows, least, most in files}


def _continued(location: str, before: KnownFiles) -> KnownFiles | None:
    """Return the files at the newest version; None where the log has to be read again."""
    if before.commit != commit_file(location, before.version):
        return None
    commits = log_files.commits_of_files(location, before.version)
    if not commits:
        return before if commits == [] else None
    replay = Replay().take_all(commits)
    gone = {remove.path for remove in replay.gone.values()}
    files = {path: file for path, file in before.files.items() if path not in gone and path not in replay.files}
    files |= {path: _data_file(add) for path, add in replay.files.items()}
    version = before.version + len(commits)
    commit = commit_file(location, version)
    return KnownFiles(version, commit, files) if commit else None


def _data_file(add: Add) -> MetadataFile:
    statistics = json.loads(add.stats or "{}")
    least, most = statistics.get("minValues") or {}, statistics.get("maxValues") or {}
    return MetadataFile(add.path, add.size, statistics.get("numRecords"), least, most)
