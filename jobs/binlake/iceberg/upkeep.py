"""The upkeep of a published table: snapshots go whose data files Delta's upkeep is about to remove, and files of
Iceberg's metadata that no snapshot needs.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from binlake.errors import LakeError
from binlake.iceberg import avro_files, published_table, table_metadata
from binlake.iceberg.table_metadata import FOLDER, TableMetadata, address_of, path_at
from binlake.storage import files

_UNKNOWN_SECONDS = 6 * 3600
"""For how long a file stays that no snapshot needs: a publication may be under way, or a reader."""
_TRIES = 5
_SIDE_BY_SIDE = 8


def expire(table_path: str, gone: Collection[str], pins: Mapping[str, int], *, look: bool = False) -> None:
    """Let snapshots go that need a file which is about to be removed, and remove what none of the others needs of
    Iceberg's metadata. gone: paths below the table's folder. pins: Delta versions by their names, which become tags.
    look: also for files that aren't there any more, as the upkeep of other tables removes them.

    The newest snapshot stays: it needs what Delta's newest version does. Raises LakeError.
    """
    try:
        for _ in range(_TRIES):
            metadata = table_metadata.newest(table_path)
            if metadata is None:
                return
            try:
                _expire(metadata, {f"{address_of(table_path)}/{name}" for name in gone}, pins, look=look)
                return
            except FileExistsError:
                continue
            finally:
                published_table.forget(table_path)
    except LakeError:
        raise
    except Exception as error:  # damaged files of Avro raise whatever comes
        what = f"old Iceberg snapshots of {table_path} can't be removed"
        raise published_table.failed(what, table_path, error) from error
    raise LakeError(f"{table_path} is published by others all the time", remedy="run it again")


def _expire(metadata: TableMetadata, gone: Collection[str], pins: Mapping[str, int], *, look: bool) -> None:
    known: dict[str, frozenset[str]] = {}
    needed = {each["snapshot-id"]: _needed(each, known) for each in metadata.snapshots}
    current = metadata.current["snapshot-id"] if metadata.current else None
    if look:
        gone = {*gone, *_lost(frozenset[str]().union(*needed.values()) - needed.get(current, frozenset()))}
    going = {number for number, addresses in needed.items() if number != current and not addresses.isdisjoint(gone)}
    later = metadata.without(going).pinned(pins)
    if later is not metadata:
        metadata = later.written()
    elif not metadata.is_named():
        metadata.name_newest()
    kept = frozenset[str]().union(*(addresses for number, addresses in needed.items() if number not in going))
    before = time.time() - _UNKNOWN_SECONDS
    address = address_of(metadata.folder)
    for file in files.list_files(metadata.folder):
        if file.modified < before and f"{address}/{file.name}" not in kept and not metadata.is_own(file.name):
            files.remove_below(metadata.table_path, f"{FOLDER}/{file.name}")


def _lost(addresses: Collection[str]) -> list[str]:
    """Return those of these files that aren't there."""
    with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="look") as pool:
        there = pool.map(lambda address: files.exists(path_at(address)), addresses)
        return [address for address, is_there in zip(addresses, there, strict=True) if not is_there]


def _needed(snapshot: Mapping[str, Any], known: dict[str, frozenset[str]]) -> frozenset[str]:
    """Return the addresses of all files that a snapshot needs. known: those of manifests, by their addresses."""
    manifest_list = snapshot["manifest-list"]
    needed = frozenset([manifest_list])
    for record in avro_files.read(path_at(manifest_list)):
        manifest = record["manifest_path"]
        if manifest not in known:
            there = (entry for entry in avro_files.read(path_at(manifest)) if entry["status"] != 2)
            known[manifest] = frozenset([manifest, *(entry["data_file"]["file_path"] for entry in there)])
        needed |= known[manifest]
    return needed
