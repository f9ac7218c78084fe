"""The state of a published table: its metadata, and the manifests of its newest snapshot, read or remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from deltalake.exceptions import DeltaError

from binlake.caches import Cache
from binlake.delta import opened_tables
from binlake.delta.delta_actions import Add
from binlake.delta.opened_tables import CommitFile
from binlake.errors import LakeError, StagingError
from binlake.iceberg import avro_files, hidden_rows, manifests, table_metadata
from binlake.iceberg.avro_files import Record
from binlake.iceberg.iceberg_schema import IcebergSchema
from binlake.iceberg.manifests import IcebergManifest, subject
from binlake.iceberg.table_metadata import TableMetadata, address_of, path_at


@dataclass(frozen=True)
class PublishedSchema:
    """A table's schema as Delta's log has it, as JSON, and as it is published."""

    delta: str
    iceberg: IcebergSchema


@dataclass(frozen=True)
class PublishedTable:
    """A table as it is published.

    manifests: see ``whole``. files: the Delta table's data files at the published version, by path; None where they
    weren't read. commit: the file of that version's commit. stand: the file of the metadata; None where only these were
    read. schema: of the newest snapshot; None where it wasn't made here.
    """

    metadata: TableMetadata
    manifests: tuple[IcebergManifest, ...] = ()
    files: Mapping[str, Add] | None = None
    commit: CommitFile | None = None
    stand: Any = None
    schema: PublishedSchema | None = None

    @property
    def data_files(self) -> dict[str, Record]:
        """Return what manifests say of each data file, by its address."""
        return self._of("data")

    @property
    def fields(self) -> list[dict[str, Any]]:
        """Return the columns of the newest snapshot, as JSON has them."""
        schema = self.metadata.schema
        return schema["fields"] if schema else []

    @property
    def marks(self) -> dict[str, Record]:
        """Return what manifests say of each deletion vector that counts, by the address of its data file."""
        return self._of("deletes")

    def _of(self, content: str) -> dict[str, Record]:
        of_content = (manifest for manifest in self.manifests if manifest.content == content)
        return {subject(entry): entry["data_file"] for manifest in of_content for entry in manifest.entries}

    def file_names(self) -> set[str]:
        """Return the names of Iceberg's own files that the newest snapshot needs, without their folder."""
        current = self.metadata.current
        lists = {current["manifest-list"]} if current else set()
        own = {manifest.record["manifest_path"] for manifest in self.manifests}
        return {place.rpartition("/")[2] for place in lists | own | {mark["file_path"] for mark in self.marks.values()}}

    def vector_keys(self) -> dict[str, str]:
        """Return the identity of Delta's vector for each data file that has one, by its address."""
        return {about: hidden_rows.key_in(mark["file_path"]) for about, mark in self.marks.items()}


def _entries_of(published: PublishedTable) -> int:
    return 1 + sum(len(manifest.entries) for manifest in published.manifests)


_published: Cache[str, PublishedTable] = Cache("files of Iceberg tables", _entries_of)


def address(table_path: str, path: str) -> str:
    """Return the address of a data file. path: as Delta's log encodes it. Raises LakeError for one elsewhere."""
    if "://" in path or path.startswith("/"):
        raise LakeError(f"{table_path} has files elsewhere, which aren't published", remedy="snapshot it again")
    return f"{address_of(table_path)}/{unquote(path)}"


def known(table_path: str) -> PublishedTable | None:
    """Return a table as it is published, perhaps its metadata alone; None where it never was. Raises OSError,
    ValueError."""
    there = _published.get(table_path)
    if there and there.stand == there.metadata.file and there.metadata.is_newest():
        return there
    metadata = table_metadata.newest(table_path)
    return PublishedTable(metadata) if metadata else None


def whole(published: PublishedTable) -> PublishedTable:
    """Return a table with what belongs to its newest snapshot, which is read where it isn't known. Raises OSError,
    ValueError."""
    metadata = published.metadata
    if published.stand is not None or metadata.current is None:
        return published
    records = avro_files.read(path_at(metadata.current["manifest-list"]))
    return PublishedTable(metadata, tuple(manifests.read(path_at, records)))


def keep(published: PublishedTable, table_path: str, version: int) -> None:
    """Remember a table as it was just published, unless it is too large. version: the Delta table's."""
    commit, stand = opened_tables.commit_file(table_path, version), published.metadata.file
    known = replace(published, commit=commit, stand=stand)
    if _published.most is not None and _entries_of(known) < _published.most:  # else others would go for it in vain
        _published.put(table_path, known)


def failed(what: str, table_path: str, error: Exception) -> LakeError:
    """Return the error of something that failed. No value of a row is in it: bounds are, in what Avro's writer says."""
    cause = str(error) if isinstance(error, OSError | DeltaError | StagingError) else type(error).__name__
    return LakeError(f"{what}: {cause}", remedy=f"if it stays, remove {table_path}/_iceberg: it is then written again")


def forget(table_path: str) -> None:
    """Forget a table, of which metadata may have changed."""
    _published.drop([table_path])
