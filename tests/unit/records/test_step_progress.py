"""How far a step is stands beside the metadata while it runs, and nothing of it stays."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from binlake import config
from binlake.records import step_progress
from binlake.records.step_progress import StepProgress, shown_progress
from binlake.report import Report
from binlake.store.metadata import now_us

YAML = """
source: {name: shop, connection: "file:///log"}
tables: {include: ["shop.*"]}
lake: {path: ./lake}
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> config.PipelineConfig:
    (tmp_path / "shop.yaml").write_text(YAML)
    monkeypatch.setattr(step_progress, "_EVERY", 0.01)
    loaded = config.load(tmp_path / "shop.yaml")
    Path(loaded.metadata_path("")).mkdir(parents=True)
    return loaded


def seen(source: config.PipelineConfig, done: float) -> StepProgress:
    """The only step, once it is that far."""
    deadline = time.monotonic() + 60
    while True:
        progress = step_progress.read(source)
        if progress and progress[0].done == done:
            (step,) = progress
            return step
        assert time.monotonic() < deadline, progress
        time.sleep(0.01)


def test_others_see_how_far_a_step_is(source: config.PipelineConfig) -> None:
    began = now_us()
    with shown_progress(source, Report(io.StringIO()), "staged") as show:
        assert step_progress.read(source) == []
        show(10, 40, "10 MB/s")
        step = seen(source, 10)
        assert (step.step, step.total, step.detail, step.began_us >= began) == ("staged", 40, "10 MB/s", True)
        show(40, 40)
        assert seen(source, 40).at_us > step.at_us
    assert step_progress.read(source) == []
    assert list(Path(source.metadata_path("")).iterdir()) == []


def test_a_step_that_fails_leaves_nothing(source: config.PipelineConfig) -> None:
    def fail() -> None:
        with shown_progress(source, Report(io.StringIO()), "merged") as show:
            show(1, 2)
            seen(source, 1)
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert list(Path(source.metadata_path("")).iterdir()) == []


def test_what_a_killed_process_left_is_not_believed(source: config.PipelineConfig) -> None:
    left = {"step": "merged", "done": 1, "total": 2, "detail": "", "began_us": 1, "at_us": now_us() - 60_000_000}
    path = Path(source.metadata_path("progress-merged.json"))
    path.write_text(json.dumps(left))
    assert step_progress.read(source) == []
    path.write_text("{")
    assert step_progress.read(source) == []


def test_where_nothing_can_be_written_the_step_goes_on(source: config.PipelineConfig) -> None:
    Path(source.metadata_path("")).rmdir()
    Path(source.metadata_path("").rstrip("/")).write_text("a file")
    with shown_progress(source, Report(io.StringIO()), "compared") as show:
        for done in range(5):
            show(done, 5)
            time.sleep(0.02)
