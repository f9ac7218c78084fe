"""What all kinds of storage do alike, by a pyarrow file system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import IO

import pyarrow as pa
from pyarrow import fs

from binlake.storage.protocol import Listing, StoredFile


class ArrowStorage(ABC):
    """A storage whose files are reached by pyarrow; see protocol.Storage."""

    @property
    @abstractmethod
    def arrow(self) -> fs.FileSystem:
        """The pyarrow file system."""

    @abstractmethod
    def inner(self, path: str) -> str:
        """Return the path in that file system."""

    def open(self, path: str) -> pa.NativeFile:
        return self.arrow.open_input_file(self.inner(path))

    def open_new(self, path: str) -> pa.NativeFile:
        return self.arrow.open_output_stream(self.inner(path))

    def open_new_private(self, path: str) -> IO[bytes] | pa.NativeFile:
        return self.open_new(path)

    def stat(self, path: str) -> StoredFile | None:
        entry = self._entry(path)
        return _stored(entry, path) if entry.type == fs.FileType.File else None

    def exists(self, path: str) -> bool:
        return bool(self._entry(path).type != fs.FileType.NotFound)

    def list(self, path: str) -> Listing:
        entries = self.arrow.get_file_info(fs.FileSelector(self.inner(path), allow_not_found=True))
        return Listing(
            [_stored(entry, entry.base_name) for entry in entries if entry.type == fs.FileType.File],
            sorted(entry.base_name for entry in entries if entry.type == fs.FileType.Directory),
        )

    def delete(self, path: str) -> None:
        self.arrow.delete_file(self.inner(path))

    def delete_folder(self, path: str) -> None:
        if self.exists(path):
            self.arrow.delete_dir(self.inner(path))

    def make_folder(self, path: str) -> None:
        self.arrow.create_dir(self.inner(path), recursive=True)

    def has_folder(self, path: str) -> bool:
        return bool(self._entry(path).type == fs.FileType.Directory)

    def _entry(self, path: str) -> fs.FileInfo:
        return self.arrow.get_file_info(self.inner(path))


def _stored(entry: fs.FileInfo, name: str) -> StoredFile:
    return StoredFile(name, int(entry.size), entry.mtime.timestamp())
