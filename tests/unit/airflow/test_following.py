"""A source that is followed: the task that follows it, and the check that somebody does."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from airflow_places import ContinuousTimetable, DagSerialization
from binlake import pipeline
from binlake.config import PipelineConfig, load
from binlake.lease import followers, lease
from binlake.lease.followers import Follower
from binlake.lease.holder import Watch
from binlake.phases import follow
from binlake.report import Report
from binlake.source import log
from binlake.spark.starting import no_session
from binlake.store.metadata import metadata_of, now_us
from binlake_airflow import following
from binlake_airflow.compat import AirflowException, AirflowFailException, AirflowRescheduleException
from binlake_airflow.following import BinlakeFollowedOperator, BinlakeFollowOperator
from binlake_airflow.pipelines import dags_of

if TYPE_CHECKING:
    from airflow.sdk import Context

LOG = Path(__file__).parents[2] / "binlogs" / "mysql-plain.000001"
YAML = """
source: {name: shop, connection: "FOLDER"}
tables: {include: ["another.*"]}
lake: {path: ./lake}
follow: {every: 50ms}
"""


@dataclass
class Task:
    """What Airflow says to a task: whether its DAG is paused, and how the run before it ended."""

    paused: bool = False
    before: str | None = None
    dag_id: str = "binlake_shop_follow"

    def get_dag(self, dag_id: str) -> Any:
        assert dag_id == self.dag_id
        return SimpleNamespace(is_paused=self.paused)

    def get_previous_dagrun(self) -> Any:
        return self.before and SimpleNamespace(state=self.before)

    @property
    def context(self) -> Context:
        return cast("Context", {"ti": self})


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
    pipeline.bootstrap(config, log.origin(config.source), no_session, Report(quiet=True))
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
    task = dag.get_task("follow")
    assert (task.retry_delay, task.retry_exponential_backoff) == (timedelta(seconds=5), 0)
    assert DagSerialization.to_dict(dag)["dag"]["max_active_runs"] == 1
    assert not dags["binlake_shop_sync"].get_task("followed").upstream_list
    file.write_text(file.read_text().replace("follow:", "# follow:"))
    dags = dags_of(file.parent)
    assert "binlake_shop_follow" not in dags
    assert "followed" not in dags["binlake_shop_sync"].task_ids


@pytest.fixture
def hour_after_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour passes for a process that follows, once it has carried a batch."""
    carried, passed = Follower.carried, [0.0]

    def carried_an_hour_ago(follower: Follower, us: int, batch: int | None) -> None:
        carried(follower, us, batch)
        passed[0] = 3600.0

    monkeypatch.setattr(Follower, "carried", carried_an_hour_ago)
    monkeypatch.setattr(follow, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0]))


@pytest.mark.usefixtures("hour_after_a_batch")
def test_the_task_follows_for_its_hours(file: Path, config: PipelineConfig) -> None:
    task = BinlakeFollowOperator(task_id="follow", config_file=str(file), hours=1)
    assert task.execute(Task().context) == {"batches": 1, "mutations": 0}
    position = lease.read(metadata_of(config)).position
    assert position is not None
    assert position.file == LOG.name


@contextmanager
def at_work(file: Path, config: PipelineConfig, state: Task) -> Iterator[BinlakeFollowOperator]:
    """Run the task in a thread; it has carried a batch, and must have ended after the context."""
    task = BinlakeFollowOperator(task_id="follow", config_file=str(file))
    thread = threading.Thread(target=task.execute, args=(state.context,))
    thread.start()
    deadline = time.monotonic() + 60
    while not metadata_of(config).read("runs") and time.monotonic() < deadline:
        time.sleep(0.05)
    yield task
    thread.join(30)
    assert not thread.is_alive()


def test_the_task_ends_when_it_is_killed(file: Path, config: PipelineConfig) -> None:
    with at_work(file, config, Task()) as task:
        task.on_kill()


def test_the_task_ends_when_its_dag_is_paused(
    file: Path, config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_LOOK_FOR_PAUSE", 0.02)
    state = Task()
    with at_work(file, config, state):
        state.paused = True


def test_the_task_ends_when_it_is_an_orphan(
    file: Path, config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = [700]
    monkeypatch.setattr(following, "_LOOK_FOR_PAUSE", 0.02)
    monkeypatch.setattr(following, "_parent", lambda: parents[-1])
    with at_work(file, config, Task()):
        parents.append(1)
    assert followers.read_status(metadata_of(config)) is None


@pytest.mark.usefixtures("hour_after_a_batch")
def test_a_dag_that_is_paused_from_the_beginning_can_be_tried(
    file: Path, config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_LOOK_FOR_PAUSE", 0.02)
    task = BinlakeFollowOperator(task_id="follow", config_file=str(file), hours=1)
    assert task.execute(Task(paused=True).context)["batches"] == 1


def in_a_minute(file: Path, state: Task) -> None:
    """The task gives its slot back, and waits: else the DAG would begin one run after the other."""
    with pytest.raises(AirflowRescheduleException) as raised:
        BinlakeFollowOperator(task_id="follow", config_file=str(file)).execute(state.context)
    wait = raised.value.reschedule_date - datetime.now(UTC)
    assert timedelta(seconds=30) < wait <= timedelta(minutes=1)


def test_before_the_first_snapshot_the_task_waits(file: Path) -> None:
    in_a_minute(file, Task())


def test_what_no_retry_helps_fails_a_run_and_the_next_one_waits(file: Path, config: PipelineConfig) -> None:
    shutil.rmtree(file.parent / "log")
    with pytest.raises(AirflowFailException):
        BinlakeFollowOperator(task_id="follow", config_file=str(file)).execute(Task(before="success").context)
    in_a_minute(file, Task(before="failed"))


def test_somebody_must_follow(file: Path, config: PipelineConfig) -> None:
    with pytest.raises(AirflowException, match="nobody follows the log\n  → unpause binlake_shop_follow"):
        check(file).execute({})
    with followed(config, 2_000_000):
        assert round(check(file).execute({})["behind_seconds"]) == 2
        assert metadata_of(config).swap("followers", "true", {"at_us": now_us() - 60_000_000})
        with pytest.raises(AirflowException, match="gives no sign of life: it hangs or is dead"):
            check(file).execute({})


def test_whoever_follows_must_not_be_far_behind(file: Path, config: PipelineConfig) -> None:
    with followed(config, 90_000_000), pytest.raises(AirflowException, match="is 90 s behind"):
        check(file).execute({})
