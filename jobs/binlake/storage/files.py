"""Files of the lake outside Delta, on every kind of storage. Failures become LakeError or StagingError."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from binlake.errors import StagingError
from binlake.storage import storage_errors
from binlake.storage.kinds import storage_of
from binlake.storage.protocol import Storage, StoredFile

if TYPE_CHECKING:
    import pyarrow as pa

STAGED_ANEW = "run again: the batch is staged again"
_CHUNK = 4 << 20


@contextmanager
def _as_lake_error(doing: str) -> Iterator[None]:
    """Raise a storage's OSError as LakeError. doing: what was tried, with the path."""
    try:
        yield
    except OSError as error:
        raise storage_errors.failed(f"can't {doing}", error) from error


_WAITING = 1 << 18
"""Bytes that are put together: a Parquet file of few rows is written in dozens of small pieces."""


class HashingSink:
    """A file that is written and hashed at once, so that it needn't be read again. pyarrow can write through it.

    checksum: of a file that is flushed or closed. Raises LakeError where the storage fails.
    """

    def __init__(self, sink: Any, path: str) -> None:
        self._sink = sink
        self._path = path
        self.size = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._waiting = bytearray()
        self.closed = False

    def write(self, data: Any) -> int:
        """Take bytes, and return how many; they are written once some have gathered. Raises LakeError."""
        before = len(self._waiting)
        self._waiting += data
        size = len(self._waiting) - before
        self.size += size
        if len(self._waiting) >= _WAITING:
            self._write_waiting()
        return size

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, bytearray()
        self._digest.update(waiting)
        with _as_lake_error(f"write {self._path}"):
            self._sink.write(waiting)

    def flush(self) -> None:
        """Write the bytes that wait, and flush the file. Raises LakeError."""
        self._write_waiting()
        with _as_lake_error(f"write {self._path}"):
            self._sink.flush()

    def close(self) -> None:
        """Write the bytes that wait, and close the file, also if that write fails. Raises LakeError."""
        self.closed = True
        try:
            self._write_waiting()
        finally:
            with _as_lake_error(f"write {self._path}"):
                self._sink.close()

    def tell(self) -> int:
        """Return the number of bytes taken."""
        return self.size

    def readable(self) -> bool:
        """Return False."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return False: what is written is hashed at once."""
        return False

    @property
    def checksum(self) -> str:
        """Return the hash of the bytes written so far, in hexadecimal."""
        return self._digest.hexdigest()


def make_private_folder(path: str) -> None:
    """Make a folder that only its owner can enter: staged rows are as private as the source's.

    The folders above it, from the last one on whose name begins with ``_``, are private, too.
    """
    with _as_lake_error(f"make the folder {path}"):
        storage_of(path).make_private_folder(path)


def make_readers_folder(path: str) -> None:
    """Make a folder of a table, which the table's readers can enter."""
    with _as_lake_error(f"make the folder {path}"):
        storage_of(path).make_folder(path)


@contextmanager
def hashing_sink(path: str) -> Iterator[HashingSink]:
    """Write one private file; afterwards ``size`` (bytes) and ``checksum`` (BLAKE2b, 16 bytes, hexadecimal) are
    known."""
    with _as_lake_error(f"write {path}"):
        sink = HashingSink(storage_of(path).open_new_private(path), path)
    try:
        yield sink
    finally:
        if not sink.closed:
            sink.close()


def write_text(path: str, text: str) -> None:
    """Write a small private file that appears complete or not at all."""
    with _as_lake_error(f"write {path}"):
        storage_of(path).write(path, text.encode())


def write_bytes(path: str, data: bytes) -> None:
    """Write a file that nobody reads before this returns. Raises OSError."""
    with storage_of(path).open_new(path) as stream:
        stream.write(data)


def copy(source: str, target: str) -> None:
    """Copy a file of a table to a path where none is, which nobody reads before this returns. Raises OSError."""
    with opened(source) as content, storage_of(target).open_new(target) as stream:
        while block := content.read(_CHUNK):
            stream.write(block)


def replace_bytes(path: str, data: bytes) -> None:
    """Write a file that others may read, and that appears complete or not at all, over one that is there. Raises
    OSError."""
    storage_of(path).replace(path, data)


