"""Classes of one's own for sinks, positions and errors: by the entry points of an installed package, and by module and
class."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from binlake.cli import command_line
from binlake.config import PipelineConfig
from binlake.config.feed_config import FeedConfig
from binlake.errors import BinlakeError, ConfigurationError
from binlake.feeds import error_layers, feed_checks, plugins, positions, registry
from binlake.feeds.carry import carry
from binlake.feeds.feeds_file import understood
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.position import Position
from binlake.records.feed_watermarks import FeedPosition
from binlake.store.metadata import metadata_of

MODULE = """
from binlake.feeds.error_layers import FlagErrors

SENT = []


class Sink:
    keeps_position = False

    def __init__(self, feed, source):
        self.url, self.source = feed.sink.url, source

    def begin(self):
        SENT.append(("begin", self.url, self.source))

    def send(self, messages):
        SENT.extend(messages)

    def commit(self, position):
        SENT.append(("commit", position.batch))

    def position(self):
        return None

    def close(self):
        SENT.append(("close",))


class Store:
    kept = {}

    def __init__(self, feed, source):
        self._name = (source, feed)

    def read(self):
        return self.kept.get(self._name)

    def write(self, position):
        self.kept[self._name] = position


class Errors(FlagErrors):
    pass


def wrong(*given, **named):
    return object()


def broken(*given, **named):
    return 1 / 0
"""
ENTRY_POINTS = """
[binlake.feed_sinks]
loft = loft_of_feeds:Sink
wrong = loft_of_feeds:wrong
gone = loft_of_feeds:Gone

[binlake.feed_positions]
loft = loft_of_feeds:Store
wrong = loft_of_feeds:wrong
gone = loft_of_feeds:Gone

