"""Files of the lake outside Delta: staged Parquet and manifests, on a local disk or behind a URL."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pyarrow import fs

from binlake.errors import LakeError, StagingError

_CHUNK = 4 << 20


def _locate(path: str) -> tuple[fs.FileSystem, str]:
    if "://" not in path:
        return fs.LocalFileSystem(), path
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path)
    except (OSError, ValueError) as error:
        raise LakeError(
            f"no file system for {path}: {error}", remedy="use a folder, s3://, gs://, abfss:// or hdfs://"
        ) from error
    return found


class _Hashing:
    """A sink that hashes what passes through it, so that a staged file need not be read again."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.size = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self.closed = False

    def write(self, data: Any) -> int:
        self._digest.update(data)
        self.size += len(memoryview(data).cast("B"))
        self._sink.write(data)
        return len(memoryview(data).cast("B"))

    def flush(self) -> None:
        self._sink.flush()

    def close(self) -> None:
        self.closed = True
        self._sink.close()

    def tell(self) -> int:
        return self.size

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    @property
    def checksum(self) -> str:
        return self._digest.hexdigest()


def make_folder(path: str) -> None:
    """A folder only its owner can enter: staged rows are as private as the source's.

    So are the folders made on the way, from the last one on whose name begins with ``_``: what is above are tables,
    which are their readers'.
    """
    filesystem, inner = _locate(path)
    try:
        if isinstance(filesystem, fs.LocalFileSystem):
            _make_private(Path(inner))
        else:
            filesystem.create_dir(inner, recursive=True)
    except OSError as error:
        raise LakeError(
            f"can't make the folder {path}: {error}", remedy="make the lake writable, then run again"
        ) from error


def _make_private(path: Path) -> None:
    private = [path]
    while not private[-1].name.startswith("_") and any(parent.name.startswith("_") for parent in private[-1].parents):
        private.append(private[-1].parent)
    private[-1].parent.mkdir(parents=True, exist_ok=True)
    for folder in reversed(private):
        folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def hashing_sink(path: str) -> Iterator[_Hashing]:
    """Write one file; afterwards ``size`` (bytes) and ``checksum`` (BLAKE2b, 16 bytes, hexadecimal) are known."""
    filesystem, inner = _locate(path)
    try:
        if isinstance(filesystem, fs.LocalFileSystem):
            handle: IO[bytes] = open(os.open(inner, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")  # noqa: SIM115
            sink = _Hashing(handle)
        else:
            sink = _Hashing(filesystem.open_output_stream(inner))
        try:
            yield sink
        finally:
            if not sink.closed:
                sink.close()
    except OSError as error:
        raise LakeError(
            f"can't write {path}: {error}", remedy="check space and rights of the lake, then run again"
        ) from error


def write_text(path: str, text: str) -> None:
    """Write a small file whole: it appears complete or not at all."""
    filesystem, inner = _locate(path)
    data = text.encode()
    if isinstance(filesystem, fs.LocalFileSystem):
        try:
            temporary = Path(f"{inner}.writing")
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(temporary, inner)
        except OSError as error:
            raise LakeError(
                f"can't write {path}: {error}", remedy="check space and rights of the lake, then run again"
            ) from error
        return
    with hashing_sink(path) as sink:
        sink.write(data)


def read_text(path: str) -> str:
    """Raises StagingError when the file is missing."""
    filesystem, inner = _locate(path)
    try:
        with filesystem.open_input_stream(inner) as stream:
            return bytes(stream.readall()).decode()
    except OSError as error:
        raise StagingError(f"can't read {path}: {error}", remedy="run again: the batch is staged anew") from error


def checksum(path: str) -> tuple[int, str]:
    """Size in bytes and checksum of a file; raises StagingError when it can't be read."""
    filesystem, inner = _locate(path)
    digest, size = hashlib.blake2b(digest_size=16), 0
    try:
        with filesystem.open_input_stream(inner) as stream:
            while block := stream.read(_CHUNK):
                digest.update(block)
                size += len(block)
    except OSError as error:
        raise StagingError(f"can't read {path}: {error}", remedy="run again: the batch is staged anew") from error
    return size, digest.hexdigest()


def remove_file(path: str) -> None:
    filesystem, inner = _locate(path)
    filesystem.delete_file(inner)


def subfolders(path: str) -> list[str]:
    """Names of the folders in a folder; none when it isn't there."""
    filesystem, inner = _locate(path)
    found = filesystem.get_file_info(fs.FileSelector(inner, allow_not_found=True))
    return sorted(entry.base_name for entry in found if entry.type == fs.FileType.Directory)


def remove_folder(path: str) -> None:
    """Remove a folder with what is in it; nothing happens when it isn't there."""
    filesystem, inner = _locate(path)
    if filesystem.get_file_info(inner).type != fs.FileType.NotFound:
        filesystem.delete_dir(inner)
