"""Progress of a run: bars on a terminal, plain lines otherwise; and texts that a terminal can show without harm."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

_PLAIN_INTERVAL = 5.0
_REPEATED_AFTER = 60.0
"""Seconds after which an unchanged line is printed again, to show that the run still works."""


_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""Control characters but tab and line feed; marks of direction, which show a text in another order; and what is seen as
nothing (Unicode Technical Report 36, "Unicode Security Considerations")."""


def harmless(text: str) -> str:
    """Return a text for a terminal or a log: names may hold characters that rule the terminal, or hide others. They are
    written as in JSON, such as ``\\u001b``."""
    return _HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def harmless_entry(text: str) -> str:
    """Return a harmless text for a log: its further lines are indented, so that none looks like an entry of its own."""
    return re.sub(r"\n(?=[^\s])", "\n  ", harmless(text))


class HarmlessStream:
    """A text stream through which only harmless characters are written. raw: the stream itself, for what draws."""

    def __init__(self, stream: TextIO) -> None:
        self.raw = stream

    def write(self, text: str) -> int:
        """Write a text without characters that rule a terminal; return the number of characters taken."""
        self.raw.write(harmless(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw(stream: TextIO) -> TextIO:
    """Return the stream that a HarmlessStream writes to; any other as it is."""
    return stream.raw if isinstance(stream, HarmlessStream) else stream


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 row``, ``2,000 rows``, ``3 batches``."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"


def rows_of_tables(rows_by_table: Iterable[int]) -> str:
    """Return how many rows were changed, and of how many tables: ``8,181 rows of 7 tables``; tables without one don't
    count."""
    changed = [rows for rows in rows_by_table if rows]
    return f"{counted(sum(changed), 'row')} of {counted(len(changed), 'table')}" if changed else "no row changed"


class ProgressCallback(Protocol):
    """Callback with the progress of some work, in any unit. It is cheap to call often."""

    def __call__(self, done: float, total: float, detail: str = "") -> None:
        """Take note that ``done`` of ``total`` is done. detail: words to show beside it."""


class Report:
    """Lines and progress of a run, written to ``stream`` (standard error, because standard output is for results)."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = raw(stream or sys.stderr)
        self._quiet = quiet
        self._terminal = self._stream.isatty()
        self._bars: Progress | None = None
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """Print a line."""
        if self._quiet:
            return
        text = harmless_entry(text)
        with self._lock:
            if self._bars is not None:
                self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                print(text, file=self._stream, flush=True)

    def warn(self, text: str) -> None:
        """Print a line that somebody should look at, where lines have levels."""
        self.say(text)

    def of_warnings(self) -> Report:
        """Return a report that prints here what somebody should look at, and nothing else."""
        return _Warnings(self)

    @contextmanager
    def progress(self, what: str) -> Iterator[ProgressCallback]:
        """Return a callback for the progress of ``what``. At the end 100 % is shown, unless an error is raised."""
        if self._quiet or not self._terminal:
            lines = _Lines(what, self.say)
            yield lines.update
            lines.end()
            return
        with self._shown() as bars:
            bar = bars.add_task(what, total=None, detail="")

            def update(done: float, total: float, detail: str = "") -> None:
                bars.update(bar, completed=done, total=total, detail=harmless(detail))

            yield update
            bars.update(bar, completed=1, total=1)

    @contextmanager
    def _shown(self) -> Iterator[Progress]:
        """Yield the bars, which are shown until the last progress ends."""
        if self._bars is not None:
            yield self._bars
            return
        with _bars(self._stream) as bars:
            self._bars = bars
            try:
                yield bars
            finally:
                with self._lock:
                    self._bars = None


class _Warnings(Report):
    """Prints warnings alone, by another report."""

    def __init__(self, report: Report) -> None:
        super().__init__(quiet=True)
        self._report = report

    def warn(self, text: str) -> None:
        self._report.warn(text)


class _Lines:
    """Progress in plain lines: one every few seconds if something has changed, and one at the end."""

    def __init__(self, what: str, say: Callable[[str], None]) -> None:
        self._what = what
        self._say = say
        self._last = time.monotonic()
        self._said = ""
        self._shown = -1
        self._detail: str | None = None
        self._lock = threading.Lock()

    def update(self, done: float, total: float, detail: str = "") -> None:
        now = time.monotonic()
        with self._lock:
            self._detail = detail
            if now - self._last >= _PLAIN_INTERVAL:
                percent = int(100 * min(1.0, done / total)) if total else 0
                if self._line(percent) != self._said or now - self._last >= _REPEATED_AFTER:
                    self._last = now
                    self._show(percent)

    def end(self) -> None:
        """Print the 100 % line, unless no progress was reported."""
        if self._detail is not None and self._shown < 100:
            self._show(100)

    def _show(self, percent: int) -> None:
        self._shown, self._said = percent, self._line(percent)
        self._say(self._said)

    def _line(self, percent: int) -> str:
        return f"{self._what} {percent:3}% {self._detail}".rstrip()


def _bars(stream: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns: list[Any] = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
    ]
    # Standard output is for results, and may be a pipe beside a terminal.
    return Progress(*columns, console=Console(file=stream), redirect_stdout=False)
