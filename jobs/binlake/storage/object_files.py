"""Objects of a store as files, for pyarrow, by obstore: it takes the accounts and authorities that deltalake takes.

``obstore.fsspec`` (0.12.1) below pyarrow's FSSpecHandler can't replace it: it refuses the buffers that pyarrow writes,
has no time of modification, raises errors that are no OSError, and has no conditional write.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError
from obstore.store import ObjectStore
from pyarrow import fs

_FOLDER = "hdi_isfolder"
"""Attribute that Hadoop gives to an empty object that represents a folder."""
_AT_ONCE = 4 << 20
"""Bytes up to which an object is read by one request."""


class ObjectFiles(fs.FileSystemHandler):  # type: ignore[misc]
    """Objects of one bucket or container, by their names in it.

    A folder exists where objects are below it, or Hadoop left an empty one in its place. Raises OSError as other file
    systems do, and NotImplementedError for what object_storage.py doesn't ask for.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def get_type_name(self) -> str:
        """Return pyarrow's name for this kind of file system."""
        return "objects"

    def normalize_path(self, path: str) -> str:
        """Return the path as it is: names of objects have one form only."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        """Return the kind, size and time of each path; of type NotFound where nothing is. Raises OSError."""
        with _as_os_error(f"looking for {', '.join(paths)}"):
            return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            return self._file_info(obstore.head(self._store, path))
        except FileNotFoundError:
            below = obstore.list_with_delimiter(self._store, path)
            is_folder = below["objects"] or below["common_prefixes"]
            return fs.FileInfo(path, type=fs.FileType.Directory if is_folder else fs.FileType.NotFound)

    def _file_info(self, meta: Any) -> fs.FileInfo:
        name = meta["path"]
        if not meta["size"] and _FOLDER in obstore.get(self._store, name).attributes:
            return fs.FileInfo(name, type=fs.FileType.Directory)
        return fs.FileInfo(name, type=fs.FileType.File, size=meta["size"], mtime=meta["last_modified"])

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """Return the objects in a folder, or all below it; folders only where it isn't recursive. Raises OSError."""
        with _as_os_error(f"listing {selector.base_dir}"):
            if selector.recursive:
                pages = obstore.list(self._store, selector.base_dir)
                return [self._file_info(meta) for page in pages for meta in page]
            below = obstore.list_with_delimiter(self._store, selector.base_dir)
            folders = set(below["common_prefixes"])
            files = [self._file_info(meta) for meta in below["objects"] if meta["path"] not in folders]
            return [*files, *(fs.FileInfo(name, type=fs.FileType.Directory) for name in sorted(folders))]

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open an object to be read at any offset. Raises OSError."""
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open an object to be read: a small one is read whole by one request, a large one piece by piece.

        Raises OSError.
        """
        with _as_os_error(f"reading {path}"):
            result = obstore.get(self._store, path)
            if result.meta["size"] <= _AT_ONCE:
                return pa.BufferReader(bytes(result.bytes()))
        return pa.PythonFile(_Reader(self._store, path, result.meta["size"]), mode="r")

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        """Open a new object, which appears when the stream is closed. metadata: ignored."""
        return pa.PythonFile(_Writer(self._store, path), mode="w")

    def delete_file(self, path: str) -> None:
        """Delete an object. Raises OSError."""
        with _as_os_error(f"removing {path}"):
            obstore.delete(self._store, path)

    def delete_dir(self, path: str) -> None:
        """Delete the empty object that represents a folder; what is below it must have been deleted before."""
        self.delete_file(path)

    def _unsupported(self, *arguments: object) -> None:
        raise NotImplementedError

    copy_file = create_dir = delete_dir_contents = delete_root_dir_contents = move = open_append_stream = _unsupported


FAILURES = (BaseError, FileNotFoundError)
"""Errors of obstore; the latter is raised, too, where there is no bucket to write to."""


def message(error: BaseException) -> str:
    """Return an error's message without obstore's debug dump of the request."""
    return str(error).partition("Debug source")[0].strip()


@contextmanager
def _as_os_error(doing: str) -> Iterator[None]:
    """Raise obstore's errors as OSError. doing: what was tried."""
    try:
        yield
    except BaseError as error:
        raise OSError(f"{doing} failed: {message(error)}") from error


class _Reader:
    """A large object, read by a request for each piece."""

    def __init__(self, store: ObjectStore, path: str, size: int) -> None:
        self._store, self._path, self._size = store, path, size
        self._at = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        length = self._size - self._at if size < 0 else min(size, self._size - self._at)
        if length <= 0:
            return b""
        with _as_os_error(f"reading {self._path}"):
            piece = bytes(obstore.get_range(self._store, self._path, start=self._at, length=length))
        self._at += len(piece)
        return piece

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


class _Writer:
    """A new object, which appears when it is closed."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._writer, self._path = obstore.open_writer(store, path), path
        self._at = 0
        self.closed = False

    def write(self, data: Any) -> int:
        piece = memoryview(data).cast("B")  # obstore refuses pyarrow's signed bytes
        with _as_os_error(f"writing {self._path}"):
            self._writer.write(piece)
        self._at += len(piece)
        return len(piece)

    def flush(self) -> None:
        """Do nothing: an object appears when it is closed."""

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with _as_os_error(f"writing {self._path}"):
                self._writer.close()
