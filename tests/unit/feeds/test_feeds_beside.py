"""Feeds that are carried as batches come: what fails is tried again, others continue, and each ends when it is asked
to."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from binlake.cli import command_line, feed_commands
from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, FeedError, FeedFollowed, LeaseHeld, SinkFailed
from binlake.feeds import feeds_beside
from binlake.feeds.carry import FeedRun, Parts
from binlake.feeds.feeds_beside import FeedsBeside, FeedsFollowed, FeedsOfSource
from binlake.interrupts import Ending
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.position import Position
from binlake.records import feed_watermarks
from binlake.records.feed_watermarks import FeedLimits, FeedPosition
from binlake.report import Report
from binlake.store.metadata import metadata_of

SECONDS = 30


def until(is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@dataclass
class Carried:
    """Feeds in the place of real ones. answers: errors that a feed raises first, by its name. heartbeats: for which
    calls a heartbeat was asked for."""

    answers: dict[str, list[Exception]] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    runs: dict[str, int] = field(default_factory=dict)
    heartbeats: list[bool] = field(default_factory=list)

    def has_run(self, wanted: Mapping[str, int]) -> bool:
        """Return whether each feed was carried at least so often."""
        return all(self.runs.get(name, 0) >= times for name, times in wanted.items())

    @contextmanager
    def open(self, config: PipelineConfig, feed: Any, parts: Parts, **_: Any) -> Iterator[Any]:
        self.opened.append(feed.name)
        try:
            yield _Opened(self, feed.name)
        finally:
            self.closed.append(feed.name)


@dataclass
class _Opened:
    of: Carried
    name: str

    def carry(self, *, heartbeat: bool) -> FeedRun:
        if answers := self.of.answers.get(self.name):
            raise answers.pop(0)
        self.of.heartbeats.append(heartbeat)
        number = self.of.runs[self.name] = self.of.runs.get(self.name, 0) + 1
        return FeedRun(self.name, "s", number, 1, 2, 3, 0.1, "carried")


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> Carried:
    made = Carried()
    monkeypatch.setattr(feeds_beside, "opened", made.open)
    monkeypatch.setattr(feeds_beside, "_WAIT", 0.01)
    monkeypatch.setattr(feeds_beside, "_HELD_WAIT", 0.01)
    monkeypatch.setattr(feeds_beside, "_ENDING", SECONDS)
    return made


def config_of(folder: Path, **enabled: bool) -> PipelineConfig:
    feeds = [
        {"name": name, "enabled": is_enabled, "format": "text", "sink": f"file://{folder}/{name}"}
        for name, is_enabled in enabled.items()
    ]
    return PipelineConfig.model_validate(
        {
            "source": {"name": "s", "connection": folder.as_uri()},
            "tables": {"include": ["d.*"]},
            "lake": {"path": str(folder / "lake")},
            "feeds": feeds,
        }
    )


@contextmanager
def beside(said: io.StringIO) -> Iterator[FeedsBeside]:
    feeds = FeedsBeside(Report(said), cast("Parts", None))
    try:
        yield feeds
    finally:
        feeds.end()


def carry(feeds: FeedsBeside, config: PipelineConfig, batch: int) -> None:
    feeds.carry([(config, feed) for feed in config.feeds], {"s": batch})


def test_each_feed_is_carried_whenever_another_batch_is_recorded(carried: Carried, tmp_path: Path) -> None:
    config = config_of(tmp_path, a=True, b=True, off=False)
    with beside(io.StringIO()) as feeds:
        for batch in (1, 2, 3):
            wanted = {name: carried.runs.get(name, 0) + 1 for name in "ab"}
            carry(feeds, config, batch)
            until(partial(carried.has_run, wanted))
        assert sorted(carried.opened) == ["a", "b"]
    assert sorted(carried.closed) == ["a", "b"]
    assert not any(carried.heartbeats)
    assert feeds.followed.batches == {("s", name): carried.runs[name] for name in "ab"}
    assert feeds.followed.line(("s", "a")).startswith(f"feed a of s: {2 * carried.runs['a']} mutations as ")


def test_what_fails_is_said_once_and_tried_again_while_the_others_go_on(carried: Carried, tmp_path: Path) -> None:
    said = io.StringIO()
    carried.answers = {
        "a": [*(SinkFailed("the broker is away", remedy="start it") for _ in range(5)), ZeroDivisionError("a bug")],
        "b": [FeedFollowed("somebody carries feed b", remedy="wait") for _ in range(3)],
    }
    with beside(said) as feeds:
        carry(feeds, config_of(tmp_path, a=True, b=True, c=True), 1)
        until(lambda: carried.runs.keys() == {"a", "b", "c"})
        until(lambda: said.getvalue().count("continuing") == 2)
    assert said.getvalue().count("the broker is away") == 1
    assert "of up to 60 s" in said.getvalue()
    assert "ZeroDivisionError: a bug" in said.getvalue()
    assert said.getvalue().count("feed b: somebody carries feed b\n") == 1
    assert carried.opened.count("c") == 1


def test_waits_grow_and_an_end_interrupts_them(
    carried: Carried, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_beside, "_WAIT", 3600.0)
    monkeypatch.setattr(feeds_beside, "_MOST_UNHELPED", 3600.0)
    carried.answers = {"a": [FeedError("no place", remedy="begin again")]}
    said, config = io.StringIO(), config_of(tmp_path, a=True)
    with beside(said) as feeds:
        carry(feeds, config, 1)
        until(lambda: "no place" in said.getvalue())
        carry(feeds, config, 2)  # another batch is no reason to try again
        began = time.monotonic()
    assert time.monotonic() - began < SECONDS
    assert carried.runs == {}
    assert "of up to 3600 s" in said.getvalue()


def test_settings_that_change_are_followed(carried: Carried, tmp_path: Path) -> None:
    configs = [config_of(tmp_path, a=True), config_of(tmp_path, a=True, b=True), config_of(tmp_path, a=False, b=True)]
    config = configs[0]
    with beside(io.StringIO()) as feeds:
        of_source = FeedsOfSource(lambda: config, feeds)
        of_source.begin(config, 1)
        until(lambda: carried.runs.keys() == {"a"})
        config = configs[1]

        def has_begun(name: str, times: int) -> bool:
            of_source.begin(configs[0], 1)
            return carried.opened.count(name) == times

        until(lambda: has_begun("b", 1))
        config = configs[2]

        def has_ended() -> bool:
            of_source.begin(configs[0], 1)
            return carried.closed.count("a") == carried.opened.count("a")

        until(has_ended)
        until(lambda: carried.opened.count("b") > carried.closed.count("b"))
        assert "b" in carried.runs


def test_a_feed_that_a_process_follows_is_told_from_one_that_a_run_carries(tmp_path: Path) -> None:
    metadata, limits = metadata_of(config_of(tmp_path, a=True)), FeedLimits(1, 1)

    def refused() -> BinlakeError:
        with pytest.raises(LeaseHeld) as error, feed_watermarks.held(metadata, "a", limits):
            pass
        return error.value

    with feed_watermarks.held(metadata, "a", limits, follows=True):
        assert isinstance(refused(), FeedFollowed)
        assert "as batches come" in refused().message
    with feed_watermarks.held(metadata, "a", limits):
        assert not isinstance(refused(), FeedFollowed)


def test_a_feed_that_is_not_enabled_is_free_to_begin_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As its follower leaves it once it reads enabled: false."""
    config = config_of(tmp_path, a=False, b=False)
    file = tmp_path / "shop.yaml"
    file.write_text(json.dumps(config.model_dump()))
    metadata = metadata_of(config)
    with lease.held(metadata) as held:
        held.stand(RecordedState(7, Position("mysql-1-a", "b.000001", 4, 1)))
    for name, batch in (("a", 3), ("b", 3)):
        with feed_watermarks.held(metadata, name, FeedLimits(1, 1)) as feed:
            feed.advance(FeedPosition(batch), 0)
    assert command_line.run(["feed", "--config", str(file), "--feed", "a", "--anew", "now"]) == 0  # the former name
    assert capsys.readouterr().out == "feed a: 0 mutations as 0 messages, up to batch 7\n"
    assert command_line.run(["feed", "--config", str(file), "--restart-from", "now"]) == 0
    assert capsys.readouterr().err.count("stays where it is on s: enabled: false") == 2
    standing = {status.name: status.batch for status in feed_watermarks.statuses(config, metadata)}
    assert standing == {"a": 7, "b": 3}


def test_who_follows_one_of_a_files_feeds_has_staging_kept_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path)
    (tmp_path / "shop.yaml").write_text(json.dumps(config.model_dump()))
    made = {"format": "text", "sink": f"file://{tmp_path}/out", "sources": ["shop.yaml"]}
    file = tmp_path / "feeds.yaml"
    file.write_text(json.dumps({"feeds": [{"name": name, **made} for name in "ab"]}))
    monkeypatch.setattr(feed_commands, "follow_feeds", lambda *given: FeedsFollowed())
    monkeypatch.setattr(Ending, "listen", lambda ending: None)
    assert command_line.run(["feed", "--config", str(file), "--feed", "a", "--follow"]) == 0
    assert {row["feed"] for row in metadata_of(config).read("feeds")} == {"a", "b"}
