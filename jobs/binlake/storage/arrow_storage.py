"""The methods that all kinds of storage have in common, by a pyarrow file system."""

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
        """Open a file to be read at any offset."""
        return self.arrow.open_input_file(self.inner(path))

    def open_new(self, path: str) -> pa.NativeFile:
        """Open a file to be written from its beginning; a store has it once it is closed."""
        return self.arrow.open_output_stream(self.inner(path))

    def open_new_private(self, path: str) -> IO[bytes] | pa.NativeFile:
        """Open a file to be written as ``open_new`` does: without permissions of its own."""
        return self.open_new(path)

    def stat(self, path: str) -> StoredFile | None:
        """Return the file at a path; None for a folder, and where nothing is."""
        entry = self._entry(path)
        return _stored(entry, path) if entry.type == fs.FileType.File else None

    def exists(self, path: str) -> bool:
        """Return whether a file or a folder is at a path."""
        return bool(self._entry(path).type != fs.FileType.NotFound)

    def list(self, path: str) -> Listing:
        """Return the files and folders in a folder; nothing where it isn't there."""
        entries = self.arrow.get_file_info(fs.FileSelector(self.inner(path), allow_not_found=True))
        return Listing(
            [_stored(entry, entry.base_name) for entry in entries if entry.type == fs.FileType.File],
            sorted(entry.base_name for entry in entries if entry.type == fs.FileType.Directory),
        )

    def delete(self, path: str) -> None:
        """Delete a file. Raises FileNotFoundError where the storage says so; object stores don't."""
        self.arrow.delete_file(self.inner(path))

    def delete_below(self, folder: str, name: str) -> None:
        """Delete a file below a folder. These storages follow no symbolic links."""
        self.delete(f"{folder}/{name}")

    def delete_folder(self, path: str) -> None:
        """Delete a folder with all that is in it, if it is there."""
        if self.exists(path):
            self.arrow.delete_dir(self.inner(path))

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it, where the storage has folders."""
        self.arrow.create_dir(self.inner(path), recursive=True)

    def has_folder(self, path: str) -> bool:
        """Return whether a folder exists at a path."""
        return bool(self._entry(path).type == fs.FileType.Directory)

    def _entry(self, path: str) -> fs.FileInfo:
        return self.arrow.get_file_info(self.inner(path))


def _stored(entry: fs.FileInfo, name: str) -> StoredFile:
    return StoredFile(name, int(entry.size), entry.mtime.timestamp())
