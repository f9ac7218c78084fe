"""Follow: batches as they come, in one long-lived process.

Each batch is carried by the protocol of a sync, under the lease, which is given back after it: snapshots, verify,
upkeep and other syncs take it between two batches. The log's end is asked over a connection that stays open; where it
is at the position that was carried last, nothing is planned and nothing committed. Of several followers one works.
"""

from __future__ import annotations

import gc
import math
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from binlake.config import FollowConfig, PipelineConfig
from binlake.errors import BinlakeError, ConfigurationError, LakeError, LeaseHeld
from binlake.interrupts import Ending
from binlake.lease import followers, lease
from binlake.lease.followers import Follower
from binlake.lease.held_row import LOOK_AGAIN
from binlake.lease.holder import Watch
from binlake.lease.lease import Lease
from binlake.phases import asked_tables
from binlake.phases.log_looks import note_seen
from binlake.phases.upkeep_beside import UpkeepBeside
from binlake.position import Position, file_number
from binlake.records import short_tables, watermarks
from binlake.records.record import LOG_NOTED_EACH_US, RunReport
from binlake.report import Report, counted
from binlake.retries import doubling
from binlake.source.folder import Folder
from binlake.source.log import Log, Origin, open_to_follow
from binlake.source.server import LogSigns, Source
from binlake.spark.starting import SessionFactory
from binlake.store.metadata import metadata_of, now_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SNAPSHOTS_EVERY, _SNAPSHOTS_MOST_WAIT = 60.0, 3600.0
"""Seconds between two looks for tables that wait for a snapshot, and at most after snapshots that failed."""
_SNAPSHOT_ENDING = 2.0
"""Seconds for which a snapshot is waited for at the end; killed anywhere, the next one continues with what was
copied."""

_GAP, _GAP_EVERY = LOOK_AGAIN + 0.1, 3.0
"""Seconds between two batches in which a waiting process gets the lease, and from one such gap to the next at most."""
_STANDS_BY = 2.0
"""Seconds between two looks of a follower on standby."""
_WAIT, _MOST_WAIT, _MOST_UNHELPED = 1.0, 60.0, 300.0
"""Seconds before the first try after a failure, at most, and at most after one that a retry alone doesn't fix."""
_LOG_KEPT = 60.0
"""Seconds for which connections to the log stay open: behind the same name there may be another server by then,
while the one before it still runs, and gets no changes any more."""
_LEAST_REST = 1.0
"""Seconds between two looks at a resting Spark, at least."""
_SUMMED_EVERY = 60.0
"""Seconds for which batches are summed up in one line."""


class RestingSession(Protocol):
    """A session factory whose session ends once it has rested for some seconds."""

    def __call__(self, why: str, /) -> SparkSession:
        """Return the session, and start it where there is none. why: is recorded as the reason."""
        ...

    def rest(self, seconds: float) -> None:
        """Note that nothing uses the session now, and end it after so many seconds of rest."""
        ...


class Beside(Protocol):
    """Work beside the batches, in threads. Its methods are called by the thread that carries them, and return soon."""

    def begin(self, config: PipelineConfig, batch: int | None) -> None:
        """Begin the work where it is due. batch: the newest that is recorded, where that is known."""
        ...

    def end(self) -> None:
        """Let the work end."""
        ...


CarryBatches = Callable[[Lease, PipelineConfig, Origin | Log, Callable[[], None]], RunReport]
"""Carries an unfinished batch and the next one under the lease; calls the last argument between two steps."""


@dataclass(frozen=True)
class FollowPace:
    """every: seconds from one look at the log to the next. spark_idle: seconds without need, after which Spark ends.
    None: as the YAML says, also once it has changed. duration: seconds for which the log is followed."""

    every: float | None
    spark_idle: float | None
    duration: float = math.inf


@dataclass
class Followed:
    """The batches that were carried. position: of the last batch; empty without one."""

    batches: int = 0
    mutations: int = 0
    position: str = ""

    def add(self, run: RunReport) -> None:
        """Count one batch that was carried."""
        self.batches += 1
        self.mutations += run.mutations
        self.position = run.position

    @property
    def headline(self) -> str:
        """Return a line with the numbers of batches and mutations, and the position reached."""
        if not self.batches:
            return "no batch"
        carried = f"{counted(self.batches, 'batch')}, {counted(self.mutations, 'mutation')}"
        return f"{carried}, up to {Position.parse(self.position).short}"


