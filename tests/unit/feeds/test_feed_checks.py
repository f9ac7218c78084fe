"""What the doctor says of feeds, and how a feed is forgotten."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from binlake.cli import command_line
from binlake.config import PipelineConfig
from binlake.errors import ConfigurationError
from binlake.feeds import feed_checks
from binlake.feeds.carry import carry
from binlake.feeds.registry import PARTS
from binlake.feeds.sinks import kafka
from binlake.records import feed_watermarks
from binlake.store.metadata import metadata_of
from fake_registry import FakeRegistry

if TYPE_CHECKING:
    from pathlib import Path


def source(folder: Path, **feed: Any) -> dict[str, Any]:
    made = {"name": "out", "format": "text", "sink": f"file://{folder}/out", **feed}
    settings = {"source": {"name": "shop", "connection": folder.as_uri()}, "lake": {"path": str(folder / "lake")}}
    return {**settings, "tables": {"include": ["a.*"]}, "feeds": [made]}


def said(folder: Path, **feed: Any) -> dict[str, tuple[object, str]]:
    checks = feed_checks.checks(PipelineConfig.model_validate(source(folder, **feed)))
    return {check.name.removeprefix("feed out, "): (check.ok, check.found) for check in checks}


def test_a_file_of_feeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its feeds are tried with each of their sources; the staging waits for them from the first run of any on."""
    own = source(tmp_path)
    (tmp_path / "shop.yaml").write_text(json.dumps({**own, "feeds": []}))
    feeds = [{**own["feeds"][0], "name": name, "sources": ["shop.yaml"]} for name in ("one", "two")]
    file = tmp_path / "feeds.yaml"

    def write(**more: Any) -> None:
        file.write_text(json.dumps({"feeds": [feeds[0], {**feeds[1], **more}]}))

    write(where="op =")
    assert command_line.run(["doctor", "--config", str(file)]) == 1
    said = capsys.readouterr().out
    assert "FAIL  source shop: no table has a snapshot yet" in said
    assert f"ok    feed one of shop, sink: {tmp_path}/out/shop can be written" in said
    assert "FAIL  feed two of shop, where" in said
    assert command_line.run(["doctor", "--config", str(file), "--second-opinion"]) == 2
    assert command_line.run(["feed", "--config", str(file), "--feed", "two"]) == 2
    assert "feeds.yaml, feed two: where: 'op ='" in capsys.readouterr().err
    metadata = metadata_of(PipelineConfig.model_validate(own))
    assert not metadata.read("feeds")
    write(begin="now")
    assert command_line.run(["feed", "--config", str(file), "--feed", "two", "--quiet"]) == 2, (
        "no table has a snapshot yet"
    )
    assert [row["feed"] for row in metadata.read("feeds", ["feed"], where="feed = 'one'")] == ["one"]


def test_each_part_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_PATIENCE", 2.0)
    assert said(tmp_path, where="op = 'insert'") == {
        "where": (True, "op = 'insert'"), "sink": (True, f"{tmp_path}/out/shop can be written")
    }  # fmt: skip
    assert not (tmp_path / "out").exists()
    assert said(tmp_path, where="sleep(1) = 2")["where"][0] is False
    ok, shown = said(tmp_path, sink="kafka://127.0.0.1:1")["sink"]
    assert (ok, shown.startswith("Kafka at 127.0.0.1:1 didn't answer")) == (False, True)
    unknown = {"url": "kafka://127.0.0.1:1", "settings": {"no.such": "1"}}
    assert "no.such" in said(tmp_path, sink=unknown)["sink"][1]
    assert said(tmp_path, sink="http://127.0.0.1:1/x")["sink"][0] is False
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert said(tmp_path, sink=f"http://{address}/x")["sink"] == (True, f"{address} can be reached")
    (tmp_path / "file").write_text("")
    assert said(tmp_path, sink=f"file://{tmp_path}/file/x")["sink"] == (False, f"{tmp_path}/file can't be written")
    webhook = f"http://{address}/x"
    assert said(tmp_path, position="no_such_module:Class", sink=webhook)["position"][0] is False
    with FakeRegistry("Bearer x") as registry:
        encoding = {"type": "specific", "registry": registry.url}
        assert "401" in said(tmp_path, format=encoding)["registry"][1]
        monkeypatch.setenv("AIRFLOW_CONN_R", '{"extra": {"token": "x"}}')
        encoding["registry_connection"] = "r"
        assert said(tmp_path, format=encoding)["registry"] == (True, f"{registry.url} has 0 subjects")


def test_a_bad_condition_stands_in_status_and_a_forgotten_feed_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = source(tmp_path, where="1 +")
    config = PipelineConfig.model_validate(file)
    with pytest.raises(ConfigurationError):
        carry(config, config.feeds[0], PARTS)
    (status,) = feed_watermarks.statuses(config, metadata_of(config))
    assert (status.status, bool(status.reason), bool(status.remedy), status.in_yaml) == ("stopped", True, True, True)
    disabled = [config.feeds[0].model_copy(update={"enabled": False})]
    (resting,) = feed_watermarks.statuses(config.model_copy(update={"feeds": disabled}), metadata_of(config))
    assert resting == replace(status, status="disabled")
    path = tmp_path / "shop.yaml"
    path.write_text(json.dumps({**file, "feeds": [{**file["feeds"][0], "where": None, "enabled": False}]}))
    assert command_line.run(["feed", "--config", str(path)]) == 0
    assert "feed out stays where it is on shop" in capsys.readouterr().err
    (taken_out,) = feed_watermarks.statuses(config.model_copy(update={"feeds": []}), metadata_of(config))
    assert taken_out == replace(status, in_yaml=False)
    path.write_text(json.dumps({**file, "feeds": []}))
    assert command_line.run(["feed", "--config", str(path), "--forget", "out"]) == 0
    assert "feed out is forgotten on shop" in capsys.readouterr().err
    assert feed_watermarks.read(metadata_of(config), "out") is None
    assert command_line.run(["feed", "--config", str(path), "--forget", "out"]) == 2
