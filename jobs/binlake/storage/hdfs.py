"""HDFS without a JVM: hdfs-native speaks to NameNodes and DataNodes as Hadoop's own client does.

Name services and Kerberos are read from Hadoop's files below HADOOP_CONF_DIR, which Spark and deltalake read, too. A
file is written under another name and renamed when it is complete: NameNodes rename atomically, and over another file
only where they are asked to.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hdfs_native import Client, FileStatus, WriteOptions
from hdfs_native.fsspec import HdfsFileSystem
from pyarrow import fs

from binlake.caches import remembered
from binlake.storage.arrow_storage import ArrowStorage

PREFIX = "hdfs://"
_STREAMS = ("RawFileReader", "RawFileWriter")


@contextmanager
def _as_os_error() -> Iterator[None]:
    """Raise hdfs-native's RuntimeError, its error for a refusal by a NameNode or DataNode, as OSError."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(str(error).partition("\\n")[0]) from error


class _Raw:
    """An object of hdfs-native, or a stream that it returns, whose calls raise OSError."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with _as_os_error():
                result = getattr(self._raw, name)(*arguments)
            return _Raw(result) if type(result).__name__ in _STREAMS else result

        return call


class _Named(HdfsFileSystem):
    """hdfs-native's file system, which leaves ``#`` and ``?`` in paths, and returns times as pyarrow wants them."""

    def __init__(self, authority: str) -> None:
        super().__init__(authority)
        self.client = _client(authority, os.getpid())

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        with _as_os_error():
            return list(super().ls(path, detail, **kwargs))

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def _convert_file_status(self, file_status: FileStatus) -> dict[str, Any]:
        return {**super()._convert_file_status(file_status), "mtime": file_status.modification_time / 1000}


class HdfsStorage(ArrowStorage):
    """A cluster, or a name service; see protocol.Storage."""

    def __init__(self, authority: str) -> None:
        self._authority = authority

    @property
    def arrow(self) -> fs.FileSystem:
        """Return the cluster's file system, of which each process has one."""
        return _file_system(self._authority, os.getpid())

    @property
    def _native(self) -> Client:
        return _client(self._authority, os.getpid())

    def inner(self, path: str) -> str:
        """Return the path in the cluster: an address without scheme and authority."""
        return f"/{path.removeprefix(PREFIX).partition('/')[2]}"

    def write(self, path: str, data: bytes) -> None:
        """Write a temporary file, and rename it over the path."""
        self._write_and_rename(self.inner(path), data, overwrite=True)

    def replace(self, path: str, data: bytes) -> None:
        """Write a temporary file, and rename it over the path, as ``write`` does."""
        self._write_and_rename(self.inner(path), data, overwrite=True)

    def write_if_absent(self, path: str, data: bytes) -> None:
        """Write a temporary file, and rename it to the path. Raises FileExistsError where a file is there."""
        self._write_and_rename(self.inner(path), data, overwrite=False)

    def writes_if_absent(self, path: str) -> bool:
        """Return True: the NameNode lets one rename alone succeed."""
        return True

    def make_private_folder(self, path: str) -> None:
        """Make a folder, and those above it from the one named ``_…`` on, with mode 0700; those further above with
        0755."""
        # A NameNode gives all folders that one call makes one mode.
        above = path
        while not above.rpartition("/")[2].startswith("_") and "/_" in above:
            above = above.rpartition("/")[0]
        self._native.mkdirs(self.inner(above.rpartition("/")[0]), 0o755, True)
        self._native.mkdirs(self.inner(path), 0o700, True)

    def _write_and_rename(self, path: str, data: bytes, *, overwrite: bool) -> None:
        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.writing"
        client = self._native
        try:
            with client.create(temporary, WriteOptions()) as stream:
                stream.write(data)
            client.rename(temporary, path, overwrite)
        except BaseException as error:
            with suppress(OSError):
                client.delete(temporary)
            # The client repeats a request whose answer got lost; the first one may have been carried out.
            repeated = isinstance(error, FileExistsError | FileNotFoundError)
            if not (repeated and _content(client, path) == data):
                raise


def _content(client: Client, path: str) -> bytes | None:
    """Return a file's bytes; None where it isn't there."""
    try:
        return client.read(path).read()
    except FileNotFoundError:
        return None


@remembered("clients of HDFS")
def _client(authority: str, process: int) -> Client:
    """Return the client of a process, whose threads it needs; a fork has none of them."""
    client = Client(f"{PREFIX}{authority}")
    client.inner = _Raw(client.inner)  # type: ignore[assignment]
    return client


@remembered("file systems of HDFS")
def _file_system(authority: str, process: int) -> fs.FileSystem:
    """Return pyarrow's file system of a process."""
    return fs.PyFileSystem(fs.FSSpecHandler(_Named(authority)))
