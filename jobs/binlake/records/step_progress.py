"""How far a running step has come: a small file beside the metadata tables, for anybody who looks at the lake
meanwhile.

A step that takes longer than a moment writes it, at most once a second, and removes it at its end. Nothing depends on
it: it may be missing, and one that a killed process left is recognised by its age.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Literal

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError
from binlake.report import ProgressCallback, Report
from binlake.storage import files
from binlake.store.metadata import now_us

RunningStep = Literal["snapshot", "staged", "merged", "compared"]
STEPS: tuple[RunningStep, ...] = ("snapshot", "staged", "merged", "compared")
_EVERY = 1.0
"""Seconds between two writes, and from a step's begin to the first."""
_ALIVE = 5
"""Writes after which an unchanged file is written again, as a sign of life."""
_SILENT_US = 20_000_000
"""Age in microseconds of a file whose step is no longer believed to run."""


@dataclass(frozen=True)
class StepProgress:
    """A running step. done, total: in a unit of the step's own; total is 0 where it isn't known. detail: in words.
    began_us: when the step began. at_us: when this was written."""

    step: RunningStep
    done: float
    total: float
    detail: str
    began_us: int
    at_us: int


@contextmanager
def shown_progress(config: PipelineConfig, report: Report, step: RunningStep) -> Iterator[ProgressCallback]:
    """Return a callback for the progress of a step, which the report shows, and readers of the lake see."""
    with report.progress(step) as show, _Written(config, step) as written:

        def update(done: float, total: float, detail: str = "") -> None:
            show(done, total, detail)
            written.newest = done, total, detail

        yield update


def read(config: PipelineConfig) -> list[StepProgress]:
    """Return the steps of a source that run now and have reported how far they are."""
    running: list[StepProgress] = []
    for step in STEPS:
        path = _path(config, step)
        with suppress(BinlakeError, OSError, ValueError, TypeError):  # most are never there, or go while they are read
            running.append(StepProgress(**json.loads(files.read_text(path))))
    return [step for step in running if step.at_us > now_us() - _SILENT_US]


def _path(config: PipelineConfig, step: RunningStep) -> str:
    return config.metadata_path(f"progress-{step}.json")


class _Written:
    """A thread that writes the newest progress. newest: done, total, detail; None before there was any."""

    def __init__(self, config: PipelineConfig, step: RunningStep) -> None:
        self.newest: tuple[float, float, str] | None = None
        self._path, self._step, self._began_us = _path(config, step), step, now_us()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, name=f"progress {step}", daemon=True)

    def __enter__(self) -> _Written:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _write(self) -> None:
        written, unchanged = None, 0
        while not self._over.wait(_EVERY):
            unchanged += 1
            newest = self.newest
            if newest is not None and (newest != written or unchanged >= _ALIVE):
                progress = StepProgress(self._step, *newest, self._began_us, now_us())
                with suppress(Exception):  # whatever a store raises, the step continues
                    files.replace_bytes(self._path, json.dumps(asdict(progress)).encode())
                written, unchanged = newest, 0
        if written is not None:
            with suppress(Exception):  # whatever a store raises, the step continues
                files.remove_file(self._path)
