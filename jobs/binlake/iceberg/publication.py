"""Publishing: the newest version of a Delta table becomes a snapshot of its Iceberg table, of the same data files.

The snapshot's id is the version + 1, as some readers take 0 for none. The version published before is compared with the
version that is there, file by file, whatever was committed in between: batches, DDL, upkeep, RESTORE. A process that
published the table before looks at the files alone that the commits since have named.

Each file is new and has a name of its own, except the metadata file, by which the snapshot appears. So a publication
that is killed leaves files that nobody knows (``upkeep`` removes them), and the next one begins from what is there.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow.parquet as pq
from deltalake import DeltaTable

from binlake.delta import log_files, opened_tables, plain_tables
from binlake.delta.delta_actions import Add, FileAction, Replay
from binlake.errors import LakeError
from binlake.iceberg import avro_files, hidden_rows, iceberg_schema, manifests, published_table, table_metadata
from binlake.iceberg.avro_files import Record
from binlake.iceberg.hidden_rows import key_of
from binlake.iceberg.manifests import IcebergManifest, ManifestWriter, subject
from binlake.iceberg.published_table import PublishedSchema, PublishedTable
from binlake.iceberg.table_metadata import DELTA_COMMIT, DELTA_VERSION, FOLDER, NEWEST_FORMAT, address_of, path_at
from binlake.storage import files

_TRIES = 5
"""How often another who publishes the table at the same time is waited for."""
_MOST_MANIFESTS = 50
"""Manifests of a table above which small ones are put together."""
_FEWEST_ENTRIES, _WHOLE_MANIFESTS = 32, 20
"""Files of a manifest, at most, in a table of few, and in how many manifests those of larger tables are: one that lists
a changed file is written again, which costs some 0.1 ms for each of its files."""
_FEW_ENTRIES = 16
"""Entries of a manifest, at most, into which others are put whose files didn't change."""
_SIDE_BY_SIDE = 8


def publish(table_path: str, tag: str | None = None, format_version: int = NEWEST_FORMAT) -> int:
    """Publish a Delta table's newest version, unless it is published; return the version. tag: a name that the
    snapshot gets, unless it is known as a batch's. format_version: of Iceberg's format, 2 or 3.

    Raises LakeError where it can't be published.
    """
    if not files.writes_if_absent(table_path):
        raise LakeError(
            f"{table_path} isn't published as Iceberg: two concurrent writers can't be excluded in this store",
            remedy="use a store with conditional writes, or leave iceberg away",
        )
    try:
        for _ in range(_TRIES):
            try:
                return _published(table_path, tag, format_version)
            except FileExistsError:
                published_table.forget(table_path)
    except LakeError:
        raise
    except Exception as error:  # damaged files of Avro raise whatever comes
        published_table.forget(table_path)
        raise published_table.failed(f"{table_path} can't be published as Iceberg", table_path, error) from error
    raise LakeError(f"{table_path} is published by others all the time", remedy="run it again")


def _published(table_path: str, tag: str | None, format_version: int) -> int:
    table = opened_tables.newest(table_path)
    version = table.version()
    before = published_table.known(table_path)
    delta_schema = table.schema().to_json()
    is_followed = before is not None and before.metadata.format_version == format_version
    if before is None or not is_followed or not _continues(before, table, delta_schema, table_path):
        if before is None:
            files.make_readers_folder(f"{table_path}/{FOLDER}")
        number, partition = before.metadata.number if before else 0, _schema(table, {}).partition_columns
        before = PublishedTable(
            table_metadata.begun(
                table_path, str(table.metadata().id), number, format_version, table_metadata.partitioned_by(partition)
            )
        )
    if before.metadata.delta_version == version:
        _finish(before, table_path, tag)
        return version
    before = published_table.whole(before)
    before = replace(before, metadata=before.metadata.described(table.metadata().description or ""))
    schema = before.schema
    if schema is None or schema.delta != delta_schema:
        schema = PublishedSchema(delta_schema, _schema(table, before.metadata.known_ids))
    changes = _changes(before, table_path, version)
    after = _Publication(before, schema, table_path, version).of(changes, tag)
    published_table.keep(after, table_path, version)
    return version


