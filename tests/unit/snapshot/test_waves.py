"""Who interrupts a snapshot."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from binlake.schema.table import Column, TableSchema
from binlake.snapshot import waves


def test_who_interrupts_a_snapshot_does_not_wait_for_its_wave(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(waves, "_WATCH_SECONDS", 0)
    cancelled: dict[str, Event] = {"first": Event(), "second": Event()}

    def interrupted(written: int) -> None:
        raise KeyboardInterrupt

    unasked = nullcontext(SimpleNamespace(longest=lambda: None))
    monkeypatch.setattr(waves, "WaitingDdl", lambda *_: unasked)  # no server is there
    copying: Any = SimpleNamespace(watch=interrupted, source=None, max_writes_stopped=2)
    copies: Any = [SimpleNamespace(cancel=event.set, folder=str(tmp_path), name="t") for event in cancelled.values()]
    with ThreadPoolExecutor(2) as pool:
        copied: Any = [pool.submit(event.wait, 30) for event in cancelled.values()]
        with pytest.raises(KeyboardInterrupt):
            waves._wait(copying, copies, copied)
    assert all(chunk.result() for chunk in copied)


def test_what_is_not_kept_of_an_excluded_column_is_no_change_of_a_shape() -> None:
    columns = (Column("id", "int", nullable=False), Column("hush", "varchar", length=9, charset="utf8mb4", default="x"))
    server = TableSchema(columns, ("id",), "primary")
    planned = server.excluding(frozenset({"hush"}))
    assert waves._is_same(server, planned)
    wider = replace(server, columns=(columns[0], replace(columns[1], length=10)))
    assert not waves._is_same(wider, planned)
    assert not waves._is_same(replace(server, key=("hush",)), planned)
    assert not waves._is_same(None, planned)
