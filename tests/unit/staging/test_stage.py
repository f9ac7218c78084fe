"""Who reads a range: a short one this process, a long one Spark; and what is told of what goes wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import pytest

sys.path.append(str(Path(__file__).parents[2] / "binlogs"))

import logs

from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.transport import FileTransport, LogChunk, Transport
from binlake.config import PipelineConfig
from binlake.errors import PositionLost
from binlake.lease import lease
from binlake.lease.lease import Control, OpenBatch
from binlake.phases.open_batch import is_short_run
from binlake.position import Position, Range, Slice
from binlake.report import Report
from binlake.staging import stage
from binlake.staging.stage import stage_batch
from binlake.staging.staged_files import check_file, read_manifest

LOG = logs.log("mysql-plain")
SERVER = "62b24f3b-e582-11f1-9046-02fc00000001"


class SparkAsked(Exception):
    """The session was asked for."""


def no_spark(why: str) -> NoReturn:
    raise SparkAsked


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "source": {"name": "tests", "connection": LOG.path.parent.as_uri()},
            "tables": {"include": ["f.*"]},
            "lake": {"path": str(tmp_path)},
            "invalid_dates": "keep_text",
        }
    )


def plan(*, cut: bool = True) -> OpenBatch:
    """The whole log, as two slices that divide its transactions."""
    transactions = list(transaction_boundaries(FileTransport(LOG.path), LOG.part))
    middle = transactions[len(transactions) // 2].start_offset
    name, stop = LOG.part.file, LOG.part.stop
    parts = (Slice(name, 4, middle, 0, False), Slice(name, middle, stop, 0, True)) if cut else (LOG.part,)
    return OpenBatch(1, Range(Position(SERVER, name, 4, 0), Position(SERVER, name, stop, 0), parts))


def test_a_short_range_is_staged_without_spark(config: PipelineConfig) -> None:
    manifest = stage_batch(no_spark, config, [FileTransport(LOG.path)] * 2, plan(), Report())
    assert [part.slice for part in manifest.slices] == [0, 1]
    assert manifest.mutations == len(LOG.expected["mutations"])
    folder = config.staging_path("1", manifest.attempt)
    assert read_manifest(folder, 1, manifest.attempt) == manifest
    for file in manifest.files:
        check_file(file)


def test_slices_that_are_read_side_by_side_tell_what_one_reader_tells(config: PipelineConfig) -> None:
    transport = FileTransport(LOG.path)
    alone = stage_batch(no_spark, config, [transport], plan(), Report())
    for _ in range(5):
        assert stage_batch(no_spark, config, [transport] * 2, plan(), Report()).content == alone.content


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_range_beyond_the_limit_is_sparks(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, beyond: int
) -> None:
    monkeypatch.setattr(stage, "SHORT_RANGE", plan().range.size - beyond)
    assert stage.is_short(plan()) == (not beyond)
    if not beyond:
        stage_batch(no_spark, config, [FileTransport(LOG.path)], plan(), Report())
        return
    with pytest.raises(SparkAsked):
        stage_batch(no_spark, config, [FileTransport(LOG.path)], plan(), Report())


def test_an_error_comes_as_it_was_raised_and_leaves_nothing_staged(config: PipelineConfig) -> None:
    with pytest.raises(PositionLost, match="there is no"):
        stage_batch(no_spark, config, [FileTransport(LOG.path.with_name("gone"))], plan(), Report())
    assert not list(Path(config.staging_path("1")).iterdir())


@dataclass(frozen=True)
class Broken:
    """A transport with a fault that nobody foresaw."""

    transport: Transport

    def chunks(self, part: Slice) -> Iterator[LogChunk]:
        yield next(self.transport.chunks(part))
        raise ValueError("a row's value")


def test_what_nobody_foresaw_is_told_without_values_of_rows(config: PipelineConfig) -> None:
    """Its message may hold some; where it was raised can't."""
    with pytest.raises(RuntimeError) as caught:
        stage_batch(no_spark, config, [Broken(FileTransport(LOG.path))], plan(cut=False), Report())
    assert str(caught.value).startswith("ValueError at test_stage.py:")
    assert str(caught.value).endswith(f" while {LOG.part.file} was staged")
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("begun", "short"),
    [
        (replace(plan(), planned_us=2), True),
        (replace(plan(), planned_us=1), False),  # by a run before: nobody knows how much of the log comes behind it
        (
            replace(plan(), planned_us=2, range=replace(plan().range, slices=(Slice("b.1", 4, 1 << 30, 0, True),))),
            False,
        ),
        (None, False),
    ],
)
def test_a_run_is_short_when_it_planned_a_short_range(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch, begun: OpenBatch | None, short: bool
) -> None:
    monkeypatch.setattr(lease, "read", lambda metadata: Control("me", "token", 2, 9, 1, begun, None))
    assert is_short_run(config) == short


def test_how_far_a_reading_is_how_fast_and_how_long_it_will_take() -> None:
    assert stage.pace(20, 190, 4) == "20.0 of 190.0 MB of log, 5.0 MB/s, about 34 s left"
    assert stage.pace(190, 190, 38) == "190.0 of 190.0 MB of log, 5.0 MB/s"
    assert stage.pace(0, 190, 0) == "0.0 of 190.0 MB of log, 0.0 MB/s"