[binlake.feed_errors]
loft = loft_of_feeds:Errors
wrong = loft_of_feeds:wrong
gone = loft_of_feeds:Gone
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package on the path, as an installer leaves it."""
    package = tmp_path / "packages"
    info = package / "loft_of_feeds-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loft-of-feeds\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (package / "loft_of_feeds.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(package))
    sys.modules.pop("loft_of_feeds", None)  # another test's


def settings(sink: str = "loft://attic", position: str = "loft", handler: str = "loft") -> dict[str, Any]:
    named = {"position": position, "errors": {"handler": handler}}
    return {"name": "out", "format": {"type": "debezium"}, "sink": sink, **named}


def source(folder: Path, **feed: str) -> PipelineConfig:
    given = {"source": {"name": "shop", "connection": folder.as_uri()}, "lake": {"path": str(folder / "lake")}}
    return PipelineConfig.model_validate({**given, "tables": {"include": ["a.*"]}, "feeds": [settings(**feed)]})


@pytest.mark.parametrize("name", ["loft", "loft_of_feeds:"])
def test_all_three_are_made_and_used(tmp_path: Path, name: str) -> None:
    classes = ("Sink", "Store", "Errors") if name.endswith(":") else ("://attic", "", "")
    sink, position, handler = (name + plugin for plugin in classes)
    config = source(tmp_path, sink=sink, position=position, handler=handler)
    metadata = metadata_of(config)
    with lease.held(metadata) as held:
        held.stand(RecordedState(0, Position("mysql-1-a", "b.000001", 4, 1)))
    assert carry(config, config.feeds[0], registry.PARTS).messages == 1
    import loft_of_feeds  # type: ignore[import-not-found]  # installed by the fixture

    begun, heartbeat, *rest = loft_of_feeds.SENT[2:]
    assert begun == ("begin", sink, "shop")
    assert json.loads(heartbeat.value)["ts_ms"]
    assert rest == [("commit", 0), ("close",)]
    assert loft_of_feeds.Store.kept == {("shop", "out"): FeedPosition(0)}
    assert type(error_layers.handler_of(config.feeds[0])) is loft_of_feeds.Errors


def test_a_position_that_a_sink_of_ones_own_would_overrule_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import loft_of_feeds

    monkeypatch.setattr(loft_of_feeds.Sink, "keeps_position", True)
    config = source(tmp_path)
    with lease.held(metadata_of(config)) as held:
        held.stand(RecordedState(0, Position("mysql-1-a", "b.000001", 4, 1)))
    with pytest.raises(ConfigurationError, match="position: loft would have no effect: the sink loft://attic"):
        carry(config, config.feeds[0], registry.PARTS)


GROUPS = {"sink": registry.OWN_SINKS, "position": positions.STORES, "errors.handler": error_layers.HANDLERS}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("loff", r"there is no 'loff'; there are: .*gone, loft, wrong"),
        ("gone", r"gone \(loft_of_feeds:Gone\) can't be imported"),
        ("no_such:Module", "no_such:Module .* can't be imported"),
        ("wrong", "wrong has no "),
        ("loft_of_feeds:broken", "loft_of_feeds:broken can't be made: division by zero"),
    ],
)
@pytest.mark.parametrize("setting", GROUPS)
def test_what_is_wrong_with_one_is_told_alike(setting: str, name: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{setting}: {why}"):
        GROUPS[setting].make(name, 7)


def test_binlakes_own_are_among_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="there are: binlog, file, http, https, kafka, gone, loft, wrong"):
        registry.OWN_SINKS.load("ftp")
    with pytest.raises(ConfigurationError, match=r"there are: metadata, file:/folder, mysql:.*, gone, loft, wrong"):
        positions.STORES.load("etcd")


def test_an_unknown_one_is_refused_before_a_feed_is_carried_and_the_mirror_does_not_mind(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    for feed in ({"sink": "ftp://h/out"}, {"position": "etcd"}, {"handler": "mail"}):
        config = source(tmp_path, **feed)
        file.write_text(json.dumps(config.model_dump()))
        with pytest.raises(ConfigurationError, match=rf"{file}, feed out: .*there is no '\w+'; there are: .*loft"):
            understood(file)
        assert command_line.run(["feed", "--config", str(file)]) == 2
        assert command_line.run(["status", "--config", str(file)]) == 0
        assert [check.ok for check in feed_checks.checks(config)].count(False) == 1


def test_a_feed_is_carried_by_its_name_beside_one_with_an_unknown_sink(tmp_path: Path) -> None:
    config = source(tmp_path)
    with lease.held(metadata_of(config)) as held:
        held.stand(RecordedState(0, Position("mysql-1-a", "b.000001", 4, 1)))
    wrong = FeedConfig.model_validate({**settings("ftp://h/out"), "name": "wrong"})
    file = tmp_path / "shop.yaml"
    file.write_text(json.dumps(config.model_copy(update={"feeds": [*config.feeds, wrong]}).model_dump()))
    exits = {name: command_line.run(["feed", "--config", str(file), "--feed", name]) for name in ("out", "wrong")}
    assert exits == {"out": 0, "wrong": 2}
    assert [feed.name for _, feed in understood(file, "out")] == ["out", "wrong"]
    with pytest.raises(ConfigurationError, match="feed wrong"):
        understood(file)


def test_errors_of_ones_own_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses:
        def __init__(self, *given: object) -> None:
            raise BinlakeError("no room", remedy="make room")

    group = plugins.PluginGroup("sink", "binlake.feed_sinks", (), (), "a sink")
    monkeypatch.setattr(plugins.PluginGroup, "load", lambda self, name: Refuses)
    with pytest.raises(BinlakeError, match="no room"):
        group.make("loft", 7)


def test_a_name_must_be_one() -> None:
    for wrong in ({"sink": "/folder"}, {"sink": "a b"}, {"sink": "loft://u:p@h"}, {"position": "a b"}):
        with pytest.raises(ValueError, match=r"is no sink|is none of|holds a user"):
            FeedConfig.model_validate(settings(**wrong))
