"""What an executor tells of itself, and what the driver makes of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from binlake.config import PipelineConfig
from binlake.doctor.check import Check
from binlake.doctor.reach import lake_checks
from binlake.errors import SetupFailed
from binlake.spark import cluster, executors
from binlake.spark.executors import Lack, LakeProbe


class OneExecutor:
    """A cluster whose tasks run here."""

    master = "spark://here"
    _jvm = SimpleNamespace(System=SimpleNamespace(getProperty=lambda name: "17.0.1"))

    def __init__(self, version: str = pyspark.__version__) -> None:
        self.version = version

    def parallelize(self, items: Any, tasks: int) -> OneExecutor:
        return self

    def map(self, task: Callable[[int], Lack | None]) -> OneExecutor:
        self._found = [task(0)]
        return self

    def collect(self) -> list[Lack | None]:
        return self._found


def tried(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_executors", lambda context: iter([(1, 0)]))
    monkeypatch.setattr(cluster, "_is_dynamic", lambda context: True)
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.7")
    cluster.ready(OneExecutor(), lake)  # type: ignore[arg-type]


def test_a_lake_that_is_read_there_is_no_lack_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried(str(tmp_path / "lake"), monkeypatch)
    assert not list((tmp_path / "lake" / "_binlake").iterdir())


def test_a_host_that_does_not_share_the_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the path is another folder."""
    unread = executors._unread
    elsewhere = LakeProbe(str(tmp_path / "elsewhere" / "probe"), "x")
    monkeypatch.setattr(executors, "_unread", lambda probe: unread(elsewhere))
    with pytest.raises(SetupFailed, match=r"executors on 10\.0\.0\.7 can't read the lake") as caught:
        tried(str(tmp_path / "lake"), monkeypatch)
    assert "a folder that all hosts share" in caught.value.remedy
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "s", "connection": "c", "server_id": 1},
            "tables": {"include": ["d.*"]},
            "lake": {"path": str(tmp_path)},
            "spark": {"master": "spark://here"},
        }
    )

    def session(why: str) -> Any:
        raise caught.value

    folder, hosts = lake_checks(config, session)
    assert (folder.ok, hosts) == (
        True,
        Check("lake by Spark's executors", False, caught.value.message, caught.value.remedy),
    )


def test_a_host_that_does_not_reach_the_store_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = LakeProbe("s3a://bucket/lake/_binlake/probe", "x")
    monkeypatch.setattr(executors, "_unread", lambda probe: "could not connect")
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.7")
    with pytest.raises(SetupFailed, match=r"10\.0\.0\.7 can't read the lake: could not connect") as caught:
        cluster._try(OneExecutor(), 1, probe)  # type: ignore[arg-type]
    assert "let these hosts reach the store" in caught.value.remedy


def test_another_spark_and_another_java_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert executors.lack({}, driver={"Spark": pyspark.__version__, "Java": "17"}) is None
    lacking = executors.lack({}, driver={"Spark": "0.1"})
    assert lacking is not None
    assert (lacking.problems, lacking.others) == ((), (f"Spark {pyspark.__version__}, not 0.1",))
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.7")
    cluster._try(OneExecutor("0.1"), 1, None)  # type: ignore[arg-type]
    assert f"executors on 10.0.0.7 have Spark {pyspark.__version__}, not 0.1" in caplog.text


def test_the_java_of_a_process_is_that_of_the_jvm_which_started_it(tmp_path: Path) -> None:
    """As Spark's daemon of Python is, which forks the workers."""
    (tmp_path / "bin").mkdir()
    program = shutil.copy(shutil.which("bash") or "", tmp_path / "bin" / "java")
    (tmp_path / "release").write_text('IMPLEMENTOR="Debian"\nJAVA_VERSION="21.0.4"\n')
    with subprocess.Popen([program, "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as jvm:
        assert jvm.stdout
        child = int(jvm.stdout.readline())
        assert executors.java_of(child) == executors.java_of(jvm.pid) == "21"
        (tmp_path / "release").unlink()
        assert executors.java_of(child) == ""
        os.kill(child, signal.SIGKILL)
    assert executors.java_of(os.getpid()) == ""
