"""Sinks on a disk that is full: the feed's error says so, and the next run has the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake.errors import SinkFailed
from binlake.feeds.contract import Message
from binlake.feeds.formats.binlog_events import BEGIN, END
from binlake.feeds.sinks.binlog_folder import BinlogFolder
from binlake.feeds.sinks.topic_files import FileSink
from binlake.records.feed_watermarks import FeedPosition

FULL = "/dev/full"


def test_a_folder_of_files_is_closed_and_can_be_opened_again(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, "shop/out")
    for topic in ("a", "b"):
        (tmp_path / f"{topic}.log").symlink_to(FULL)
        sink.send([Message(topic, None, b"text")])
    with pytest.raises(SinkFailed, match="No space left on device"):
        sink.commit(FeedPosition(1))
    sink.close()
    FileSink(tmp_path, "shop/out").close()


def test_a_folder_of_binlog_files_as_well(tmp_path: Path) -> None:
    sink = BinlogFolder(tmp_path, "shop/out", {})
    (tmp_path / "binlog.000001").symlink_to(FULL)
    with pytest.raises(SinkFailed, match="No space left on device"):
        sink.send([Message("", None, bytes(8), ((BEGIN, b"mysql"),)), Message("", None, None, ((END, b""),))])
    sink.close()
    BinlogFolder(tmp_path, "shop/out", {}).close()