def _schema(table: DeltaTable, known: Mapping[str, int]) -> iceberg_schema.IcebergSchema:
    """Return a table's columns. known: ids that were given, by the columns' names in data files. Raises LakeError."""
    return iceberg_schema.schema_of(plain_tables.fields_of(table), known, table.metadata().partition_columns)


def publish_alone(table_path: str) -> None:
    """Publish a Delta table's newest version in the place of all that was published of the table, if it ever was, and
    remove the other files of Iceberg's metadata: bounds of columns are in them. Readers of older snapshots lose them.

    The version must not be published yet. Raises LakeError, OSError, ValueError.
    """
    metadata = table_metadata.newest(table_path)
    if metadata is None:
        return
    table = opened_tables.newest(table_path)
    before = PublishedTable(metadata.without_snapshots().described(table.metadata().description or ""))
    schema = PublishedSchema(table.schema().to_json(), _schema(table, metadata.known_ids))
    changes = _changes(before, table_path, table.version())
    after = _Publication(before, schema, table_path, table.version()).of(changes, None)
    published_table.keep(after, table_path, table.version())
    kept = {table_metadata.HINT, after.metadata.path.rpartition("/")[2]} | after.file_names()
    for file in files.list_files(after.metadata.folder):
        if file.name not in kept:
            files.remove_below(table_path, f"{FOLDER}/{file.name}")


def _finish(before: PublishedTable, table_path: str, tag: str | None) -> None:
    """Do what a snapshot that is published lacks: the upkeep publishes without a tag, and others were killed."""
    if tag and tag not in before.metadata.tags and not before.metadata.is_of_a_batch:
        later = replace(before, metadata=before.metadata.tagged(tag).written())
        if before.stand is not None:
            published_table.keep(later, table_path, later.metadata.delta_version)
    elif before.stand is None and not before.metadata.is_named():
        before.metadata.name_newest()


def _continues(before: PublishedTable, table: DeltaTable, delta_schema: str, table_path: str) -> bool:
    """Return whether a table's newest version follows the one that is published, and each column of a data file has
    the id and the type that it had. Otherwise readers of older snapshots would see other values: these go.

    delta_schema: of the table's newest version, as JSON.
    """
    metadata = before.metadata
    published = metadata.delta_version
    if metadata.delta_id != str(table.metadata().id) or published > table.version():
        return False
    if before.commit is None or before.commit != opened_tables.commit_file(table_path, published):
        there = log_files.digest_of_commit(table_path, published)
        if there and there != metadata.delta_commit:
            return False
    if before.schema is not None and before.schema.delta == delta_schema:
        return True
    known, types = metadata.known_ids, metadata.known_types
    names = {number: stored for stored, number in known.items()}
    schema = _schema(table, known)
    if [*metadata.partition] != table_metadata.partitioned_by(schema.partition_columns):
        return False
    for column in schema.columns:
        if known.get(column.stored, column.id) != column.id or names.get(column.id, column.stored) != column.stored:
            return False
        if not iceberg_schema.promotes(types.get(column.id, column.type), column.type):
            return False
    return True


@dataclass(frozen=True)
class _Changes:
    """The data files of a Delta version, by path, and the addresses of those that may differ from what is
    published. digest: of the version's commit. are_known: whether the files that came are of the table's own writers,
    under the schema of before."""

    files: Mapping[str, Add]
    addresses: Collection[str]
    digest: str
    are_known: bool


def _changes(before: PublishedTable, table_path: str, version: int) -> _Changes:
    """Return what changed since a table was published. Raises LakeError, OSError."""
    if before.files is not None:
        commits = log_files.commits_of_files(table_path, before.metadata.delta_version, version)
        if commits is not None:
            there = Replay(dict(before.files)).take_all(commits).files
            named = {action.path for commit in commits for action in commit.actions if isinstance(action, FileAction)}
            addresses = {published_table.address(table_path, path) for path in named}
            return _Changes(there, addresses, commits[-1].digest, are_known=True)
    there = log_files.files_at(table_path, version)
    addresses = {published_table.address(table_path, path) for path in there} | before.data_files.keys()
    return _Changes(there, addresses, log_files.digest_of_commit(table_path, version), are_known=False)


