"""Files of the lake outside Delta: staged Parquet and manifests, on a local disk or behind a URL."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, LocalStore, ObjectStore, S3Store
from pyarrow import fs

from binlake.errors import LakeError, StagingError, UsageError
from binlake.storage import accounts, object_files, storage_errors, stores

STAGED_ANEW = "run again: the batch is staged anew"
_CHUNK = 4 << 20
_ROWS = 1 << 20
_FEW_ROWS = 4096
_COMBINED = 16 << 20
"""Bytes of batches that are put together: many small pieces of memory take half as much again."""
_ROW_GROUP = 64 << 20
"""Bytes of memory whose rows make a row group."""
_DATA_FILE: dict[str, Any] = {"compression": "snappy", "store_decimal_as_integer": True}
CONFLICTS, CONFLICT_SECONDS = 20, 0.1
"""How often a write is tried again that S3 put off for another one under way, and after how long."""
_SIDE_BY_SIDE = 16
"""Objects removed at once: a store answers slowly."""


def _locate(path: str) -> tuple[fs.FileSystem, str]:
    if "://" not in path:
        return fs.LocalFileSystem(), path
    if stores.store_of(path) is not None:
        stores.check(path)
        bucket, name = stores.container_and_name(path)
        store = stores.at(path)
        return (_s3(store), f"{bucket}/{name}") if isinstance(store, stores.S3) else (_objects(bucket, store), name)
    if stores.is_hdfs(path):
        located: tuple[fs.FileSystem, str] = _hdfs().locate(path)
        return located
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path)
    except (OSError, ValueError) as error:
        raise LakeError(
            f"no file system for {path}: {error}", remedy="use a folder, s3://, abfss:// or hdfs://"
        ) from error
    return found


def _hdfs() -> ModuleType:
    """binlake.storage.hdfs, which needs a package of its own. Raises UsageError."""
    try:
        from binlake.storage import hdfs
    except ImportError as error:
        raise UsageError(f"hdfs:// needs hdfs-native: {error}", remedy="pip install 'binlake[hdfs]'") from error
    return hdfs


@cache
def _s3(s3: stores.S3) -> fs.FileSystem:
    # Else each file that goes leaves an empty object in the place of its folder.
    return fs.S3FileSystem(**s3.arrow_arguments(), check_directory_existence_before_creation=True)


@cache
def _objects(container: str, store: stores.Store) -> fs.FileSystem:
    return fs.PyFileSystem(object_files.Objects(_conditional_store(container, store)))


@contextmanager
def _storage(doing: str) -> Iterator[None]:
    """What the storage refuses is told in our tree."""
    try:
        yield
    except OSError as error:
        raise storage_errors.failed(f"can't {doing}", error) from error


class _Hashing:
    """A sink that hashes what passes through it, so that a staged file need not be read again.

    Who writes through it (pyarrow) gets LakeError where the storage fails.
    """

    def __init__(self, sink: Any, path: str) -> None:
        self._sink = sink
        self._path = path
        self.size = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self.closed = False

    def write(self, data: Any) -> int:
        self._digest.update(data)
        self.size += len(memoryview(data).cast("B"))
        with _storage(f"write {self._path}"):
            self._sink.write(data)
        return len(memoryview(data).cast("B"))

    def flush(self) -> None:
        with _storage(f"write {self._path}"):
            self._sink.flush()

    def close(self) -> None:
        self.closed = True
        with _storage(f"write {self._path}"):
            self._sink.close()

    def tell(self) -> int:
        return self.size

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    @property
    def checksum(self) -> str:
        return self._digest.hexdigest()


def make_folder(path: str) -> None:
    """A folder only its owner can enter: staged rows are as private as the source's. Object stores have none.

    So are the folders made on the way, from the last one on whose name begins with ``_``: what is above are tables,
    which are their readers'.
    """
    filesystem, inner = _locate(path)
    with _storage(f"make the folder {path}"):
        if isinstance(filesystem, fs.LocalFileSystem):
            _make_private(Path(inner))
        elif stores.is_hdfs(path):
            _make_private_on_hdfs(path)
        elif stores.store_of(path) is None:
            filesystem.create_dir(inner, recursive=True)


def _make_private_on_hdfs(path: str) -> None:
    """As below, of which the NameNode would give all that are made one mode."""
    above = path
    while not above.rpartition("/")[2].startswith("_") and "/_" in above:
        above = above.rpartition("/")[0]
    _hdfs().make_folder(above.rpartition("/")[0], 0o755)
    _hdfs().make_folder(path, 0o700)


def make_readers_folder(path: str) -> None:
    """A folder of a table's, which its readers enter, too."""
    filesystem, inner = _locate(path)
    with _storage(f"make the folder {path}"):
        if stores.store_of(path) is None:
            filesystem.create_dir(inner, recursive=True)


