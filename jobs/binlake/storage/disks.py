"""Local disks, and what the operating system mounts as such."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import IO

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore
from pyarrow import fs

from binlake.storage import stores
from binlake.storage.arrow_storage import ArrowStorage

_LOCAL = fs.LocalFileSystem()


class Disks(ArrowStorage):
    """The file system of this host; see protocol.Storage."""

    @property
    def arrow(self) -> fs.FileSystem:
        return _LOCAL

    def inner(self, path: str) -> str:
        return str(fs.FileSystem.from_uri(path)[1]) if path.startswith(stores.DISKS) else path

    def open_new_private(self, path: str) -> IO[bytes]:
        return open(os.open(self.inner(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")

    def write(self, path: str, data: bytes) -> None:
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
        folder, _, name = self.inner(path).rpartition("/")
        try:
            obstore.put(LocalStore(folder), name, data)
        except BaseError as error:
            raise OSError(f"writing {path} failed: {error}") from error

    def write_if_absent(self, path: str, data: bytes) -> None:
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
        return not path.startswith(stores.DISKS)

    def make_private_folder(self, path: str) -> None:
        private = [Path(self.inner(path))]
        while not private[-1].name.startswith("_") and any(
            parent.name.startswith("_") for parent in private[-1].parents
        ):
            private.append(private[-1].parent)
        private[-1].parent.mkdir(parents=True, exist_ok=True)
        for folder in reversed(private):
            folder.mkdir(mode=0o700, exist_ok=True)