def writes_if_absent(path: str) -> bool:
    """Return whether ``write_if_absent`` lets one alone of several writers of a file below this path succeed.

    It isn't known of S3 by a profile's credentials.
    """
    return storage_of(path).writes_if_absent(path)


def write_if_absent(path: str, text: str) -> None:
    """Write a file that appears complete or not at all, where ``writes_if_absent``. Raises FileExistsError where one is
    there; OSError."""
    storage_of(path).write_if_absent(path, text.encode())


def has_folder(path: str) -> bool:
    """Return whether a folder, in which something is, exists by itself: object stores with real folders aren't
    supported."""
    return storage_of(path).has_folder(path)


@contextmanager
def opened(path: str, storage: Storage | None = None) -> Iterator[pa.NativeFile]:
    """Open a file to be read at any offset. storage: that the path lies in, where the caller has it. Raises OSError."""
    with (storage or storage_of(path)).open(path) as source:
        yield source


def read_part(path: str, offset: int, size: int) -> bytes:
    """Read bytes of a file from an offset on. Raises OSError."""
    with opened(path) as source:
        return bytes(source.read_at(size, offset))


def read_text(path: str) -> str:
    """Read a small file. Raises StagingError when it can't be read."""
    with _as_staging_error(path), opened(path) as source:
        return bytes(source.readall()).decode()


def checksum(path: str) -> tuple[int, str]:
    """Return a file's size in bytes, and its checksum as ``HashingSink`` has it. Raises StagingError when it can't be
    read."""
    digest, size = hashlib.blake2b(digest_size=16), 0
    with _as_staging_error(path), opened(path) as source:
        while block := source.read(_CHUNK):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()


@contextmanager
def _as_staging_error(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StagingError(f"can't read {path}: {error}", remedy=STAGED_ANEW) from error


def exists(path: str) -> bool:
    """Return whether a file or a folder is at a path."""
    with _as_lake_error(f"look for {path}"):
        return storage_of(path).exists(path)


def stat(path: str) -> StoredFile | None:
    """Return the file at a path; None where none is."""
    with _as_lake_error(f"look for {path}"):
        return storage_of(path).stat(path)


def size(path: str) -> int | None:
    """Return a file's bytes; None where none is."""
    file = stat(path)
    return file.bytes if file else None


def list_files(path: str) -> list[StoredFile]:
    """Return the files of a folder and of the folders in it, except those whose names begin with ``_`` or ``.``; none
    where the folder isn't there. Symbolic links to folders aren't followed: what they lead to isn't the folder's."""
    with _as_lake_error(f"list {path}"):
        listing = storage_of(path).list(path)
    files = [file for file in listing.files if not file.name.startswith(("_", "."))]
    for folder in listing.folders:
        if not folder.startswith(("_", ".")):
            inside = list_files(f"{path}/{folder}")
            files += [replace(file, name=f"{folder}/{file.name}") for file in inside]
    return files


def subfolders(path: str) -> list[str]:
    """Return the names of the folders in a folder, also of linked ones; none where it isn't there."""
    with _as_lake_error(f"list {path}"):
        listing = storage_of(path).list(path)
    return sorted([*listing.folders, *listing.links])


def own_subfolders(path: str) -> list[str]:
    """Return the names of the folders in a folder that are no symbolic links; none where it isn't there."""
    with _as_lake_error(f"list {path}"):
        return storage_of(path).list(path).folders


def remove_file(path: str) -> None:
    """Delete a file, unless somebody was quicker."""
    with _as_lake_error(f"remove {path}"), suppress(FileNotFoundError):
        storage_of(path).delete(path)


def remove_below(folder: str, name: str) -> None:
    """Delete a file of a folder or of the folders in it, unless somebody was quicker.

    Raises LakeError where a symbolic link is on the way, for it may lead out of the lake.
    """
    with _as_lake_error(f"remove {folder}/{name}"), suppress(FileNotFoundError):
        storage_of(folder).delete_below(folder, name)


def remove_folder(path: str) -> None:
    """Delete a folder with what is in it, if it is there."""
    with _as_lake_error(f"remove {path}"):
        storage_of(path).delete_folder(path)
