"""Object stores: S3 and Azure's Blob Storage. A folder is the beginning of the names of objects."""

from __future__ import annotations

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
    """The methods that both kinds of object stores have in common; see protocol.Storage. Conditional writes go by
    obstore."""

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
        """Write an object, which appears complete; a store has no permissions of single objects."""
        self.write(path, data)

    def write_if_absent(self, path: str, data: bytes) -> None:
        """Create an object by a conditional request. Raises FileExistsError where it is there."""
        name = stores.container_and_name(path)[1]

        def create() -> None:
            try:
                obstore.put(self.objects, name, data, mode="create")
            except AlreadyExistsError as error:
                # obstore says so to HTTP 409, too: another write is under way, and may yet fail.
                if self._has_object(name):
                    raise FileExistsError(f"{path} is there already") from error
                raise

        try:
            stores.CONFLICTS.call(create, AlreadyExistsError)
        except AlreadyExistsError as error:
            late = "the store puts it off for another write of it, again and again"
            raise OSError(f"writing {path} failed: {late}") from error
        except FAILURES as error:
            raise OSError(f"writing {path} failed: {message(error)}") from error

    def writes_if_absent(self, path: str) -> bool:
        """Return True: the store decides about conditional requests."""
        return True

    def make_folder(self, path: str) -> None:
        """Do nothing: a folder needs no making."""

    def make_private_folder(self, path: str) -> None:
        """Do nothing: a folder needs no making."""

    def delete_folder(self, path: str) -> None:
        """Delete object by object, the deepest first: a store that keeps folders refuses one that isn't empty."""
        everything = fs.FileSelector(self.inner(path), allow_not_found=True, recursive=True)
        objects = [entry.path for entry in self.arrow.get_file_info(everything) if entry.type == fs.FileType.File]
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="remove") as pool:
            list(pool.map(self.arrow.delete_file, objects))
        left = [entry.path for entry in self.arrow.get_file_info(everything)]
        for folder in [*sorted(left, key=len, reverse=True), self.inner(path)]:
            if self.arrow.get_file_info(folder).type == fs.FileType.Directory:
                self.arrow.delete_dir(folder)

    def has_folder(self, path: str) -> bool:
        """Return whether an empty object represents the folder, as Hadoop makes them."""
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
        """Return pyarrow's file system of S3 for this account, which looks for a folder before it makes one."""
        # Else each file that is deleted leaves an empty object in the place of its folder.
        return fs.S3FileSystem(**self._s3.arrow_arguments(), check_directory_existence_before_creation=True)

    @cached_property
    def objects(self) -> ObjectStore:
        """Return obstore's store of the bucket, for conditional writes."""
        return S3Store(self._bucket, **self._s3.obstore_arguments())

    def inner(self, path: str) -> str:
        """Return ``bucket/name``, as pyarrow takes it."""
        return "/".join(stores.container_and_name(path))

    def write(self, path: str, data: bytes) -> None:
        """Write an object; by pyarrow with an AWS profile, which obstore can't use."""
        if self.writes_if_absent(path):
            super().write(path, data)
            return
        with self.open_new(path) as stream:
            stream.write(data)

    def writes_if_absent(self, path: str) -> bool:
        """Return False with an AWS profile, for which obstore has no account."""
        return not stores.has_profile(accounts.environment_of(path))


class AzureStorage(ObjectStorage):
    """A container. Files go by obstore: pyarrow's own file system takes neither its account nor its authorities."""

    def __init__(self, container: str, azure: stores.Azure) -> None:
        self._objects = AzureStore(container, **azure.obstore_arguments())
        self._arrow = fs.PyFileSystem(ObjectFiles(self._objects))

    @property
    def arrow(self) -> fs.FileSystem:
        """Return the container's file system."""
        return self._arrow

    @property
    def objects(self) -> ObjectStore:
        """Return obstore's store of the container."""
        return self._objects

    def inner(self, path: str) -> str:
        """Return an object's name in the container."""
        return stores.container_and_name(path)[1]
