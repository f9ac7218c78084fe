"""The operator of feeds: which feed it carries, with which connections, and what it says of others."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, cast

import pytest
from airflow.sdk import BaseHook, Connection

import binlake.feeds.feeds_file  # noqa: F401 - it takes the function by its name, and not the test's
from binlake.config.feed_config import FeedConfig
from binlake.feeds import carry as carrying, positions
from binlake.feeds.carry import Parts
from binlake.source.connection import fields_of, from_environment
from binlake_airflow.compat import AirflowException, AirflowNotFoundException, AirflowSkipException
from binlake_airflow.feeding import BinlakeFeedOperator, with_connections

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Context

FEED = {
    "name": "out", "sink": {"url": "https://b/x", "connection": "hook_shop"}, "position": "mysql:places/a.places",
    "format": {"type": "specific", "registry": "http://r", "registry_connection": "registry"},
}  # fmt: skip


class Run:
    message = "carried"

    def to_json(self) -> dict[str, Any]:
        return {"feed": "out"}


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    fed: list[tuple[str, str]] = []

    def carry(config: Any, feed: Any, parts: Any) -> Run:
        fed.append((config.source.name, feed.name))
        return Run()

    monkeypatch.setattr(carrying, "carry", carry)
    for name in ("HOOK_SHOP", "REGISTRY"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", "")
    monkeypatch.setattr(positions, "look_up", from_environment)
    return fed


def source(folder: Path, *feeds: Any) -> str:
    settings = {"source": {"name": "shop", "connection": folder.as_uri()}, "lake": {"path": str(folder / "lake")}}
    path = folder / "shop.yaml"
    path.write_text(json.dumps({**settings, "tables": {"include": ["a.*"]}, "feeds": feeds}))
    return str(path)


def execute(**arguments: Any) -> Any:
    return BinlakeFeedOperator(task_id="t", feed="out", **arguments).execute(cast("Context", {}))


def test_connections_are_lent_and_the_feed_is_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carried: list[tuple[str, str]]
) -> None:
    asked = Connection(conn_id="x", conn_type="generic", login="ann", password="p", extra='{"x": "t"}')
    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(lambda name: asked))
    assert execute(config_file=source(tmp_path, FEED)) == {"feed": "out"}
    assert positions.look_up("places").account == ("ann", "p", None)
    for name in ("HOOK_SHOP", "REGISTRY"):
        lent = json.loads(os.environ[f"AIRFLOW_CONN_{name}"])
        assert (lent["login"], lent["password"], lent["extra"]) == ("ann", "p", {"x": "t"})
    several = tmp_path / "several.yaml"
    several.write_text(json.dumps({"feeds": [{**FEED, "sources": ["shop.yaml"]}]}))
    execute(config_file=source(tmp_path), feeds_file=str(several))
    assert carried == [("shop", "out")] * 2


def test_a_feed_that_is_opened_again_has_its_connections_as_they_are_then(
    monkeypatch: pytest.MonkeyPatch, carried: list[tuple[str, str]]
) -> None:
    """A follower opens a feed again that failed, as one does whose account is refused."""
    passwords = {"hook_shop": "first", "registry": "first"}

    def get_connection(name: str) -> Connection:
        return Connection(conn_id=name, conn_type="generic", login="ann", password=passwords[name])

    def make_sink(feed: FeedConfig, source: str) -> Any:
        return [fields_of(name)["password"] for name in passwords]

    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(get_connection))
    parts: Any = with_connections(Parts(cast("Any", None), make_sink))
    feed = FeedConfig.model_validate(FEED)
    assert parts.make_sink(feed, "shop") == ["first", "first"]
    passwords["registry"] = "second"
    assert parts.make_sink(feed, "shop") == ["first", "second"]
    passwords["hook_shop"] = "second"
    assert parts.make_sink(feed, "shop") == ["second", "second"]


def test_a_feed_or_a_connection_that_isnt_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carried: list[tuple[str, str]]
) -> None:
    def get_connection(name: str) -> None:
        raise AirflowNotFoundException(name)

    monkeypatch.setattr(BaseHook, "get_connection", get_connection)
    with pytest.raises(AirflowException, match="has no feed 'out'"):
        execute(config_file=source(tmp_path))
    with pytest.raises(AirflowException, match="'hook_shop' isn't defined in Airflow"):
        execute(config_file=source(tmp_path, FEED))
    assert not carried


def test_before_the_first_snapshot_a_feed_is_skipped(tmp_path: Path) -> None:
    file = source(tmp_path, {"name": "out", "format": "text", "sink": tmp_path.as_uri()})
    with pytest.raises(AirflowSkipException, match="no table has a snapshot yet"):
        execute(config_file=file)


def test_a_feed_that_is_not_enabled_is_skipped(tmp_path: Path, carried: list[tuple[str, str]]) -> None:
    with pytest.raises(AirflowSkipException, match="enabled: false"):
        execute(config_file=source(tmp_path, {**FEED, "enabled": False}))
    assert not carried