class _EndAskedFor(Exception):
    """The process is to end, between two steps of a batch."""


class Following:
    """A process that follows, or waits on standby.

    settings: returns the YAML as it is now. carry: see CarryBatches. beside: work that is done meanwhile.
    """

    def __init__(
        self,
        settings: Callable[[], PipelineConfig],
        origin: Origin,
        session: RestingSession,
        report: Report,
        pace: FollowPace,
        ending: Ending,
        carry: CarryBatches,
        beside: Sequence[Beside] = (),
    ) -> None:
        self._settings, self._origin, self._session, self._report = settings, origin, session, report
        self._pace, self._ending, self._carry = pace, ending, carry
        self._config = settings()
        self._metadata = metadata_of(self._config)
        self._ends = time.monotonic() + pace.duration
        self._watch = Watch()  # of the lease
        self._log: Log | None = None
        self._log_opened_at = 0.0
        self._carried: tuple[str, str, int] | None = None  # server, file and offset
        self._signs: LogSigns | None = None  # of filters and replication, when batches were carried last
        self._batch: int | None = None
        self._trouble = ""
        self._failures = 0
        self._gap_at = 0.0
        self._snapshots = SnapshotsBeside(origin, session, report)
        self._log_noted_at = 0.0
        self._beside: Sequence[Beside] = beside
        self._work: Sequence[Beside] = ()  # while this process follows
        self._all, self._summed, self._summed_at = Followed(), Followed(), time.monotonic()

    def run(self) -> Followed:
        """Follow until the end is asked for or the time is over; return what was carried.

        Raises errors that no retry can help before anything was carried, and those that aren't binlake's.
        """
        followers.prepare(self._metadata)
        try:
            while not self._is_over():
                follower = Follower(self._metadata, self._every)
                if self._stand_by(follower):
                    with follower.kept():
                        try:
                            with self._stop_noted(follower):
                                self._follow(follower)
                        finally:
                            self._end_beside()
        except _EndAskedFor:
            pass
        except KeyboardInterrupt:  # a step continued for longer than an end may wait
            if not self._ending.asked:
                raise
        finally:
            self._close()
        return self._all

    @contextmanager
    def _stop_noted(self, follower: Follower) -> Iterator[None]:
        """Note in metadata that this process stops following before its time, and why."""
        try:
            yield
        except Exception as error:
            if not self._ending.asked:
                message = error.message if isinstance(error, BinlakeError) else f"unexpected {type(error).__name__}"
                follower.note_stop("failed", message)
            raise
        finally:
            if self._ending.asked and not follower.lost:
                follower.note_stop("paused" if self._ending.is_pause else "ended")

    @property
    def _every(self) -> float:
        """Return the seconds from one look at the log to the next, as the YAML is now."""
        asked = self._pace.every
        return (self._config.follow or FollowConfig()).every_seconds if asked is None else asked

    @property
    def _spark_idle(self) -> float:
        """Return the seconds without need, after which Spark ends."""
        asked = self._pace.spark_idle
        return (self._config.follow or FollowConfig()).spark_idle_seconds if asked is None else asked

    def _is_over(self) -> bool:
        return self._ending.asked or time.monotonic() >= self._ends

    def _wait(self, seconds: float) -> None:
        """Wait, or until the end is asked for. Spark ends meanwhile once it has rested for long enough."""
        until, idle = min(time.monotonic() + seconds, self._ends), self._spark_idle
        self._rest(idle)
        while not self._ending.asked and (left := until - time.monotonic()) > 0:
            self._ending.wait(min(left, max(idle, _LEAST_REST)))
            self._rest(idle)

    def _rest(self, idle: float) -> None:
        """Tell Spark that nothing uses it, unless a snapshot may."""
        if not self._snapshots.is_at_work:
            self._session.rest(idle)

    def _stand_by(self, follower: Follower) -> bool:
        """Wait until this process is the one that follows; return False where it ends before."""
        watch = Watch()
        while not self._is_over():
            try:
                begins = self._begins(follower, watch)
            except BinlakeError as error:
                self._bear(error, follower)
                continue
            if begins:
                self._trouble, self._failures = "", 0
                self._say_pace()
                return True
            self._wait(_STANDS_BY)
        return False

    def _begins(self, follower: Follower, watch: Watch) -> bool:
        """Take the follower's row; return False where another process follows."""
        try:
            follower.begin(watch)
        except LeaseHeld as held:
            self._say_trouble(f"{held.message}; this process waits to take over")
            control = lease.read(self._metadata)  # the process that died may hold it, too
            self._watch.is_held(control.holder, control.token, control.expires_us)
            return False
        return True

    def _follow(self, follower: Follower) -> None:
        """Carry batches until the end, or until another process follows."""
        self._snapshots = SnapshotsBeside(self._origin, self._session, self._report)
        self._work = (UpkeepBeside(self._report), self._snapshots, *self._beside)
        self._begin_beside()
        while not self._is_over() and not follower.lost:
            began = time.monotonic()
            try:
                has_carried = self._look(follower)
                self._sum_up()
                self._begin_beside()
            except LeaseHeld as held:
                self._say_trouble(held.message)
                follower.waits(held.message)
                self._wait(max(self._every, _GAP))
            except BinlakeError as error:
                self._bear(error, follower)
            else:
                self._failures = 0
                self._go_on()
                self._wait(self._pause(began, has_carried))

    def _pause(self, began: float, has_carried: bool) -> float:
        """Return the seconds to wait before the next look at the log. began: when the last one began."""
        now = time.monotonic()
        pause = began + self._every - now
        if has_carried and now - self._gap_at >= _GAP_EVERY:
            pause = max(pause, _GAP)
        if pause >= _GAP or not has_carried:
            self._gap_at = now
        return max(pause, 0.0)

    def _begin_beside(self) -> None:
        for work in self._work:
            work.begin(self._config, self._batch)

    def _end_beside(self) -> None:
        for work in self._work:
            work.end()

    def _look(self, follower: Follower) -> bool:
        """Carry what the log has beyond what was carried; return False where that is nothing."""
        looked_us = now_us()
        log = self._opened_log()
        file, offset, _ = log.head()
        head = log.server_identity, file, offset
        signs = log.signs if isinstance(log, Source) else None
        if isinstance(self._origin, Folder):
            self._close()  # an open one stays as it was listed
        if head == self._carried and signs == self._signs:
            follower.carried(looked_us, self._batch)
            self._note_quiet_log()
            return False
        self._read_settings()
        follower.looks_every(self._every)
        with lease.held(self._metadata, by_turns=True, watch=self._watch) as held:
            recorded = self._carry(held, self._config, self._log or self._origin, self._refuse_to_go_on)
        self._watch = Watch()
        position = Position.parse(recorded.position)
        self._carried, self._batch = (position.server, position.file, position.offset), recorded.batch
        self._signs = signs
        is_short = position.server == head[0] and position.order < (file_number(file), offset)
        follower.carried(self._newest_commit_us() if is_short else looked_us, recorded.batch)
        for run in (*recorded.earlier, recorded):
            self._note(run)
        return True

    def _opened_log(self) -> Log:
        if time.monotonic() - self._log_opened_at >= _LOG_KEPT:
            self._close()
        if self._log is None:
            self._log, self._log_opened_at = open_to_follow(self._origin), time.monotonic()
        return self._log

    def _newest_commit_us(self) -> int:
        """Return when the newest transaction of the lake committed, in microseconds since 1970."""
        recorded_state = lease.read(self._metadata).recorded_state
        return recorded_state.committed_us if recorded_state else 0

    def _note_quiet_log(self) -> None:
        """Note in metadata, now and then, that the log has nothing more; beside batches the plan does."""
        if self._log is not None and time.monotonic() >= self._log_noted_at:
            self._log_noted_at = time.monotonic() + LOG_NOTED_EACH_US / 1e6
            note_seen(self._metadata, self._log)

    def _refuse_to_go_on(self) -> None:
        """Raise _EndAskedFor where the end is asked for."""
        if self._ending.asked:
            raise _EndAskedFor

    def _read_settings(self) -> None:
        """Take the YAML as it is now. Raises ConfigurationError, also where it is about another source or lake."""
        config = self._settings()
        if (config.source, config.lake) != (self._config.source, self._config.lake):
            raise ConfigurationError(
                "the YAML names another source or another lake than when this process began to follow",
                remedy="end this process, and start binlake follow again",
            )
        every = self._every
        self._config = config
        if self._every != every:
            self._say_pace()

    def _say_pace(self) -> None:
        self._report.say(f"{self._config.source.name} is followed, every {self._every:g} s")

    def _note(self, run: RunReport) -> None:
        """Count a batch, and say what somebody should know of it."""
        if run.phases:
            self._all.add(run)
            self._summed.add(run)
        for table in run.tables:
            if table.newly_stopped:
                self._report.warn(f"{table.status}: {table.table}: {table.reason}\n  → {table.remedy}")
            if table.status == "resnapshot":
                self._snapshots.ask()

    def _sum_up(self) -> None:
        """Say in one line what was carried in the last minute, and keep the metadata tables short."""
        if time.monotonic() - self._summed_at < _SUMMED_EVERY:
            return
        summed, self._summed, self._summed_at = self._summed, Followed(), time.monotonic()
        if summed.batches:
            self._report.say(summed.headline)
            with lease.held(self._metadata, by_turns=True) as held:
                short_tables.put_together(held.metadata)
            short_tables.shorten(self._metadata)

    def _bear(self, error: BinlakeError, follower: Follower) -> None:
        """Wait after a failure; longer after each further one. Raises the error where nothing was carried yet, and no
        retry can help."""
        self._close()
        if not error.retryable and self._carried is None:
            raise error
        self._failures += 1
        most = _MOST_WAIT if error.retryable else _MOST_UNHELPED
        self._say_trouble(f"{error}\n  it is tried again after growing waits, of up to {most:.0f} s", self._report.warn)
        follower.waits(error.message)
        _let_go(error)
        self._wait(doubling(_WAIT, most)(self._failures))

    def _say_trouble(self, text: str, say: Callable[[str], None] | None = None) -> None:
        """Say why nothing is carried, unless that was said last."""
        if text != self._trouble:
            (say or self._report.say)(text)
        self._trouble = text

    def _go_on(self) -> None:
        """Say that batches are carried again, after a trouble."""
        if self._trouble:
            self._report.say("continuing")
        self._trouble = ""

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
        self._log = None