def _make_private(path: Path) -> None:
    private = [path]
    while not private[-1].name.startswith("_") and any(parent.name.startswith("_") for parent in private[-1].parents):
        private.append(private[-1].parent)
    private[-1].parent.mkdir(parents=True, exist_ok=True)
    for folder in reversed(private):
        folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def hashing_sink(path: str) -> Iterator[_Hashing]:
    """Write one file; afterwards ``size`` (bytes) and ``checksum`` (BLAKE2b, 16 bytes, hexadecimal) are known."""
    filesystem, inner = _locate(path)
    with _storage(f"write {path}"):
        if isinstance(filesystem, fs.LocalFileSystem):
            handle: IO[bytes] = open(os.open(inner, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")  # noqa: SIM115
            sink = _Hashing(handle, path)
        else:
            sink = _Hashing(filesystem.open_output_stream(inner), path)
    try:
        yield sink
    finally:
        if not sink.closed:
            sink.close()


def write_text(path: str, text: str) -> None:
    """Write a small file whole: it appears complete or not at all."""
    filesystem, inner = _locate(path)
    data = text.encode()
    if isinstance(filesystem, fs.LocalFileSystem):
        with _storage(f"write {path}"):
            temporary = Path(f"{inner}.writing")
            try:
                with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
                    handle.write(data)
                    handle.flush()
                    os.fsync(handle.fileno())
                os.replace(temporary, inner)
            except OSError:
                with suppress(OSError):  # of a full disk each part of a file is one more
                    temporary.unlink()
                raise
        return
    if stores.is_hdfs(path):
        with _storage(f"write {path}"):
            _hdfs().write_whole(path, data, over=True)
        return
    with hashing_sink(path) as sink:
        sink.write(data)


def write_bytes(path: str, data: bytes) -> None:
    """A new file, which nobody looks for before it is whole. Raises OSError."""
    filesystem, inner = _locate(path)
    with filesystem.open_output_stream(inner) as stream:
        stream.write(data)


def writes_once(path: str) -> bool:
    """Whether of two writers of one file below this path one alone succeeds, by ``write_once``.

    Unknown are other file systems than folders, HDFS and object stores, and S3 by a profile's credentials.
    """
    store = stores.store_of(path)
    by_profile = store == "s3" and stores.has_profile(accounts.environment_of(path))
    return "://" not in path or stores.is_hdfs(path) or (store is not None and not by_profile)


def has_real_folders(folder: str) -> bool:
    """Whether a folder in a store, in which something is, is there by itself: where names are more than names."""
    store, name = _conditional(folder)
    return _is_there(store, name)


def write_once(path: str, text: str) -> None:
    """A file that wasn't there, whole or not at all, on what ``writes_once``. Raises FileExistsError where it is;
    OSError."""
    if stores.is_hdfs(path):
        _hdfs().write_whole(path, text.encode(), over=False)
        return
    store, name = _conditional(path)
    try:
        for _ in range(CONFLICTS):
            try:
                obstore.put(store, name, text.encode(), mode="create")
                return
            except AlreadyExistsError as error:
                if _is_there(store, name):
                    raise FileExistsError(f"{path} is there already") from error
            time.sleep(CONFLICT_SECONDS)
    except BaseError as error:
        raise OSError(f"writing {path} failed: {object_files.said_by(error)}") from error
    raise OSError(f"writing {path} failed: the store puts it off for another write of it, again and again")


def _is_there(store: ObjectStore, name: str) -> bool:
    """obstore says "already exists" to HTTP 409, too: another write is under way, and may yet fail."""
    try:
        obstore.head(store, name)
    except FileNotFoundError:
        return False
    return True


def _conditional(path: str) -> tuple[ObjectStore, str]:
    if "://" not in path:
        folder, _, name = path.rpartition("/")
        return LocalStore(folder), name
    stores.check(path)
    bucket, name = stores.container_and_name(path)
    return _conditional_store(bucket, stores.at(path)), name


@cache
def _conditional_store(bucket: str, store: stores.Store) -> ObjectStore:
    kind = S3Store if isinstance(store, stores.S3) else AzureStore
    return kind(bucket, **store.obstore_arguments())


@contextmanager
def opened(path: str) -> Iterator[pa.NativeFile]:
    """To be read anywhere. Raises OSError."""
    filesystem, inner = _locate(path)
    with filesystem.open_input_file(inner) as source:
        yield source


def read_part(path: str, offset: int, size: int) -> bytes:
    """Raises OSError."""
    with opened(path) as source:
        return bytes(source.read_at(size, offset))


def read_text(path: str) -> str:
    """Raises StagingError when the file is missing."""
    filesystem, inner = _locate(path)
    try:
        with filesystem.open_input_stream(inner) as stream:
            return bytes(stream.readall()).decode()
    except OSError as error:
        raise StagingError(f"can't read {path}: {error}", remedy=STAGED_ANEW) from error


def checksum(path: str) -> tuple[int, str]:
    """Size in bytes and checksum of a file; raises StagingError when it can't be read."""
    filesystem, inner = _locate(path)
    digest, size = hashlib.blake2b(digest_size=16), 0
    try:
        with filesystem.open_input_stream(inner) as stream:
            while block := stream.read(_CHUNK):
                digest.update(block)
                size += len(block)
    except OSError as error:
        raise StagingError(f"can't read {path}: {error}", remedy=STAGED_ANEW) from error
    return size, digest.hexdigest()


def exists(path: str) -> bool:
    filesystem, inner = _locate(path)
    with _storage(f"look for {path}"):
        return bool(filesystem.get_file_info(inner).type != fs.FileType.NotFound)


def size(path: str) -> int | None:
    """Bytes of a file; None where none is."""
    filesystem, inner = _locate(path)
    with _storage(f"look for {path}"):
        found = filesystem.get_file_info(inner)
    return int(found.size) if found.type == fs.FileType.File else None


def remove_file(path: str) -> None:
    filesystem, inner = _locate(path)
    with _storage(f"remove {path}"):
        filesystem.delete_file(inner)


@dataclass(frozen=True)
class FileFound:
    """One file of a folder. name: its path below that. modified: seconds since 1970."""

    name: str
    bytes: int
    modified: float


def found(path: str) -> FileFound | None:
    """A file, by its whole path; None where none is."""
    filesystem, inner = _locate(path)
    with _storage(f"look for {path}"):
        info = filesystem.get_file_info(inner)
    return FileFound(path, info.size, info.mtime.timestamp()) if info.type == fs.FileType.File else None


def listed(path: str) -> list[FileFound]:
    """Files of a folder and of its folders, but for those whose names begin with ``_`` or ``.``; none without it."""
    filesystem, inner = _locate(path)
    with _storage(f"list {path}"):
        found = filesystem.get_file_info(fs.FileSelector(inner, allow_not_found=True))
    made: list[FileFound] = []
    for entry in found:
        if entry.base_name.startswith(("_", ".")):
            continue
        if entry.type == fs.FileType.Directory:
            inside = listed(f"{path}/{entry.base_name}")
            made += [FileFound(f"{entry.base_name}/{file.name}", file.bytes, file.modified) for file in inside]
        elif entry.type == fs.FileType.File:
            made.append(FileFound(entry.base_name, entry.size, entry.mtime.timestamp()))
    return made


def subfolders(path: str) -> list[str]:
    """Names of the folders in a folder; none when it isn't there."""
    filesystem, inner = _locate(path)
    with _storage(f"list {path}"):
        found = filesystem.get_file_info(fs.FileSelector(inner, allow_not_found=True))
    return sorted(entry.base_name for entry in found if entry.type == fs.FileType.Directory)


def remove_folder(path: str) -> None:
    """Remove a folder with what is in it; nothing happens when it isn't there."""
    filesystem, inner = _locate(path)
    with _storage(f"remove {path}"):
        if stores.store_of(path) is not None:
            _remove_objects(filesystem, inner)
        elif filesystem.get_file_info(inner).type != fs.FileType.NotFound:
            filesystem.delete_dir(inner)


def _remove_objects(filesystem: fs.FileSystem, inner: str) -> None:
    """One by one, what lies deepest first: a store that keeps folders refuses one that isn't empty."""
    everything = fs.FileSelector(inner, allow_not_found=True, recursive=True)
    found = [entry.path for entry in filesystem.get_file_info(everything) if entry.type == fs.FileType.File]
    with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="remove") as pool:
        list(pool.map(filesystem.delete_file, found))
    left = [entry.path for entry in filesystem.get_file_info(everything)]
    for folder in [*sorted(left, key=len, reverse=True), inner]:
        if filesystem.get_file_info(folder).type == fs.FileType.Directory:
            filesystem.delete_dir(folder)


def parquet_columns(path: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of a staged file, a part of its rows at a time; raises StagingError when it can't be read."""
    filesystem, inner = _locate(path)
    try:
        with filesystem.open_input_file(inner) as source:
            for batch in pq.ParquetFile(source).iter_batches(_ROWS, columns=list(columns)):
                yield pa.Table.from_batches([batch])
    except (OSError, pa.ArrowException) as error:
        raise StagingError(f"can't read {path}: {error}", remedy=STAGED_ANEW) from error


def parquet_batches(path: str, rows: int) -> Iterator[pa.RecordBatch]:
    """A staged file, so many of its rows at a time; raises StagingError when it can't be read."""
    filesystem, inner = _locate(path)
    try:
        with filesystem.open_input_file(inner) as source:
            yield from pq.ParquetFile(source).iter_batches(rows, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise StagingError(f"can't read {path}: {error}", remedy=STAGED_ANEW) from error


def parquet_groups_backwards(path: str, columns: list[str]) -> Iterator[pa.Table]:
    """A staged file's row groups, the last first; columns of structs as ``struct.column``. Raises StagingError."""
    try:
        with opened(path) as source:
            file = pq.ParquetFile(source)
            for group in reversed(range(file.num_row_groups)):
                yield file.read_row_group(group, columns, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise StagingError(f"can't read {path}: {error}", remedy=STAGED_ANEW) from error


def parquet_rows(
    path: str, most: int, columns: Sequence[str] | None = None, *, narrow: bool = False
) -> pa.Table | None:
    """A whole Parquet file, or some columns of it that it has, in this thread; None where these take more than ``most``
    bytes of memory, which a small file of equal texts may. narrow: of a few bytes a row, so that many are read before
    they are counted. Raises OSError, ArrowException."""
    found: list[pa.Table] = []
    small: list[pa.RecordBatch] = []
    with opened(path) as source:
        file = pq.ParquetFile(source)
        names = file.schema_arrow.names
        chosen = names if columns is None else [name for name in names if name in columns]
        for batch in file.iter_batches(_ROWS if narrow else _FEW_ROWS, columns=chosen, use_threads=False):
            small.append(batch)
            most -= batch.nbytes
            if most < 0:
                return None
            if sum(one.nbytes for one in small) > _COMBINED:
                found.append(pa.Table.from_batches(small).combine_chunks())
                small.clear()
        schema = pa.schema([file.schema_arrow.field(name) for name in chosen])
        return pa.concat_tables([*found, pa.Table.from_batches(small, schema)])


def write_parquet(path: str, rows: pa.Table) -> int:
    """One data file of a table, for its readers too; gives its bytes. Raises OSError."""
    if rows.nbytes > _ROW_GROUP:
        return _write_groups(path, rows)
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **_DATA_FILE)
    data = sink.getvalue()
    write_bytes(path, data)
    return int(data.size)


def _write_groups(path: str, rows: pa.Table) -> int:
    """Write one row group after the other, so that no more than one is held beside the rows; give the file's bytes."""
    sink = ParquetSink(path, rows.schema)
    try:
        for batch in rows.to_batches():
            sink.write(batch)
        return sink.close()
    except BaseException:
        sink.abandon()
        raise


class ParquetSink:
    """A data file of a table, for its readers too, written row group by row group. Raises OSError."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        filesystem, inner = _locate(path)
        self._stream = filesystem.open_output_stream(inner)
        self._writer = pq.ParquetWriter(self._stream, schema, **_DATA_FILE)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._size = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._waiting, self._waiting_bytes = [], 0

    def close(self) -> int:
        """Gives the file's bytes; once more, it does nothing."""
        if not self._stream.closed:
            try:
                self._flush()
                self._writer.close()
                self._size = self._stream.tell()
            finally:
                self._stream.close()
        return self._size

    def abandon(self) -> None:
        """What is there by now isn't whole."""
        if not self._stream.closed:
            self._writer.is_open = False  # else it writes its end when it is collected
            self._stream.close()
