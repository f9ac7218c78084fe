"""A lake that is gone isn't begun again unless somebody says so; a first one begins without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake import config, pipeline
from binlake.cli import command_line
from binlake.config import PipelineConfig
from binlake.doctor.preflight import preflight
from binlake.errors import LakeGone
from binlake.lease import lease
from binlake.report import Report
from binlake.source.endpoint import Endpoint
from binlake.store import known_lakes
from binlake.store.metadata import metadata_of, now_us
from past import Past

NOWHERE = Endpoint("127.0.0.1", 1, "u", "p")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A source's YAML, whose lake is at a position and lies on a disk of its own."""
    file = tmp_path / "shop.yaml"
    file.write_text(
        "source: {name: shop, connection: shop_mysql, server_id: 4001}\n"
        f"tables: {{include: ['shop.*']}}\nlake: {{path: {tmp_path}/disk/lake}}\n"
    )
    Past(config.load(file), now_us()).write()
    return file


@pytest.fixture
def unmounted(file: Path, tmp_path: Path) -> PipelineConfig:
    (tmp_path / "disk").rename(tmp_path / "elsewhere")
    (tmp_path / "disk").mkdir()
    return config.load(file)


def never() -> None:
    raise AssertionError("Spark is started")


@pytest.mark.parametrize("command", ["status", "sync", "maintain", "snapshot"])
def test_no_command_begins_a_lake_in_the_place_of_one_that_is_gone(
    unmounted: PipelineConfig, file: Path, tmp_path: Path, command: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MYSQL", "mysql://u:p@127.0.0.1:1/")
    assert command_line.run([command, "--config", str(file), "--quiet"]) == 3
    said = capsys.readouterr().err
    assert "the lake is gone" in said
    assert "mount its disk" in said
    assert not list((tmp_path / "disk").iterdir())


def test_doctor_says_so_and_makes_nothing(unmounted: PipelineConfig, tmp_path: Path) -> None:
    (check,) = preflight(unmounted, NOWHERE)
    assert (check.name, check.ok) == ("lake", False)
    assert "--begin" in check.remedy
    assert not list((tmp_path / "disk").iterdir())


def test_a_lake_that_comes_back_goes_on(unmounted: PipelineConfig, file: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "disk")
    metadata_of(unmounted).begin_again()  # gives nothing up: the lake is there
    assert known_lakes.last_seen(f"{unmounted.root}/_binlake")
    assert command_line.run(["status", "--config", str(file), "--quiet"]) == 0


def test_whoever_says_so_begins_a_new_one(unmounted: PipelineConfig) -> None:
    with pytest.raises(LakeGone), lease.held(metadata_of(unmounted)):
        pass
    with pytest.raises(Exception, match="connect to MySQL"):
        pipeline.bootstrap(unmounted, NOWHERE, never, Report(quiet=True), begin=True)  # type: ignore[arg-type]  # no session
    with lease.held(metadata_of(unmounted)) as held:
        assert held.control().recorded_state is None


def test_an_account_without_a_home_remembers_nothing(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    (tmp_path / "disk").rename(tmp_path / "elsewhere")
    with lease.held(metadata_of(config.load(file))) as held:
        assert held.control().recorded_state is None


def test_nothing_stands_in_the_way_of_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    known_lakes.remember("/lake/shop/_binlake")
    assert known_lakes.last_seen("/lake/shop/_binlake") is None