class SnapshotsBeside:
    """The snapshots of one source for which batches asked: taken in a thread, so that other tables follow meanwhile.

    Its methods are called by the thread that carries the batches.
    """

    def __init__(self, origin: Origin, session: SessionFactory, report: Report) -> None:
        self._origin, self._session, self._report = origin, session, report
        self._thread: threading.Thread | None = None
        self._due, self._wait = 0.0, _SNAPSHOTS_EVERY
        self._is_over = False

    @property
    def is_at_work(self) -> bool:
        """Return whether the thread that takes snapshots is running."""
        return self._thread is not None and self._thread.is_alive()

    def ask(self) -> None:
        """Look soon, as a batch asked for a snapshot, unless the last ones failed."""
        if self._wait == _SNAPSHOTS_EVERY:
            self._due = 0.0

    def begin(self, config: PipelineConfig, batch: int | None) -> None:
        """Begin to snapshot where it is due and no snapshot is at work. Tables that can't be copied are tried again
        after growing waits."""
        if self.is_at_work or self._is_over or (self._thread is None and time.monotonic() < self._due):
            return
        metadata, has_tried = metadata_of(config), self._thread is not None
        self._thread = None
        try:
            asked, catching_up = watermarks.asked(metadata), watermarks.catching_up(metadata)
        except LakeError:  # the next batch reports it
            asked, catching_up = [], []
        if (asked or catching_up) and not has_tried:
            self._thread = threading.Thread(target=self._snapshot, args=(config,), name="snapshots", daemon=True)
            self._thread.start()
        else:
            self._wait = min(2 * self._wait, _SNAPSHOTS_MOST_WAIT) if asked and has_tried else _SNAPSHOTS_EVERY
            self._due = time.monotonic() + self._wait

    def end(self) -> None:
        """Begin no snapshot any more."""
        self._is_over = True
        if self._thread is not None:
            self._thread.join(_SNAPSHOT_ENDING)

    def _snapshot(self, config: PipelineConfig) -> None:
        try:
            asked_tables.snapshot_asked(config, self._origin, self._session, self._report)
        except LeaseHeld as held:
            self._report.say(held.message)
        except BinlakeError as error:
            self._report.warn(str(error))


def _let_go(error: BaseException) -> None:
    """Free what the functions held that an error ended. Their frames are in its traceback, and often hold it: the rows
    of a merge that failed would stay until garbage is looked for."""
    known: list[BaseException] = []
    ended: BaseException | None = error
    while ended is not None and not any(ended is each for each in known):  # an error may be its own cause
        traceback.clear_frames(ended.__traceback__)
        known.append(ended)
        ended = ended.__cause__ or ended.__context__
    gc.collect()
