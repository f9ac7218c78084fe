"""A lake on a disk that is full, read-only or another account's: the remedy alone is told, and no page of Rust's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from binlake.cli import printing
from binlake.config import PipelineConfig
from binlake.doctor import reach
from binlake.errors import LakeError
from binlake.lease import followers, lease
from binlake.lease.followers import Follower
from binlake.lease.holder import Watch, known_here
from binlake.records.status import read_status
from binlake.storage import storage_errors
from binlake.store.metadata import metadata_of, now_us

HOLD = """
import sys
from binlake.errors import BinlakeError
from binlake.lease import lease
from binlake.store.metadata import Metadata
try:
    with lease.held(Metadata(sys.argv[1])) as held:
        pass
except BinlakeError as error:
    print(f"binlake: {error}", file=sys.stderr)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def config(disk: Path) -> PipelineConfig:
    """A source whose lake was begun there."""
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "shop", "connection": "shop", "server_id": 4001},
            "tables": {"include": ["shop.*"]},
            "lake": {"path": str(disk)},
        }
    )
    with lease.held(metadata_of(config)):
        return config


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            continue
    assert not os.statvfs(disk).f_bavail


def held_elsewhere(config: PipelineConfig) -> str:
    """What another process says that takes the lease."""
    command = [sys.executable, "-c", HOLD, f"{config.root}/_binlake"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def test_a_full_disk(config: PipelineConfig, disk: Path) -> None:
    fill(disk)
    said = held_elsewhere(config)
    assert said.startswith("binlake: can't write the metadata table")
    assert storage_errors.FREE in said
    assert "panicked" not in said


def test_a_read_only_disk(config: PipelineConfig, disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    said = held_elsewhere(config)
    assert said.startswith("binlake: can't write the metadata table")
    assert "Read-only file system" in said
    assert storage_errors.ALLOW in said
    assert "panicked" not in said


@contextmanager
def another_account() -> Iterator[None]:
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_lake_of_another_account_that_can_be_read(config: PipelineConfig, disk: Path) -> None:
    for folder in disk.parents[:3]:
        folder.chmod(0o755)
    with another_account(), pytest.raises(LakeError, match="Permission denied") as refused:
        metadata_of(config).append("runs", [{"run": "1"}])
    assert refused.value.remedy == storage_errors.ALLOW


def test_a_lake_of_another_account_that_can_not_be_entered(config: PipelineConfig, disk: Path) -> None:
    """It isn't gone, nor without a snapshot, nor damaged."""
    disk.chmod(0o700)
    with another_account(), pytest.raises(LakeError, match="Permission denied") as refused:
        lease.read(metadata_of(config))
    assert refused.value.remedy == storage_errors.ALLOW


@pytest.mark.parametrize("full", [False, True])
def test_doctor_tells_a_full_disk_from_a_writable_one(config: PipelineConfig, disk: Path, full: bool) -> None:
    if full:
        fill(disk)
    (check,) = reach.lake_checks(config, None)
    assert check.ok is not full
    assert ("No space left" in check.found) == full
    assert [path.name for path in Path(f"{config.root}/_binlake").iterdir()] == ["lease"], "no probe is left"


def test_a_follower_on_a_full_disk_is_told_from_one_that_died(
    config: PipelineConfig, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can't renew its row, and lives."""
    metadata = metadata_of(config)
    followers.prepare(metadata)
    follower = Follower(metadata, 1.0)
    with known_here(follower._token):
        follower.begin(Watch())
        monkeypatch.setattr(followers, "now_us", lambda: now_us() + 60_000_000)
        assert "followed it, last seen" in said_of_follower(config)
        fill(disk)
        said = said_of_follower(config)
    assert "follows it, and can't write since" in said
    assert "No space left on device" in said
    assert "takes over" not in said


def said_of_follower(config: PipelineConfig) -> str:
    status = read_status(config, metadata_of(config))
    return "\n".join(printing.status_lines(status, "the server isn't asked here"))
