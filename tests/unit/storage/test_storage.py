"""What every kind of storage does alike: the protocol's methods on a disk, and on an object store in memory."""

from __future__ import annotations

import os
from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore, ObjectStore
from pyarrow import fs

from binlake.errors import LakeError
from binlake.storage import files, kinds, object_files, stores
from binlake.storage.disks import Disks
from binlake.storage.object_files import ObjectFiles
from binlake.storage.object_storage import ObjectStorage
from binlake.storage.protocol import Listing, Storage


class MemoryObjects(ObjectStorage):
    """A container whose objects are kept in memory; see AzureStorage."""

    def __init__(self) -> None:
        self._objects = MemoryStore()

    @property
    def arrow(self) -> fs.FileSystem:
        return fs.PyFileSystem(ObjectFiles(self._objects))

    @property
    def objects(self) -> ObjectStore:
        return self._objects

    def inner(self, path: str) -> str:
        return stores.container_and_name(path)[1]


@pytest.fixture(params=["disk", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage, str]:
    """A storage, and a folder in it."""
    if request.param == "disk":
        return Disks(), f"{tmp_path}/folder"
    return MemoryObjects(), "abfss://c@account.dfs.core.windows.net/folder"


def test_a_file_is_written_read_listed_and_deleted(place: tuple[Storage, str]) -> None:
    storage, folder = place
    storage.make_folder(folder)
    storage.make_folder(f"{folder}/deep")
    storage.write(f"{folder}/text é", b"first")
    storage.write(f"{folder}/text é", b"second")
    with storage.open_new(f"{folder}/deep/large") as stream:
        stream.write(bytes(5 << 20) + b"the end")
    with storage.open(f"{folder}/deep/large") as source:
        assert source.read_at(7, 5 << 20) == b"the end"
    with storage.open_new_private(f"{folder}/private") as sink:
        sink.write(b"rows")
    with storage.open(f"{folder}/text é") as source:
        assert source.readall() == b"second"
    file = storage.stat(f"{folder}/private")
    assert file is not None
    assert (file.bytes, file.modified > 0) == (4, True)
    listed = storage.list(folder)
    assert (sorted(file.name for file in listed.files), listed.folders) == (["private", "text é"], ["deep"])
    storage.delete(f"{folder}/private")
    assert not storage.exists(f"{folder}/private")
    storage.delete_folder(folder)
    assert not storage.exists(folder)


def test_what_isn_t_there_is_said_so(place: tuple[Storage, str]) -> None:
    storage, folder = place
    assert storage.stat(f"{folder}/none") is None
    assert not storage.exists(f"{folder}/none")
    assert storage.list(folder) == Listing([], [])
    storage.delete_folder(folder)
    with pytest.raises(FileNotFoundError):
        storage.open(f"{folder}/none")


def test_of_two_writers_of_a_name_the_first_alone_succeeds(place: tuple[Storage, str]) -> None:
    storage, folder = place
    storage.make_folder(folder)
    assert storage.writes_if_absent(folder)
    storage.write_if_absent(f"{folder}/0.json", b"ours")
    with pytest.raises(FileExistsError):
        storage.write_if_absent(f"{folder}/0.json", b"theirs")
    with storage.open(f"{folder}/0.json") as source:
        assert source.readall() == b"ours"


def test_a_link_on_nfs_whose_answer_is_lost_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks again, and is told that the name is there."""
    link = os.link

    def linked_twice(old: str, new: str) -> None:
        link(old, new)
        link(old, new)

    monkeypatch.setattr(os, "link", linked_twice)
    Disks().write_if_absent(f"{tmp_path}/0.json", b"ours")
    with pytest.raises(FileExistsError):
        Disks().write_if_absent(f"{tmp_path}/0.json", b"theirs")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"0.json": b"ours"}


def test_a_file_that_another_upkeep_removes_is_removed(place: tuple[Storage, str]) -> None:
    storage, folder = place
    storage.make_folder(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "storage_of", lambda path: storage)
        files.write_text(f"{folder}/old", "rows")
        files.remove_file(f"{folder}/old")
        files.remove_file(f"{folder}/old")
    assert storage.list(folder).files == []


def test_a_disk_s_private_folders_begin_at_the_last_name_with_an_underscore(tmp_path: Path) -> None:
    Disks().make_private_folder(f"{tmp_path}/source/_staging/1/attempt")
    modes = {
        path: oct((tmp_path / path).stat().st_mode & 0o777)
        for path in ("source/_staging", "source/_staging/1", "source/_staging/1/attempt")
    }
    assert set(modes.values()) == {"0o700"}
    assert (tmp_path / "source").stat().st_mode & 0o777 == 0o777 & ~_umask()


def test_a_disk_keeps_what_was_there_when_a_write_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{tmp_path}/state"
    Disks().write(path, b"before")
    monkeypatch.setattr(os, "fsync", _refuse)
    with pytest.raises(OSError, match="no space"):
        Disks().write(path, b"after")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"state": b"before"}


def test_an_object_store_keeps_what_was_there_when_a_write_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, path = MemoryObjects(), "abfss://c@account.dfs.core.windows.net/state"
    storage.replace(path, b"before")
    for interrupted, name in ((obstore, "put"), (object_files._Writer, "write")):
        monkeypatch.setattr(interrupted, name, _interrupt)
    with pytest.raises(KeyboardInterrupt):
        storage.replace(path, b"after")
    with storage.open(path) as source:
        assert source.readall() == b"before"


def _interrupt(*arguments: object) -> None:
    raise KeyboardInterrupt


def _refuse(handle: int) -> None:
    raise OSError("no space left on device")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_path_without_a_scheme_and_a_file_address_lie_on_a_disk() -> None:
    for path in ("/folder/x", "file:///folder/x"):
        storage = kinds.storage_of(path)
        assert isinstance(storage, Disks)
        assert storage.inner(path) == "/folder/x"


def test_a_scheme_that_isn_t_known_is_refused() -> None:
    with pytest.raises(LakeError, match="no storage is known"):
        kinds.storage_of("gs://bucket/x")
