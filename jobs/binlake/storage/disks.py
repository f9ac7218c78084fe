"""Local disks, and what the operating system mounts as such."""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore
from pyarrow import fs

from binlake.storage import stores
from binlake.storage.arrow_storage import ArrowStorage
from binlake.storage.protocol import Listing

_LOCAL = fs.LocalFileSystem()


class Disks(ArrowStorage):
    """The file system of this host; see protocol.Storage."""

    @property
    def arrow(self) -> fs.FileSystem:
        """Return pyarrow's local file system."""
        return _LOCAL

    def inner(self, path: str) -> str:
        """Return a path without its scheme, as the operating system takes it."""
        return str(fs.FileSystem.from_uri(path)[1]) if path.startswith(stores.DISKS) else path

    def open_new_private(self, path: str) -> IO[bytes]:
        """Open a file with mode 0600 to be written, emptied if it is there."""
        return open(os.open(self.inner(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")

    def write(self, path: str, data: bytes) -> None:
        """Write a temporary private file, sync it, and rename it over the path."""
        temporary = Path(f"{self.inner(path)}.writing")
        try:
            with self.open_new_private(str(temporary)) as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(temporary, self.inner(path))
        except OSError:
            with suppress(OSError):  # on a full disk the incomplete file takes space, too
                temporary.unlink()
            raise

    def replace(self, path: str, data: bytes) -> None:
        """Write a file with the usual permissions, which appears complete over one that is there. Raises OSError."""
        folder, _, name = self.inner(path).rpartition("/")
        try:
            obstore.put(LocalStore(folder), name, data)
        except BaseError as error:
            raise OSError(f"writing {path} failed: {error}") from error

    def write_if_absent(self, path: str, data: bytes) -> None:
        """Link a complete temporary file to the path. Raises FileExistsError where a file is there."""
        folder, _, name = self.inner(path).rpartition("/")
        temporary = f"{folder}/.{name}.{uuid.uuid4()}.tmp"  # as Hadoop names them: readers of a log pass them over
        try:
            with open(temporary, "xb") as handle:
                handle.write(data)
            try:
                os.link(temporary, f"{folder}/{name}")
            except FileExistsError:
                if os.stat(temporary).st_nlink == 1:  # on NFS a link whose answer was lost is made a second time
                    raise
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def writes_if_absent(self, path: str) -> bool:
        """Return True for a plain path, False for an address that begins with ``file://``."""
        return not path.startswith(stores.DISKS)

    def list(self, path: str) -> Listing:
        """Return what is in a folder, with symbolic links to folders separate from its folders."""
        listing = super().list(path)
        links = tuple(name for name in listing.folders if os.path.islink(f"{self.inner(path)}/{name}"))
        return listing._replace(folders=[name for name in listing.folders if name not in links], links=links)

    def delete_below(self, folder: str, name: str) -> None:
        """Delete a file below a folder by descriptors of each folder on the way. Raises OSError at a symbolic link."""
        *between, last = name.split("/")
        with ExitStack() as opened:
            at = os.open(self.inner(folder), os.O_PATH | os.O_DIRECTORY)
            opened.callback(os.close, at)
            for part in between:
                at = _open_folder(part, at)
                opened.callback(os.close, at)
            os.unlink(last, dir_fd=at)

    def make_private_folder(self, path: str) -> None:
        """Make a folder, and those above it from the one named ``_…`` on, with mode 0700; those further above as
        usual."""
        private = [Path(self.inner(path))]
        while not private[-1].name.startswith("_") and any(
            parent.name.startswith("_") for parent in private[-1].parents
        ):
            private.append(private[-1].parent)
        private[-1].parent.mkdir(parents=True, exist_ok=True)
        for folder in reversed(private):
            folder.mkdir(mode=0o700, exist_ok=True)


def _open_folder(name: str, within: int) -> int:
    """Return a descriptor of a folder in an open one. Raises OSError for a symbolic link."""
    try:
        return os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=within)
    except NotADirectoryError:
        raise OSError(f"{name} is a symbolic link, and nothing is deleted through one") from None
