"""Object stores: S3 and Azure's Blob Storage. A folder is the beginning of the names of objects."""

from __future__ import annotations

import time
from abc import abstractmethod
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import AzureStore, ObjectStore, S3Store
from pyarrow import fs

from binlake.storage import accounts, stores
from binlake.storage.arrow_storage import ArrowStorage
from binlake.storage.object_files import FAILURES, ObjectFiles, message

_SIDE_BY_SIDE = 16
"""Objects deleted at once: a store answers slowly."""


class ObjectStorage(ArrowStorage):
    """What both kinds of object stores do alike; see protocol.Storage. Conditional writes go by obstore."""

    @property
    @abstractmethod
    def objects(self) -> ObjectStore:
        """The bucket or container, for obstore's functions."""

    def write(self, path: str, data: bytes) -> None:
        """Write by one call of obstore: a stream that is opened, and interrupted before all was written, puts what it
        has in the place of the object when it is closed."""
        try:
            obstore.put(self.objects, stores.container_and_name(path)[1], data)
        except FAILURES as error:
            raise OSError(f"writing {path} failed: {message(error)}") from error

    def replace(self, path: str, data: bytes) -> None:
        self.write(path, data)

    def write_if_absent(self, path: str, data: bytes) -> None:
        name = stores.container_and_name(path)[1]
        try:
            for _ in range(stores.CONFLICTS):
                try:
                    obstore.put(self.objects, name, data, mode="create")
                    return
                except AlreadyExistsError as error:
                    # obstore says so to HTTP 409, too: another write is under way, and may yet fail.
                    if self._has_object(name):
                        raise FileExistsError(f"{path} is there already") from error
                time.sleep(stores.CONFLICT_SECONDS)
        except FAILURES as error:
            raise OSError(f"writing {path} failed: {message(error)}") from error
        raise OSError(f"writing {path} failed: the store puts it off for another write of it, again and again")

    def writes_if_absent(self, path: str) -> bool:
        return True

    def make_folder(self, path: str) -> None:
        """Do nothing: a folder needs no making."""

    def make_private_folder(self, path: str) -> None:
        """Do nothing: a folder needs no making."""

    def delete_folder(self, path: str) -> None:
        """Delete object by object, what lies deepest first: a store that keeps folders refuses one that isn't empty."""
        everything = fs.FileSelector(self.inner(path), allow_not_found=True, recursive=True)
        objects = [entry.path for entry in self.arrow.get_file_info(everything) if entry.type == fs.FileType.File]
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="remove") as pool:
            list(pool.map(self.arrow.delete_file, objects))
        left = [entry.path for entry in self.arrow.get_file_info(everything)]
        for folder in [*sorted(left, key=len, reverse=True), self.inner(path)]:
            if self.arrow.get_file_info(folder).type == fs.FileType.Directory:
                self.arrow.delete_dir(folder)

    def has_folder(self, path: str) -> bool:
        return self._has_object(stores.container_and_name(path)[1])

    def _has_object(self, name: str) -> bool:
        try:
            obstore.head(self.objects, name)
        except FileNotFoundError:
            return False
        return True


class S3Storage(ObjectStorage):
    """A bucket. Files go by pyarrow, which knows AWS's profiles; obstore doesn't."""

    def __init__(self, bucket: str, s3: stores.S3) -> None:
        self._bucket, self._s3 = bucket, s3

    @cached_property
    def arrow(self) -> fs.FileSystem:
        # Else each file that is deleted leaves an empty object in the place of its folder.
        return fs.S3FileSystem(**self._s3.arrow_arguments(), check_directory_existence_before_creation=True)

    @cached_property
    def objects(self) -> ObjectStore:
        return S3Store(self._bucket, **self._s3.obstore_arguments())

    def inner(self, path: str) -> str:
        return "/".join(stores.container_and_name(path))

    def write(self, path: str, data: bytes) -> None:
        if self.writes_if_absent(path):
            super().write(path, data)
            return
        with self.open_new(path) as stream:
            stream.write(data)

    def writes_if_absent(self, path: str) -> bool:
        return not stores.has_profile(accounts.environment_of(path))


class AzureStorage(ObjectStorage):
    """A container. Files go by obstore: pyarrow's own file system takes neither its account nor its authorities."""

    def __init__(self, container: str, azure: stores.Azure) -> None:
        self._objects = AzureStore(container, **azure.obstore_arguments())
        self._arrow = fs.PyFileSystem(ObjectFiles(self._objects))

    @property
    def arrow(self) -> fs.FileSystem:
        return self._arrow

    @property
    def objects(self) -> ObjectStore:
        return self._objects

    def inner(self, path: str) -> str:
        return stores.container_and_name(path)[1]
