"""Objects of a store as files, for pyarrow, by the library that deltalake works with: one account and one trust for
both. For stores of which pyarrow has no file system that takes these."""

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
"""What Hadoop says of an empty object that stands for a folder."""
_AT_ONCE = 4 << 20
"""Bytes of an object that is read by one request."""


class Objects(fs.FileSystemHandler):  # type: ignore[misc]
    """Of one bucket or container, by their names in it. A folder is there where objects are below it, or Hadoop left
    an empty one in its place. Raises OSError as other file systems do; what files.py doesn't ask for isn't there."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def get_type_name(self) -> str:
        return "objects"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        with _told(f"looking for {', '.join(paths)}"):
            return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            return self._described(obstore.head(self._store, path))
        except FileNotFoundError:
            below = obstore.list_with_delimiter(self._store, path)
            is_folder = below["objects"] or below["common_prefixes"]
            return fs.FileInfo(path, type=fs.FileType.Directory if is_folder else fs.FileType.NotFound)

    def _described(self, found: Any) -> fs.FileInfo:
        name = found["path"]
        if not found["size"] and _FOLDER in obstore.get(self._store, name).attributes:
            return fs.FileInfo(name, type=fs.FileType.Directory)
        return fs.FileInfo(name, type=fs.FileType.File, size=found["size"], mtime=found["last_modified"])

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        with _told(f"listing {selector.base_dir}"):
            if selector.recursive:
                pages = obstore.list(self._store, selector.base_dir)
                return [self._described(found) for page in pages for found in page]
            below = obstore.list_with_delimiter(self._store, selector.base_dir)
            folders = set(below["common_prefixes"])
            found = [self._described(one) for one in below["objects"] if one["path"] not in folders]
            return [*found, *(fs.FileInfo(one, type=fs.FileType.Directory) for one in sorted(folders))]

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        with _told(f"reading {path}"):
            found = obstore.get(self._store, path)
            if found.meta["size"] <= _AT_ONCE:
                return pa.BufferReader(bytes(found.bytes()))
        return pa.PythonFile(_Reader(self._store, path, found.meta["size"]), mode="r")

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        return pa.PythonFile(_Writer(self._store, path), mode="w")

    def delete_file(self, path: str) -> None:
        with _told(f"removing {path}"):
            obstore.delete(self._store, path)

    def delete_dir(self, path: str) -> None:
        """The empty object that stands for it: what is below goes before."""
        self.delete_file(path)

    def _isnt_there(self, *told: object) -> None:
        raise NotImplementedError

    copy_file = create_dir = delete_dir_contents = delete_root_dir_contents = move = open_append_stream = _isnt_there


def said_by(error: BaseError) -> str:
    """Without the same again as Rust prints it, with the whole request."""
    return str(error).partition("Debug source")[0].strip()


@contextmanager
def _told(doing: str) -> Iterator[None]:
    try:
        yield
    except BaseError as error:
        raise OSError(f"{doing} failed: {said_by(error)}") from error


class _Reader:
    """A large object, by a request for each piece."""

    def __init__(self, store: ObjectStore, path: str, size: int) -> None:
        self._store, self._path, self._size = store, path, size
        self._at = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        length = self._size - self._at if size < 0 else min(size, self._size - self._at)
        if length <= 0:
            return b""
        with _told(f"reading {self._path}"):
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
    """A new object, which nobody sees before it is closed."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._writer, self._path = obstore.open_writer(store, path), path
        self._at = 0
        self.closed = False

    def write(self, data: Any) -> int:
        piece = memoryview(data).cast("B")  # pyarrow's bytes have a sign
        with _told(f"writing {self._path}"):
            self._writer.write(piece)
        self._at += len(piece)
        return len(piece)

    def flush(self) -> None:
        """What is flushed isn't seen either."""

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with _told(f"writing {self._path}"):
                self._writer.close()
