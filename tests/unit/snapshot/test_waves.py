"""Who interrupts a snapshot."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from binlake.snapshot import waves


def test_who_interrupts_a_snapshot_does_not_wait_for_its_wave(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(waves, "_WATCH_SECONDS", 0)
    cancelled: dict[str, Event] = {"first": Event(), "second": Event()}

    def interrupted(written: int) -> None:
        raise KeyboardInterrupt

    copying: Any = SimpleNamespace(watch=interrupted)
    copies: Any = [SimpleNamespace(cancel=event.set, folder=str(tmp_path)) for event in cancelled.values()]
    with ThreadPoolExecutor(2) as pool:
        copied: Any = [pool.submit(event.wait, 30) for event in cancelled.values()]
        with pytest.raises(KeyboardInterrupt):
            waves._wait(copying, copies, copied)
    assert all(chunk.result() for chunk in copied)
