"""Files of earlier versions that a VACUUM took which wasn't binlake's.

Spark's and deltalake's VACUUM write two commits about themselves into a table's log, VACUUM START and VACUUM END.
binlake's own upkeep writes none: it notes in metadata from which version on a table can be read. So a table's log is
listed; of it the small commits alone are read, as one of a VACUUM adds and removes no file. Only where there is one
the table's folder is listed, and compared with the files that earlier versions need.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType

from binlake.delta.log_files import LogFiles
from binlake.lake.table_at import TableAt
from binlake.moment import moment_text
from binlake.schema.table import TableName
from binlake.storage import files, storage_errors

_OPERATIONS = ("VACUUM START", "VACUUM END")
_LARGEST = 1500
"""Bytes of a commit of a VACUUM, at the most: Spark's and deltalake's have 250 to 800, one that adds a file 900 or
more."""
_SIDE_BY_SIDE = 16
"""Logs listed at once, where storage behind a URL answers slowly."""


NOTHING_BESIDE: Mapping[TableName, str] = MappingProxyType({})


@dataclass(frozen=True)
class ForeignVacuum:
    """The versions that VACUUMs by others took from a table.

    lost: the versions, of those asked for, that need a file which isn't there. why: for people, with the commit of the
    newest VACUUM.
    """

    lost: frozenset[int]
    why: str


def foreign_vacuums(
    root: str, versions: Mapping[TableName, Collection[int]], beside: Mapping[TableName, str] = NOTHING_BESIDE
) -> dict[TableName, ForeignVacuum]:
    """Return the tables of which VACUUMs took files that some of their versions need.

    root: the source's folder. versions: by table, those that are asked for. beside: the folders beside the source's of
    tables that several sources fill. Raises LakeError.
    """
    tables = list(versions.items())

    def look(table: tuple[TableName, Collection[int]]) -> ForeignVacuum | None:
        name, asked = table
        return _of_table(TableAt.of(root, name, 0, beside.get(name, "")), asked)

    with ThreadPoolExecutor(_SIDE_BY_SIDE if "://" in root else 1, thread_name_prefix="vacuums") as pool:
        vacuums = list(pool.map(look, tables))
    return {name: vacuum for (name, _), vacuum in zip(tables, vacuums, strict=True) if vacuum is not None}


def _of_table(table: TableAt, asked: Collection[int]) -> ForeignVacuum | None:
    path, name = table.path, table.name
    log = LogFiles.of(path)
    commits = log.operations(_LARGEST, _OPERATIONS)
    before = {version for version in asked if commits and version < max(commits)}
    if not before:
        return None
    import pyarrow as pa  # where there is a VACUUM alone

    there = _base_names(file.name for file in files.list_files(path))
    try:
        lost = log.lacking(before, there)
    except (OSError, pa.ArrowException) as error:
        raise storage_errors.failed(f"reading the Delta table {path} failed", error) from error
    if not lost:
        return None
    newest = max(commits)
    at = moment_text(int(commits[newest].get("timestamp", 0)) * 1000)
    by = commits[newest].get("engineInfo", "an unknown engine")
    why = f"a VACUUM that isn't binlake's removed files of {name}: Delta version {newest}, by {by}, {at}"
    return ForeignVacuum(frozenset(lost), why)


def _base_names(paths: Iterable[str]) -> set[str]:
    return {path.rpartition("/")[2] for path in paths}
