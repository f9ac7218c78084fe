"""Manifests of a published table: the entries that are there, with all numbers that a manifest's readers inherit."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from binlake.iceberg import avro_files
from binlake.iceberg.avro_files import Record

Content = Literal["data", "deletes"]
_CONTENTS: tuple[Content, Content] = ("data", "deletes")
_EXISTING, _ADDED, _DELETED = 0, 1, 2
"""The status of an entry."""


@dataclass(frozen=True)
class IcebergManifest:
    """A manifest. record: as the list of manifests has it. entries: those of files that are there."""

    record: Record
    entries: tuple[Record, ...]

    @property
    def content(self) -> Content:
        """Return what the manifest lists."""
        return _CONTENTS[self.record["content"]]


def subject(entry: Record) -> str:
    """Return the address of the data file that an entry is about."""
    file = entry["data_file"]
    address: str = file["referenced_data_file"] or file["file_path"]
    return address


def read(path_of: Any, records: Iterable[Record]) -> list[IcebergManifest]:
    """Read manifests. path_of: returns the path at an address. records: of their list; a manifest without a file that
    is there is left out. Raises OSError, ValueError."""
    manifests = []
    for record in records:
        if record["added_files_count"] + record["existing_files_count"]:
            entries = avro_files.read(path_of(record["manifest_path"]))
            manifests.append(IcebergManifest(record, tuple(_explicit(record, entries))))
    return manifests


def _explicit(record: Record, entries: Iterable[Record]) -> Iterator[Record]:
    """Yield the entries of files that are there, as they are written again by a later snapshot."""
    next_row = record.get("first_row_id")  # format 2 knows none
    for entry in entries:
        if entry["status"] == _DELETED:
            continue
        file = entry["data_file"]
        if record["content"] == 0 and next_row is not None and file["first_row_id"] is None:
            file = {**file, "first_row_id": next_row}
            next_row += file["record_count"]
        number = entry["sequence_number"] if entry["sequence_number"] is not None else record["sequence_number"]
        file_number = entry["file_sequence_number"]
        yield {
            "status": _EXISTING,
            "snapshot_id": entry["snapshot_id"] if entry["snapshot_id"] is not None else record["added_snapshot_id"],
            "sequence_number": number,
            "file_sequence_number": file_number if file_number is not None else record["sequence_number"],
            "data_file": file,
        }


@dataclass(frozen=True)
class ManifestWriter:
    """Writes the manifests of one snapshot. folder: the path of Iceberg's files; address: the same in Iceberg. schema,
    partition: the table's columns and the fields of its partitions, as JSON has them. number: the snapshot's sequence
    number. format_version: of Iceberg's format."""

    folder: str
    address: str
    schema: Mapping[str, Any]
    partition: Sequence[Mapping[str, Any]]
    snapshot: int
    number: int
    format_version: int

    def together(
        self,
        content: Content,
        manifests: Iterable[IcebergManifest],
        gone: frozenset[str],
        changed: Mapping[str, Record],
        added: Sequence[Record] = (),
    ) -> IcebergManifest:
        """Write manifests again as one, with new files. gone: the data files whose entries end. changed: what else
        entries say, by data file."""
        entries = []
        for entry in (entry for manifest in manifests for entry in manifest.entries):
            about = subject(entry)
            if about in gone:
                entry = {**entry, "status": _DELETED, "snapshot_id": self.snapshot}
            elif about in changed:
                entry = {**entry, "data_file": {**entry["data_file"], **changed[about]}}
            entries.append(entry)
        entries += [
            {"status": _ADDED, "snapshot_id": self.snapshot, "sequence_number": None, "file_sequence_number": None,
             "data_file": file}
            for file in added
        ]  # fmt: skip
        return self._write(content, entries)

    def merged(self, content: Content, manifests: Iterable[IcebergManifest], most: int) -> list[IcebergManifest]:
        """Write the entries of several manifests again, together. most: entries of one."""
        entries = [entry for manifest in manifests for entry in manifest.entries]
        return [self._write(content, entries[start : start + most]) for start in range(0, len(entries), most)]

    def _write(self, content: Content, entries: Sequence[Record]) -> IcebergManifest:
        name = f"{uuid.uuid4()}-{content}.avro"
        size = avro_files.write_entries(
            f"{self.folder}/{name}", entries, content, self.schema, self.partition, self.format_version
        )
        counts, rows = [0, 0, 0], [0, 0, 0]
        for entry in entries:
            counts[entry["status"]] += 1
            rows[entry["status"]] += entry["data_file"]["record_count"]
        numbers = [entry["sequence_number"] for entry in entries if entry["status"] == _EXISTING]
        record = {
            "manifest_path": f"{self.address}/{name}", "manifest_length": size, "partition_spec_id": 0,
            "content": _CONTENTS.index(content), "sequence_number": self.number,
            "min_sequence_number": min([self.number, *numbers]), "added_snapshot_id": self.snapshot,
            "added_files_count": counts[_ADDED], "existing_files_count": counts[_EXISTING],
            "deleted_files_count": counts[_DELETED], "added_rows_count": rows[_ADDED],
            "existing_rows_count": rows[_EXISTING], "deleted_rows_count": rows[_DELETED], "first_row_id": None,
        }  # fmt: skip
        return IcebergManifest(record, tuple(entries))


def numbered(manifest: IcebergManifest, next_row: int | None) -> tuple[IcebergManifest, int | None]:
    """Give a new manifest of data files the id of its first row; return it as later snapshots see it, and the next
    row's id. next_row: None where rows have no ids."""
    record = manifest.record
    if next_row is not None and record["content"] == 0 and record["first_row_id"] is None:
        record = {**record, "first_row_id": next_row}
        next_row += record["added_rows_count"] + record["existing_rows_count"]
    return IcebergManifest(record, tuple(_explicit(record, manifest.entries))), next_row
