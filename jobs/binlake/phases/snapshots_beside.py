"""Snapshots for which batches of seconds asked: taken in a thread, so that the other tables follow meanwhile."""

from __future__ import annotations

import threading
import time

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, LakeError, LeaseHeld
from binlake.metadata import watermarks
from binlake.metadata.metadata import metadata_of
from binlake.phases import asked_tables
from binlake.report import Report
from binlake.source.log import Origin
from binlake.spark.starting import SessionFactory

_EVERY, _MOST_WAIT = 60.0, 3600.0
"""Seconds between two looks for such tables, and at most after snapshots that failed."""
_ENDING = 2.0
"""Seconds for which a snapshot is waited for at the end; killed anywhere, the next one goes on with what was copied."""


class SnapshotsBeside:
    """The snapshots of one source. Its methods are called by the thread that carries the batches."""

    def __init__(self, origin: Origin, session: SessionFactory, report: Report) -> None:
        self._origin, self._session, self._report = origin, session, report
        self._thread: threading.Thread | None = None
        self._due, self._wait = 0.0, _EVERY
        self._is_over = False

    @property
    def is_at_work(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def ask(self) -> None:
        """Look soon, as a batch asked for a snapshot, unless the last ones failed."""
        if self._wait == _EVERY:
            self._due = 0.0

    def begin(self, config: PipelineConfig, batch: int | None) -> None:
        """Begin to snapshot where it is due and no snapshot is at work. What can't be copied is tried again after
        growing waits."""
        if self.is_at_work or self._is_over or (self._thread is None and time.monotonic() < self._due):
            return
        metadata, has_tried = metadata_of(config), self._thread is not None
        self._thread = None
        try:
            asked, catching_up = watermarks.asked(metadata), watermarks.catching_up(metadata)
        except LakeError:  # the next batch tells of it
            asked, catching_up = [], []
        if (asked or catching_up) and not has_tried:
            self._thread = threading.Thread(target=self._snapshot, args=(config,), name="snapshots", daemon=True)
            self._thread.start()
        else:
            self._wait = min(2 * self._wait, _MOST_WAIT) if asked and has_tried else _EVERY
            self._due = time.monotonic() + self._wait

    def end(self) -> None:
        """Begin no snapshot any more."""
        self._is_over = True
        if self._thread is not None:
            self._thread.join(_ENDING)

    def _snapshot(self, config: PipelineConfig) -> None:
        try:
            asked_tables.snapshot_asked(config, self._origin, self._session, self._report)
        except LeaseHeld as held:
            self._report.say(held.message)
        except BinlakeError as error:
            self._report.warn(str(error))
