"""One session for a process: begun when it is needed, ended when it rests, and begun again where it died."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from binlake.config import PipelineConfig
from binlake.report import Report
from binlake.spark import session
from binlake.spark.on_demand import SessionOnDemand


@dataclass
class Sessions:
    """Stand-ins for sessions. dead: those whose JVM died. now: the time, in seconds."""

    built: list[str] = field(default_factory=list)
    ended: int = 0
    dead: set[str] = field(default_factory=set)
    now: float = 100.0

    def build(self, name: str, **_: Any) -> str:
        self.built.append(f"session {len(self.built) + 1}")
        return self.built[-1]

    def end(self) -> None:
        self.ended += 1


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    made = Sessions()
    monkeypatch.setattr(session, "build", made.build)
    monkeypatch.setattr(session, "end", made.end)
    monkeypatch.setattr(session, "lives", lambda one: one not in made.dead)
    monkeypatch.setattr("binlake.spark.on_demand.time.monotonic", lambda: made.now)
    return made


def on_demand_in(folder: Path, said: io.StringIO) -> Any:
    given = {"source": {"name": "s", "connection": folder.as_uri()}, "lake": {"path": str(folder)}}
    config = PipelineConfig.model_validate({**given, "tables": {"include": ["d.*"]}})
    return SessionOnDemand("binlake follow", config, Report(said))


def test_it_ends_once_it_rested_for_long_enough(sessions: Sessions, tmp_path: Path) -> None:
    said = io.StringIO()
    spark = on_demand_in(tmp_path, said)
    spark.rest(10)
    assert spark("a table is large") == spark("another") == "session 1"
    spark.rest(10)
    sessions.now += 9
    spark.rest(10)
    assert spark("a third") == "session 1"
    for seconds in (0, 9):
        sessions.now += seconds
        spark.rest(10)
    assert sessions.ended == 0
    sessions.now += 1
    spark.rest(10)
    spark.rest(10)
    assert sessions.ended == 1
    assert spark("a fourth") == "session 2"
    assert said.getvalue().splitlines() == [
        "Spark is needed: a table is large", "Spark ended: nothing needed it for 10 s", "Spark is needed: a fourth",
    ]  # fmt: skip


def test_one_that_died_is_begun_anew(sessions: Sessions, tmp_path: Path) -> None:
    said = io.StringIO()
    spark = on_demand_in(tmp_path, said)
    assert spark("a table is large") == "session 1"
    sessions.dead.add("session 1")
    assert spark("it still is") == "session 2"
    assert sessions.ended == 1
    assert said.getvalue().splitlines() == [
        "Spark is needed: a table is large", "Spark ended by itself, and is needed: it still is",
    ]  # fmt: skip
