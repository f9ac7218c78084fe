"""The tables' upkeep beside batches of seconds: in a thread, without Spark; hourly, or sooner where many files come.

It takes the lease between two batches, for moments: to look, to let go of batches, to note what goes, to remove rows of
metadata that are older than promised. It lists and deletes files while batches are carried.
"""

from __future__ import annotations

import ctypes
import threading
import time
from contextlib import suppress

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError
from binlake.report import Report
from binlake.spark.starting import no_session
from binlake.store.metadata import metadata_of

_FIRST, _EVERY, _SOONEST = 300.0, 3600.0, 120.0
"""Seconds until the first upkeep, and from the end of one to the next, at most and at least."""
_FILES = 200
"""Small data files of one table for which the next upkeep comes sooner: each batch of a second that only inserts leaves
one, and each further batch looks through the list of them."""
_PATIENCE = 60.0
"""Seconds for which a moment between two batches is waited for."""
_MOST_FILE_MB = 16.0
"""Megabytes of a data file that is written: its rows are sorted in memory, some ten times as much."""
_ENDING = 2.0
"""Seconds for which an upkeep that was ended is waited for; killed anywhere, the next one continues."""


class _Ended(Exception):
    """The upkeep is to end."""


class UpkeepBeside:
    """The upkeep of one source's tables. Its methods are called by the thread that carries the batches."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._looked = time.monotonic()
        self._pause = _EVERY
        self._due = self._looked + _FIRST

    def begin(self, config: PipelineConfig, batch: int | None) -> None:
        """Begin the upkeep where it is due and none is at work."""
        if self._thread is not None and not self._thread.is_alive():
            self._thread, self._due = None, time.monotonic() + self._pause
        if self._thread is None and time.monotonic() >= self._due:
            self._thread = threading.Thread(target=self._keep, args=(config,), name="upkeep", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Let the upkeep end before its next table, and none begin any more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(_ENDING)

    def _keep(self, config: PipelineConfig) -> None:
        from binlake.maintain.table_upkeep import TablesUpkeep
        from binlake.records import expiry, feed_watermarks

        quiet, metadata = Report(quiet=True), metadata_of(config)
        upkeep = TablesUpkeep(_with_small_files(config), no_session, metadata, quiet, _PATIENCE, self._refuse_ended)
        try:
            self._note_files(max((table.rewritten_files for table in upkeep.tables(None)), default=0))
            feed_watermarks.forget_dead_tails(metadata)  # staging is kept for them otherwise
            with upkeep.held() as held:
                upkeep.note_sizes(held)
                expiry.expire(held.metadata, config.maintain)  # nobody needs to run maintain besides
        except _Ended:
            return
        except BinlakeError as error:
            self._report.say(f"upkeep: {error}")
        finally:
            _give_back_memory()
        for failure in upkeep.failed:
            self._report.say(f"upkeep: {failure}")

    def _note_files(self, files: int) -> None:
        """Choose when the next upkeep comes. files: the most that were put together in one table since the last."""
        before, self._looked = self._looked, time.monotonic()
        seconds = (self._looked - before) * _FILES / files if files else _EVERY
        self._pause = min(max(seconds, _SOONEST), _EVERY)

    def _refuse_ended(self) -> None:
        if self._over.is_set():
            raise _Ended


def _give_back_memory() -> None:
    """Return free memory to the system where the C library can. Otherwise the 30 MB that an upkeep and its queries took
    stay with the process, in pieces too small for the next upkeep."""
    with suppress(OSError, AttributeError):  # musl and macOS have no such function
        ctypes.CDLL(None).malloc_trim(0)


def _with_small_files(config: PipelineConfig) -> PipelineConfig:
    """Return the configuration with data files that are whole before they need Spark, or much memory, to be written."""
    limits = (_MOST_FILE_MB, config.maintain.file_mb, config.merge.without_spark_mb or _MOST_FILE_MB)
    return config.model_copy(update={"maintain": config.maintain.model_copy(update={"file_mb": min(limits)})})
