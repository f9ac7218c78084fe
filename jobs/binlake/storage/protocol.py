"""The protocol of a storage, whether it is a disk, S3, Azure or HDFS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class StoredFile:
    """A file in a storage. name: its path, or the part of it below the folder that was listed. modified: seconds since
    1970."""

    name: str
    bytes: int
    modified: float


class Listing(NamedTuple):
    """The content of one folder: its files, by their names in it, and the names of its folders.

    links: names of symbolic links to folders, which may be anywhere.
    """

    files: list[StoredFile]
    folders: list[str]
    links: tuple[str, ...] = ()


class Storage(Protocol):
    """Files of one disk, bucket, container or HDFS cluster, by their whole paths or addresses.

    Each method raises OSError where the storage fails, and FileNotFoundError for a file that isn't there.
    """

    def open(self, path: str) -> pa.NativeFile:
        """Open a file to be read at any offset, as Parquet's readers do."""

    def open_new(self, path: str) -> pa.NativeFile:
        """Open a file to be written from its beginning."""

    def open_new_private(self, path: str) -> IO[bytes] | pa.NativeFile:
        """Open a file to be written, which only its owner may read where the storage has permissions."""

    def write(self, path: str, data: bytes) -> None:
        """Write a small private file that appears complete or not at all, over one that is there."""

    def replace(self, path: str, data: bytes) -> None:
        """Write a file that others may read, and that appears complete or not at all, over one that is there."""

    def write_if_absent(self, path: str, data: bytes) -> None:
        """Write a file that appears complete or not at all. Raises FileExistsError where one is there."""

    def writes_if_absent(self, path: str) -> bool:
        """Return whether ``write_if_absent`` lets one alone of several writers of a path succeed."""

    def stat(self, path: str) -> StoredFile | None:
        """Return the file at a path; None for a folder, and where nothing is."""

    def exists(self, path: str) -> bool:
        """Return whether a file or a folder is at a path."""

    def list(self, path: str) -> Listing:
        """Return what is in a folder; nothing where the folder isn't there."""

    def delete(self, path: str) -> None:
        """Delete a file."""

    def delete_below(self, folder: str, name: str) -> None:
        """Delete the file of this name below a folder. A symbolic link on the way to it is an OSError."""

    def delete_folder(self, path: str) -> None:
        """Delete a folder with all that is in it, if it is there. Symbolic links in it aren't followed."""

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it, where the storage has folders."""

    def make_private_folder(self, path: str) -> None:
        """Make a folder that only its owner can enter, where the storage has permissions.

        So are the folders made on the way, from the last one on whose name begins with ``_``; what is above are
        tables, which others read.
        """

    def has_folder(self, path: str) -> bool:
        """Return whether a folder exists by itself, and isn't just the beginning of the names of objects."""
