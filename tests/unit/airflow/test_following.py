"""A source that is followed: the task that follows it, and the check that somebody does."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from airflow.sdk.definitions.timetables.simple import ContinuousTimetable
from airflow.sdk.exceptions import AirflowException, AirflowSkipException
from airflow.serialization.serialized_objects import DagSerialization

from binlake import pipeline
from binlake.config import PipelineConfig, load
from binlake.metadata import followers, lease
from binlake.metadata.followers import Follower
from binlake.metadata.holder import Watch
from binlake.metadata.metadata import metadata_of, now_us
from binlake.report import Report
from binlake.source import log
from binlake.spark.starting import no_session
from binlake_airflow.following import BinlakeFollowedOperator, BinlakeFollowOperator
from binlake_airflow.pipelines import dags_of

LOG = Path(__file__).parents[2] / "binlogs" / "mysql-plain.000001"
YAML = """
source: {name: shop, connection: "FOLDER"}
tables: {include: ["another.*"]}
lake: {path: ./lake}
follow: {every: 50ms}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The YAML of a folder with a file of a log, in which nothing is to be mirrored."""
    folder = tmp_path / "log"
    folder.mkdir()
    shutil.copy(LOG, folder)
    file = tmp_path / "shop.yaml"
    file.write_text(YAML.replace("FOLDER", folder.as_uri()))
    return file


@pytest.fixture
def config(file: Path) -> PipelineConfig:
    """Its configuration, once the log is followed from its beginning on."""
    config = load(file)
    pipeline.bootstrap(config, log.origin(config.source.connection), no_session, Report(quiet=True))
    return config


@contextmanager
def followed(config: PipelineConfig, behind_us: int) -> Iterator[None]:
    """As a process does that is so far behind."""
    metadata = metadata_of(config)
    followers.prepare(metadata)
    follower = Follower(metadata, 1.0)
    follower.begin(Watch())
    with follower.kept():
        follower.carried(now_us() - behind_us, 3)
        follower.update()
        yield


def check(file: Path) -> BinlakeFollowedOperator:
    return BinlakeFollowedOperator(task_id="followed", config_file=str(file))


def test_a_source_with_the_section_has_a_dag_that_begins_again_and_again(file: Path) -> None:
    dags = dags_of(file.parent)
    dag = dags["binlake_shop_follow"]
    assert isinstance(dag.timetable, ContinuousTimetable)
    assert dag.task_ids == ["follow"]
    assert DagSerialization.to_dict(dag)["dag"]["max_active_runs"] == 1
    assert not dags["binlake_shop_sync"].get_task("followed").upstream_list
    file.write_text(file.read_text().replace("follow:", "# follow:"))
    dags = dags_of(file.parent)
    assert "binlake_shop_follow" not in dags
    assert "followed" not in dags["binlake_shop_sync"].task_ids


def test_the_task_follows_for_its_hours(file: Path, config: PipelineConfig) -> None:
    task = BinlakeFollowOperator(task_id="follow", config_file=str(file), hours=2 / 3600)
    assert task.execute({}) == {"batches": 1, "mutations": 0}
    position = lease.read(metadata_of(config)).position
    assert position is not None
    assert position.file == LOG.name


def test_the_task_ends_when_it_is_killed(file: Path, config: PipelineConfig) -> None:
    task = BinlakeFollowOperator(task_id="follow", config_file=str(file))
    following = threading.Thread(target=task.execute, args=({},))
    following.start()
    deadline = time.monotonic() + 60
    while not metadata_of(config).read("runs") and time.monotonic() < deadline:
        time.sleep(0.05)
    task.on_kill()
    following.join(30)
    assert not following.is_alive()


def test_before_the_first_snapshot_the_task_is_skipped(file: Path) -> None:
    with pytest.raises(AirflowSkipException):
        BinlakeFollowOperator(task_id="follow", config_file=str(file)).execute({})


def test_somebody_must_follow(file: Path, config: PipelineConfig) -> None:
    with pytest.raises(AirflowException, match="nobody follows the log\n  → unpause binlake_shop_follow"):
        check(file).execute({})
    with followed(config, 2_000_000):
        assert round(check(file).execute({})["behind_seconds"]) == 2
        assert metadata_of(config).swap("followers", "true", {"at_us": now_us() - 60_000_000})
        with pytest.raises(AirflowException, match="nobody follows"):
            check(file).execute({})


def test_whoever_follows_must_not_be_far_behind(file: Path, config: PipelineConfig) -> None:
    with followed(config, 90_000_000), pytest.raises(AirflowException, match="is 90 s behind"):
        check(file).execute({})
