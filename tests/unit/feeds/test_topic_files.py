"""Files of topics over several runs: in order, and cut off where the last commit ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from binlake.feeds.contract import Message
from binlake.feeds.sinks.topic_files import FileSink
from binlake.records.feed_watermarks import FeedPosition


def run(folder: Path, *values: str, commits: bool = True, **settings: float) -> None:
    """Send messages one by one in a run of its own. commits: else it is killed before."""
    sink = FileSink(folder, "shop/out", settings)
    sink.begin()
    for value in values:
        sink.send([Message("t", None, value.encode())])
    if commits:
        sink.commit(FeedPosition(1))
    sink.close()


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("*.log"))}


def test_a_later_run_goes_on_in_the_newest_file_though_an_older_one_has_room(tmp_path: Path) -> None:
    run(tmp_path, "first", "second is long", file_mb=0.00002)
    run(tmp_path, "3rd", "4th", file_mb=0.00002)
    assert texts(tmp_path) == {"t.log": "first\n", "t.1.log": "second is long\n3rd\n", "t.2.log": "4th\n"}


def test_a_killed_run_is_cut_off_in_a_file_that_was_taken_away_before(tmp_path: Path) -> None:
    run(tmp_path, "first", "second")
    (tmp_path / "t.log").unlink()
    run(tmp_path, "third", commits=False)
    run(tmp_path, "third", "fourth")
    assert texts(tmp_path) == {"t.log": "third\nfourth\n"}
    (tmp_path / "t.log").write_text("")
    run(tmp_path, "fifth", commits=False)
    run(tmp_path, "fifth")
    assert texts(tmp_path) == {"t.log": "fifth\n"}


def test_a_topic_whose_name_ends_like_a_part_has_files_of_its_own(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, "shop/out", {"file_mb": 0.000001})
    for topic in ("t", "t", "t.1", "t.1"):
        sink.send([Message(topic, None, f"of {topic}".encode())])
    sink.commit(FeedPosition(1))
    sink.close()
    assert texts(tmp_path) == {
        "t.log": "of t\n", "t.1.log": "of t\n", "t~2E1.log": "of t.1\n", "t~2E1.1.log": "of t.1\n"
    }  # fmt: skip


def modes(folder: Path) -> dict[str, str]:
    return {path.name: oct(path.stat().st_mode & 0o777) for path in (folder, *folder.iterdir())}


@pytest.mark.parametrize("umask", [0, 0o022])
def test_files_are_their_owner_s_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        run(tmp_path / "out" / "shop", "a")
    finally:
        os.umask(before)
    assert modes(tmp_path / "out" / "shop") == {
        "shop": "0o700", "t.log": "0o600", "_lock": "0o600", "_position.json": "0o600",
    }  # fmt: skip


def test_a_group_that_may_read_the_folder_may_read_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    folder.chmod(0o755)
    run(folder, "a")
    assert modes(folder)["t.log"] == "0o640"
