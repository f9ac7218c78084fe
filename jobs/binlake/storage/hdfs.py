"""HDFS without a JVM: hdfs-native speaks to NameNodes and DataNodes as Hadoop's own client does.

Name services and Kerberos stand in Hadoop's files below HADOOP_CONF_DIR, which Spark and deltalake read, too. Only a
whole file gets its name: NameNodes rename at one blow, and over another file where that is wished alone.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from hdfs_native import Client, FileStatus, WriteOptions
from hdfs_native.fsspec import HdfsFileSystem
from pyarrow import fs

PREFIX = "hdfs://"
_STREAMS = ("RawFileReader", "RawFileWriter")


@contextmanager
def _storage() -> Iterator[None]:
    """What a NameNode or DataNode refuses is hdfs-native's RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(str(error).partition("\\n")[0]) from error


class _Raw:
    """An object of hdfs-native's, or one that it gives: its calls raise OSError."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with _storage():
                found = getattr(self._raw, name)(*arguments)
            return _Raw(found) if type(found).__name__ in _STREAMS else found

        return call


class _Named(HdfsFileSystem):
    """Paths as they stand, of which ``#`` and ``?`` are parts, and times as pyarrow asks for them."""

    def __init__(self, authority: str) -> None:
        super().__init__(authority)
        self.client = _client(authority, os.getpid())

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        with _storage():
            return list(super().ls(path, detail, **kwargs))

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def _convert_file_status(self, file_status: FileStatus) -> dict[str, Any]:
        return {**super()._convert_file_status(file_status), "mtime": file_status.modification_time / 1000}


def locate(path: str) -> tuple[fs.FileSystem, str]:
    """pyarrow's file system, and the path there."""
    authority, inner = _split(path)
    return _file_system(authority, os.getpid()), inner


def make_folder(path: str, mode: int) -> None:
    """With those above it, that get the same mode. Raises OSError."""
    authority, inner = _split(path)
    _client(authority, os.getpid()).mkdirs(inner, mode, True)


def write_whole(path: str, data: bytes, *, over: bool) -> None:
    """A file that is there whole or not at all. Raises FileExistsError where it isn't to be written over another, and
    another is there; OSError."""
    authority, inner = _split(path)
    client = _client(authority, os.getpid())
    folder, _, name = inner.rpartition("/")
    temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.writing"
    try:
        with client.create(temporary, WriteOptions()) as stream:
            stream.write(data)
        client.rename(temporary, inner, over)
    except BaseException as error:
        with suppress(OSError):
            client.delete(temporary)
        # The client asks again where an answer got lost: then its first word may have been heard.
        asked_again = isinstance(error, FileExistsError | FileNotFoundError)
        if not (asked_again and _content(client, inner) == data):
            raise


def _content(client: Client, path: str) -> bytes | None:
    try:
        return client.read(path).read()
    except FileNotFoundError:
        return None


def _split(path: str) -> tuple[str, str]:
    authority, _, inner = path.removeprefix(PREFIX).partition("/")
    return authority, f"/{inner}"


@cache
def _client(authority: str, process: int) -> Client:
    """process: whose threads it needs; a fork has none of them."""
    made = Client(f"{PREFIX}{authority}")
    made.inner = _Raw(made.inner)  # type: ignore[assignment]
    return made


@cache
def _file_system(authority: str, process: int) -> fs.FileSystem:
    return fs.PyFileSystem(fs.FSSpecHandler(_Named(authority)))
