"""A peer is built once; where what it is built of can't be had, that is told apart from wrong sources."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import peers
from binlake.versions import HADOOP
from servers import ROOT


@pytest.fixture(autouse=True)
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "sources" / "peer"
    made.mkdir(parents=True)
    (made / "pom.xml").write_text("<project/>")
    monkeypatch.setattr(peers, "SOURCES", made.parent)
    monkeypatch.setattr(peers, "BUILT", tmp_path / "built")
    return made


def maven(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    program = folder / "mvn"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda tool, path=None: str(program))


def test_built_once_until_the_sources_change(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven(monkeypatch, tmp_path, f"echo x >> {tmp_path}/runs")
    for _ in range(2):
        assert peers.built("peer") == tmp_path / "built" / "peer"
    assert (tmp_path / "runs").read_text() == "x\n"
    (sources / "Main.java").write_text("class Main {}")
    peers.built("peer")
    assert (tmp_path / "runs").read_text() == "x\nx\n"


def test_without_the_tool_or_what_it_fetches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven(monkeypatch, tmp_path, "echo 'Could not transfer artifact a:b'; exit 1")
    with pytest.raises(peers.PeerMissing, match="Could not transfer"):
        peers.built("peer")
    monkeypatch.setattr(shutil, "which", lambda tool, path=None: None)
    with pytest.raises(peers.PeerMissing, match="mvn isn't installed"):
        peers.built("peer")


def test_wrong_sources_are_no_missing_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven(monkeypatch, tmp_path, "echo 'COMPILATION ERROR'; exit 1")
    with pytest.raises(SystemExit, match="COMPILATION ERROR"):
        peers.built("peer")


def test_hdfs_is_of_the_hadoop_that_pyspark_brings() -> None:
    assert f"<version>{HADOOP}</version>" in (ROOT / "docker" / "peers" / "hdfs" / "pom.xml").read_text()
