"""What status says of who works on a source."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from binlake.config import PipelineConfig
from binlake.position import Position
from binlake.state import lease
from binlake.state.lease import Standing
from binlake.state.metadata import Metadata, now_us
from binlake.state.status import read_status


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    """A source with a position."""
    found = PipelineConfig.model_validate(
        {
            "source": {"name": "shop", "connection": "shop", "server_id": 4001},
            "tables": {"include": ["shop.*"]},
            "lake": {"path": str(tmp_path)},
        }
    )
    with lease.held(metadata_of(found)) as held:
        held.stand(Standing(1, Position("s", "b.000001", 4, 1)))
    return found


def metadata_of(config: PipelineConfig) -> Metadata:
    return Metadata(config.metadata_path("").rstrip("/"))


def hold(config: PipelineConfig, holder: str) -> None:
    changes = {"holder": holder, "token": "t", "since_us": now_us(), "expires_us": now_us() + 60_000_000}
    metadata_of(config).swap("lease", "batch = 0", changes)


def test_a_holder_at_work(config: PipelineConfig) -> None:
    with lease.held(metadata_of(config)):
        found = read_status(config)
    assert found.to_json()["holder_died"] is False
    assert f"held by {found.holder}" in found.headline.splitlines()
    assert f"pid {os.getpid()}" in found.headline


def test_a_holder_that_died_on_this_machine(config: PipelineConfig) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    hold(config, f"{socket.gethostname()} pid {gone.pid} started 12345")
    found = read_status(config)
    assert found.to_json()["holder_died"] is True
    assert f"pid {gone.pid} started 12345, which is dead: the next run takes over at once" in found.headline


def test_a_pid_that_another_process_has_by_now(config: PipelineConfig) -> None:
    hold(config, f"{socket.gethostname()} pid {os.getppid()} started 12345")
    assert read_status(config).holder_died


def test_of_a_holder_elsewhere_nobody_can_tell(config: PipelineConfig) -> None:
    hold(config, "other-host pid 1 started 1")
    found = read_status(config)
    assert found.to_json()["holder_died"] is False
    assert "dead" not in found.headline
