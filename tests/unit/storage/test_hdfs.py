"""Files on HDFS, with a client whose NameNode is a dictionary."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from binlake.storage import files, hdfs

PATH = "hdfs://names/lake/log/0.json"


class FakeClient:
    """lost: answers to a rename that are lost, behind which the real client asks again."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.lost = 0

    def create(self, path: str, options: object) -> io.BytesIO:
        stream = io.BytesIO()
        close: Callable[[], None] = stream.close

        def closed() -> None:
            self.files[path] = stream.getvalue()
            close()

        stream.close = closed  # type: ignore[method-assign]
        return stream

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        if target in self.files and not overwrite:
            raise FileExistsError(target)
        if source not in self.files:
            raise FileNotFoundError(source)
        self.files[target] = self.files.pop(source)
        if self.lost:
            self.lost -= 1
            self.rename(source, target, overwrite)

    def delete(self, path: str) -> bool:
        return self.files.pop(path, None) is not None

    def read(self, path: str) -> io.BytesIO:
        if path not in self.files:
            raise FileNotFoundError(path)
        return io.BytesIO(self.files[path])


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    made = FakeClient()
    monkeypatch.setattr(hdfs, "_client", lambda authority, process: made)
    return made


def test_the_second_writer_of_a_name_is_refused_and_leaves_nothing(client: FakeClient) -> None:
    assert files.writes_if_absent(PATH)
    files.write_if_absent(PATH, "ours")
    with pytest.raises(FileExistsError):
        files.write_if_absent(PATH, "theirs")
    assert client.files == {"/lake/log/0.json": b"ours"}


@pytest.mark.parametrize("over", [False, True])
def test_a_commit_whose_answer_got_lost_is_known_by_its_bytes(client: FakeClient, over: bool) -> None:
    client.lost = 1
    write = files.write_text if over else files.write_if_absent
    write(PATH, "ours")
    assert client.files == {"/lake/log/0.json": b"ours"}


def test_what_a_node_refuses_is_an_oserror(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise RuntimeError('RPCError("AccessControlException", "Permission denied: user=nobody\\n\\tat org.apache")')

    monkeypatch.setattr(client, "rename", hdfs._Raw(type("Raw", (), {"rename": staticmethod(refuse)})()).rename)
    with pytest.raises(OSError, match=r"Permission denied: user=nobody$"):
        files.write_if_absent(PATH, "ours")
    assert client.files == {}
