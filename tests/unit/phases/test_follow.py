"""The loop of a follower: when it carries, when it waits, what it says, and how it ends."""

from __future__ import annotations

import gc
import io
import shutil
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from binlake.config import FollowConfig, PipelineConfig
from binlake.errors import BinlakeError, LakeError, LeaseHeld, NoSnapshotYet
from binlake.interrupts import Ending
from binlake.lease import followers, holder, lease
from binlake.lease.lease import Lease
from binlake.phases import follow
from binlake.phases.follow import Followed, Following, FollowPace
from binlake.position import FIRST_OFFSET, Position
from binlake.records.record import RunReport, nothing_new
from binlake.report import Report
from binlake.source.endpoint import Endpoint
from binlake.source.folder import Folder
from binlake.source.folder_log import FolderLog
from binlake.source.log import Log, Origin
from binlake.store.metadata import metadata_of, now_us
from no_session import NoSession

LOG = Path(__file__).parents[2] / "binlogs" / "mysql-plain.000001"
BRISK = FollowPace(every=0.02, spark_idle=60, duration=60)


class Rig:
    """A follower of a folder with one file of a log. answers: what its batches give; without one they carry all."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.log.mkdir()
        shutil.copy(LOG, self.log)
        self.config = PipelineConfig.model_validate(
            {
                "source": {"name": "s", "connection": self.log.as_uri()},
                "tables": {"include": ["d.*"]},
                "lake": {"path": str(folder / "lake")},
            }
        )
        self.ending = Ending()
        self.said = io.StringIO()
        self.answers: list[BinlakeError | Callable[[], None]] = []
        self.batches = 0

    def carry(self, held: Lease, config: PipelineConfig, log: Origin | Log, between: Callable[[], None]) -> RunReport:
        folder = FolderLog(Folder(self.log))
        file, offset, _ = folder.head()  # before the batch counts: what makes the log grow waits for the count
        position = str(Position(folder.server_identity, file, offset, 0))
        self.batches += 1
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, BinlakeError):
                raise answer
            answer()
        between()
        return RunReport(self.batches, position, "", 3, 0, (), (("plan", 0.1),))

    def grow(self, file: str = "mysql-plain.000002") -> None:
        """Let the log get another file, whole from its first moment on."""
        whole = self.log.parent / f"copied-{file}"
        shutil.copy(LOG, whole)
        whole.rename(self.log / file)

    def follow(
        self,
        pace: FollowPace = BRISK,
        settings: Callable[[], PipelineConfig] | None = None,
        origin: Origin | None = None,
        session: NoSession | None = None,
    ) -> Followed:
        """origin: without one the folder."""
        report, log = Report(self.said), origin or Folder(self.log)
        return Following(
            settings or (lambda: self.config), log, session or NoSession(), report, pace, self.ending, self.carry
        ).run()

    def once(self, is_so: Callable[[], bool], do: Callable[[], object]) -> threading.Thread:
        """Do something once something is so, or after half a minute."""

        def watch() -> None:
            deadline = time.monotonic() + 30
            while not is_so() and time.monotonic() < deadline:
                time.sleep(0.01)
            do()

        thread = threading.Thread(target=watch)
        thread.start()
        return thread

    def end_once(self, is_so: Callable[[], bool]) -> threading.Thread:
        return self.once(is_so, self.ending.ask)

    def grow_once(self, is_so: Callable[[], bool]) -> threading.Thread:
        """Let the log get another file once something is so."""
        return self.once(is_so, self.grow)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(follow, "_WAIT", 0.01)
    monkeypatch.setattr(follow, "_STANDS_BY", 0.05)
    return Rig(tmp_path)


def test_a_batch_is_carried_when_the_log_has_grown_and_at_no_other_time(rig: Rig) -> None:
    quiet = time.monotonic() + 1
    growing = rig.grow_once(lambda: rig.batches == 1 and time.monotonic() > quiet)
    watching = rig.end_once(lambda: rig.batches == 2)
    followed = rig.follow()
    growing.join()
    watching.join()
    assert (followed.batches, followed.mutations, rig.batches) == (2, 6, 2)
    assert followed.headline.startswith("2 batches, 6 mutations, up to mysql-plain.000002:")


def test_it_ends_after_its_time(rig: Rig) -> None:
    began = time.monotonic()
    rig.follow(FollowPace(0.02, 60, 0.3))
    assert 0.3 <= time.monotonic() - began < 5
    assert stops(rig) == [], "another follows at once"


def test_nothing_new_is_no_batch(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = nothing_new(1, str(Position("mysql-1-files", "x.000001", 4, 0)), "nothing new")
    monkeypatch.setattr(rig, "carry", lambda *_: empty)
    assert rig.follow(FollowPace(0.02, 60, 0.2)).headline == "no batch"


def test_a_batch_that_ends_before_the_log_does_says_no_more_than_it_has(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, carried = now_us(), list[int]()
    monkeypatch.setattr(followers.Follower, "carried", lambda _, us, batch: carried.append(us))
    at_start = str(Position(FolderLog(Folder(rig.log)).server_identity, LOG.name, FIRST_OFFSET, 0))
    runs = [RunReport(1, at_start, "", 3, 0, (), (("plan", 0.1),))]
    whole = rig.carry
    monkeypatch.setattr(rig, "carry", lambda *given: runs.pop() if runs else whole(*given))
    watching = rig.end_once(lambda: len(carried) > 1)
    rig.follow()
    watching.join()
    assert carried[0] == 0
    assert carried[1] >= began


@dataclass
class ServersLog:
    """A log whose server gets no changes."""

    server_identity: str
    is_closed: bool = False

    def head(self) -> tuple[str, int, str]:
        return LOG.name, 1000, ""

    def close(self) -> None:
        self.is_closed = True


def test_another_server_behind_the_same_name_is_seen_though_the_one_before_it_still_runs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, behind = ServersLog("mysql-1"), ServersLog("mysql-2")
    served = [before]
    monkeypatch.setattr(follow, "_LOG_KEPT", 0.3)
    monkeypatch.setattr(follow, "open_to_follow", lambda origin: served[-1])
    monkeypatch.setattr(follow, "note_seen", lambda metadata, log: None)

    def carry(held: Lease, config: PipelineConfig, log: Origin | Log, between: Callable[[], None]) -> RunReport:
        position = str(Position(served[-1].server_identity, LOG.name, 1000, 0))  # before the batch counts
        rig.batches += 1
        return RunReport(rig.batches, position, "", 3, 0, (), ())

    monkeypatch.setattr(rig, "carry", carry)
    switching = rig.once(lambda: rig.batches == 1, lambda: served.append(behind))
    watching = rig.end_once(lambda: rig.batches == 2)
    rig.follow(origin=Endpoint("shop.example", 3306, "binlake", ""))
    switching.join()
    watching.join()
    assert rig.batches == 2
    assert before.is_closed


def test_what_fails_is_said_once_and_tried_after_growing_waits(rig: Rig) -> None:
    rig.answers = [lambda: None, *[LakeError("the disk is full", remedy="make room") for _ in range(4)]]
    growing = rig.grow_once(lambda: rig.batches == 1)
    watching = rig.end_once(lambda: "continuing" in rig.said.getvalue())
    assert rig.follow().batches == 2
    growing.join()
    watching.join()
    said = rig.said.getvalue()
    assert said.count("the disk is full") == 1
    assert "make room" in said
    assert rig.batches == 6


class Rows:
    """Rows that a batch holds."""


def test_what_a_batch_that_failed_held_is_freed_before_the_next(rig: Rig) -> None:
    held: list[weakref.ref[Rows]] = []

    def fails() -> None:
        rows = Rows()
        held.append(weakref.ref(rows))
        try:
            raise OSError("the disk is full")
        except OSError as error:
            failed = LakeError("the disk is full", remedy="make room")  # this frame holds the error that holds it
            raise failed from error

    def fails_by_itself() -> None:
        error = LakeError("the disk is full", remedy="make room")
        raise error from error

    freed: list[bool] = []
    rig.answers = [lambda: None, fails_by_itself, fails, lambda: freed.append(held[0]() is None)]
    growing = rig.grow_once(lambda: rig.batches == 1)
    watching = rig.end_once(lambda: "continuing" in rig.said.getvalue())
    gc.disable()
    try:
        rig.follow()
    finally:
        gc.enable()
    growing.join()
    watching.join()
    assert freed == [True]


def test_what_no_retry_can_help_ends_a_follower_that_has_carried_nothing(rig: Rig) -> None:
    rig.answers = [NoSnapshotYet()]
    with pytest.raises(NoSnapshotYet):
        rig.follow()
    assert followers.read_status(metadata_of(rig.config)) is None


def test_it_ends_between_two_steps(rig: Rig) -> None:
    rig.answers = [rig.ending.ask]
    assert rig.follow().batches == 0
    assert lease.read(metadata_of(rig.config)).token is None


def stops(rig: Rig) -> list[tuple[Any, ...]]:
    """How followers ended before their time, the oldest first."""
    rows = sorted(metadata_of(rig.config).read("follower_stops"), key=lambda row: row["at_us"])
    return [(row["how"], row["message"]) for row in rows]


@pytest.mark.parametrize(("is_pause", "how"), [(False, "ended"), (True, "paused")])
def test_that_it_was_asked_to_end_or_paused_is_kept_with_its_time(rig: Rig, *, is_pause: bool, how: str) -> None:
    began = now_us()
    rig.answers = [lambda: rig.ending.ask(is_pause=is_pause)]
    rig.follow()
    assert stops(rig) == [(how, "")]
    (row,) = metadata_of(rig.config).read("follower_stops")
    assert row["holder"] == holder.this_process()
    assert began <= row["since_us"] <= row["at_us"] <= now_us()


def test_an_error_that_isnt_binlakes_ends_it(rig: Rig) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    rig.answers = [fail]
    with pytest.raises(ZeroDivisionError):
        rig.follow()
    assert stops(rig) == [("failed", "unexpected ZeroDivisionError")]


def test_whoever_holds_the_lease_is_waited_for(rig: Rig) -> None:
    metadata = metadata_of(rig.config)
    holding = lease.held(metadata)
    holding.__enter__()
    waits = "works on this source since"
    giving_back = rig.once(lambda: waits in rig.said.getvalue(), lambda: holding.__exit__(None, None, None))
    watching = rig.end_once(lambda: rig.batches == 1)
    assert rig.follow().batches == 1
    watching.join()
    giving_back.join()
    assert waits in rig.said.getvalue()
    assert rig.said.getvalue().endswith("continuing\n")


def test_others_get_the_lease_between_two_batches(rig: Rig) -> None:
    """Though the log grows all the time."""
    over = threading.Event()

    def grow() -> None:
        number = 2
        while not over.wait(0.01):
            rig.grow(f"mysql-plain.{number:06}")
            number += 1

    growing = threading.Thread(target=grow)
    growing.start()
    following = threading.Thread(target=rig.follow)
    following.start()
    try:
        for _ in range(3):
            before, began = rig.batches, time.monotonic()
            while rig.batches == before and time.monotonic() - began < 30:
                time.sleep(0.01)
            with lease.held(metadata_of(rig.config)):
                assert time.monotonic() - began < 10
    finally:
        rig.ending.ask()
        following.join()
        over.set()
        growing.join()


def test_of_two_one_works_and_the_other_takes_over(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    second = Rig(tmp_path / "second")
    second.config, second.log = rig.config, rig.log
    first_at_work = threading.Thread(target=rig.follow)
    first_at_work.start()
    while not rig.batches:
        time.sleep(0.01)
    handing_over = rig.end_once(lambda: "this process waits to take over" in second.said.getvalue())
    watching = second.end_once(lambda: second.batches > 0)
    second.follow()
    for thread in (first_at_work, handing_over, watching):
        thread.join()
    assert (rig.batches, second.batches) == (1, 1)


ELSEWHERE = "elsewhere boot b namespace 1 pid 1 started 1"


def test_a_silent_one_elsewhere_is_taken_over_with_the_lease_that_it_holds(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "SILENCE", 1.0)
    metadata = metadata_of(rig.config)
    followers.prepare(metadata)
    with lease.held(metadata):
        pass
    taken: dict[str, Any] = {"holder": ELSEWHERE, "expires_us": 1 << 60}
    assert metadata.swap("followers", "true", {**taken, "token": "turn-1", "at_us": 1, "since_us": 1, "every_ms": 1})
    assert metadata.swap("lease", "true", {**taken, "token": "turn-2", "since_us": 1})
    watching = rig.end_once(lambda: rig.batches == 1)
    began = time.monotonic()
    assert rig.follow().batches == 1
    watching.join()
    assert 1 <= time.monotonic() - began < 60, "long before the lease that it held runs out"
    assert stops(rig) == [("silent", ""), ("ended", "")]
    assert min(row["at_us"] for row in metadata.read("follower_stops")) == 1, "its last sign of life"


def test_a_lake_that_is_away_ends_no_standby(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, errors = followers.Follower.begin, [LakeError("the store is away", remedy="wait") for _ in range(3)]

    def begins(follower: followers.Follower, watch: holder.Watch) -> None:
        if errors:
            raise errors.pop()
        begin(follower, watch)

    monkeypatch.setattr(followers.Follower, "begin", begins)
    watching = rig.end_once(lambda: rig.batches == 1)
    assert rig.follow().batches == 1
    watching.join()
    assert rig.said.getvalue().count("the store is away") == 1


@dataclass
class Resting(NoSession):
    """A session that rests; ended: when it ended, by the seconds after which it was to."""

    since: float | None = None
    ended: float | None = None

    def rest(self, seconds: float) -> None:
        now = time.monotonic()
        self.since = self.since or now
        if self.ended is None and now - self.since >= seconds:
            self.ended = now


@pytest.mark.parametrize("state", ["nothing new", "the server is away", "another works", "it stands by"])
def test_spark_ends_in_time_whatever_is_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    for wait in ("_WAIT", "_STANDS_BY", "_GAP"):
        monkeypatch.setattr(follow, wait, 20.0)
    session, metadata = Resting(), metadata_of(rig.config)
    if state == "the server is away":
        rig.answers = [LakeError("away", remedy="wait")]
    if state == "another works":
        monkeypatch.setattr(rig, "carry", refuse)
    if state == "it stands by":
        followers.prepare(metadata)
        taken: dict[str, Any] = {"holder": ELSEWHERE, "token": "turn-1", "expires_us": now_us() + 60_000_000}
        assert metadata.swap("followers", "true", {**taken, "at_us": 1, "since_us": 1, "every_ms": 1})
    watching = rig.end_once(lambda: session.ended is not None)
    began = time.monotonic()
    rig.follow(FollowPace(every=20, spark_idle=0.3, duration=15), session=session)
    watching.join()
    assert session.ended is not None
    assert session.ended - began < 10


def refuse(*_: object) -> RunReport:
    raise LeaseHeld("another works", remedy="wait")


def test_one_whose_row_was_taken_stands_by(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "SILENCE", 0.6)
    metadata = metadata_of(rig.config)

    def take_away() -> None:
        another: dict[str, Any] = {"holder": ELSEWHERE, "token": "another", "expires_us": 1 << 60}
        while not metadata.swap("followers", "true", another):
            pass  # the sign of life of the process that follows was quicker

    rig.answers = [take_away]
    watching = rig.end_once(lambda: "this process waits to take over" in rig.said.getvalue())
    assert rig.follow().batches == 1
    watching.join()
    assert metadata.read("followers")[0]["token"] == "another"


def test_a_yaml_that_changes_changes_the_pace(rig: Rig) -> None:
    paces = [rig.config.model_copy(update={"follow": FollowConfig(every=every)}) for every in ("20ms", "30ms")]
    growing = rig.grow_once(lambda: rig.batches == 1)
    watching = rig.end_once(lambda: rig.batches == 2)
    rig.follow(FollowPace(None, None, 60), settings=lambda: paces[rig.batches])
    growing.join()
    watching.join()
    said = rig.said.getvalue()
    assert said == "s is followed, every 0.02 s\ns is followed, every 0.03 s\n"


def test_a_yaml_about_another_lake_is_refused_and_waited_for(rig: Rig, tmp_path: Path) -> None:
    other = rig.config.model_copy(update={"lake": rig.config.lake.model_copy(update={"path": str(tmp_path)})})
    configs = [rig.config, rig.config, other]
    growing = rig.grow_once(lambda: rig.batches == 1)
    watching = rig.end_once(lambda: "continuing" in rig.said.getvalue())
    assert rig.follow(settings=lambda: configs.pop(0) if configs else rig.config).batches == 2
    growing.join()
    watching.join()
    assert "another lake than when this process began" in rig.said.getvalue()