class _Publication:
    """One snapshot that is made."""

    def __init__(self, before: PublishedTable, schema: PublishedSchema, table_path: str, version: int) -> None:
        self._before, self._path, self._version = before, table_path, version
        self._published, self._schema = schema, schema.iceberg
        self._metadata = before.metadata if before.schema is schema else before.metadata.having(schema.iceberg)
        self._json_schema = self._metadata.schema
        self._id = version + 1
        self._number = self._metadata.sequence_number + 1
        self._folder = self._metadata.folder
        self._writer = ManifestWriter(
            self._folder,
            f"{address_of(table_path)}/{FOLDER}",
            self._json_schema,
            self._metadata.partition,
            self._id,
            self._number,
            self._metadata.format_version,
        )

    def of(self, changes: _Changes, tag: str | None) -> PublishedTable:
        """Write the snapshot, and return the table as it is published then."""
        there = {published_table.address(self._path, path): add for path, add in changes.files.items()}
        listed, keys = self._before.data_files, self._before.vector_keys()
        gone = frozenset(address for address in changes.addresses if address in listed and address not in there)
        come = [address for address in there if address not in listed]
        restated = self._restated(there, listed, changes)
        marked = {address for address in changes.addresses if keys.get(address, "") != key_of(there.get(address))}
        size = max(_FEWEST_ENTRIES, len(there) // _WHOLE_MANIFESTS)
        added = [self._data_file(there[address], address, changes) for address in come]
        marks = self._marks([(address, there[address]) for address in sorted(marked) if key_of(there.get(address))])
        kept = [
            *self._rewritten("data", gone, restated, added, size),
            *self._rewritten("deletes", frozenset(marked), {}, marks, size),
        ]
        kept = self._merged(kept, size)
        is_append = not (gone or restated or marked)
        return self._committed(kept, changes, "append" if is_append else "overwrite", tag)

    def _restated(self, there: Mapping[str, Add], listed: Mapping[str, Record], changes: _Changes) -> dict[str, Record]:
        """Return the statistics that data files have by now where they had others."""
        restated = {}
        for address in changes.addresses:
            if address in listed and address in there:
                now = iceberg_schema.statistics(there[address], self._schema)
                if any(listed[address][name] != value for name, value in now.items()):
                    restated[address] = now
        return restated

    def _rewritten(
        self,
        content: manifests.Content,
        gone: frozenset[str],
        restated: Mapping[str, Record],
        added: Sequence[Record],
        size: int,
    ) -> list[IcebergManifest]:
        """Return the manifests of the snapshot: those that are there, without what is gone, and what comes. Of those
        that list nothing of it most stay as they are. size: entries of one, at most."""
        before = [each for each in self._before.manifests if each.content == content and each.entries]
        touched = [
            any(subject(entry) in gone or subject(entry) in restated for entry in manifest.entries)
            for manifest in before
        ]
        if not added and not any(touched):
            return before
        # Readers open each manifest, so few entries are written again with those that are written anyway.
        joined: list[IcebergManifest] = []
        count = len(added)
        for manifest, is_touched in sorted(
            zip(before, touched, strict=True), key=lambda each: (not each[1], len(each[0].entries))
        ):
            if count + len(manifest.entries) <= (size if is_touched else _FEW_ENTRIES):
                joined.append(manifest)
                count += len(manifest.entries)
        chunks = [added[at : at + size] for at in range(0, len(added), size)] or [[]]
        return [
            *(
                self._writer.together(content, [manifest], gone, restated) if is_touched else manifest
                for manifest, is_touched in zip(before, touched, strict=True)
                if manifest not in joined
            ),
            *(self._writer.together(content, joined if chunk is chunks[0] else [], gone, restated, chunk)
              for chunk in chunks if chunk or joined),
        ]  # fmt: skip

    def _merged(self, kept: list[IcebergManifest], size: int) -> list[IcebergManifest]:
        """Return the manifests, where there are many small ones put together. size: entries of one, at most."""
        if len(kept) < _MOST_MANIFESTS:
            return kept
        small = [
            manifest
            for manifest in kept
            if len(manifest.entries) < size // 2 and manifest.record["added_snapshot_id"] != self._id
        ]
        merged = [manifest for manifest in kept if manifest not in small]
        for content in ("data", "deletes"):
            of_content = [manifest for manifest in small if manifest.content == content]
            merged += self._writer.merged(content, of_content, size)
        return merged

    def _data_file(self, add: Add, address: str, changes: _Changes) -> Record:
        """Return what a manifest says of a data file."""
        rows = add.rows
        # Spark gives a list's elements no id where it gives columns ids.
        if rows is None or not changes.are_known or any(column.is_list for column in self._schema.columns):
            with files.opened(path_at(address)) as source:
                footer = pq.read_metadata(source)
            self._check_ids(footer, address)
            rows = footer.num_rows
        return {
            "content": 0, "file_path": address, "file_format": "PARQUET", "partition": self._partition_of(add),
            "record_count": rows, "file_size_in_bytes": add.size, **iceberg_schema.statistics(add, self._schema),
            "first_row_id": None, "referenced_data_file": None, "content_offset": None, "content_size_in_bytes": None,
        }  # fmt: skip

    def _partition_of(self, add: Add) -> Record:
        return self._schema.partition_of(add.fields.get("partitionValues") or {})

    def _check_ids(self, footer: pq.FileMetaData, address: str) -> None:
        """Raise LakeError where a data file has other ids of columns than the table: readers would take one column for
        another."""
        if iceberg_schema.has_other_ids(footer, self._metadata.known_ids):
            raise LakeError(
                f"{address} has other ids of columns than the table",
                remedy="snapshot the table again, or leave it out of iceberg.tables",
            )

    def _marks(self, marked: Sequence[tuple[str, Add]]) -> list[Record]:
        """Copy deletion vectors into files of Iceberg's, and return what manifests say of them. marked: data files, by
        their addresses."""

        def mark(address: str, add: Add) -> Record:
            partition, version = self._partition_of(add), self._metadata.format_version
            return hidden_rows.write(self._path, self._folder, address, add, partition, version)

        if len(marked) == 1:
            return [mark(*marked[0])]
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="hidden-rows") as pool:
            return list(pool.map(lambda each: mark(*each), marked))

    def _committed(
        self,
        kept: Iterable[IcebergManifest],
        changes: _Changes,
        operation: str,
        tag: str | None,
    ) -> PublishedTable:
        """Write the list of manifests and the metadata."""
        metadata, next_row, listed, records = self._metadata, self._metadata.next_row, [], []
        for manifest in kept:
            later, next_row = manifests.numbered(manifest, next_row)
            records.append(later.record)
            listed.append(later)
        name = f"{uuid.uuid4()}-manifests.avro"
        parent = {"parent-snapshot-id": metadata.current["snapshot-id"]} if metadata.current else {}
        facts = {
            DELTA_VERSION: str(self._version),
            DELTA_COMMIT: changes.digest,
        }
        snapshot: Record = {
            "snapshot-id": self._id, **parent, "sequence-number": self._number, "timestamp-ms": metadata.timestamp(),
            "manifest-list": f"{address_of(self._path)}/{FOLDER}/{name}",
            "summary": {"operation": operation, **facts}, "schema-id": self._json_schema["schema-id"],
        }  # fmt: skip
        if metadata.next_row is not None and next_row is not None:
            snapshot |= {"first-row-id": metadata.next_row, "added-rows": next_row - metadata.next_row}
        avro_files.write_manifests(f"{self._folder}/{name}", records, snapshot, metadata.format_version)
        written = metadata.behind(snapshot, next_row, tag).written()
        with_entries = tuple(each for each in listed if each.entries)
        return PublishedTable(written, with_entries, changes.files, schema=self._published)
