"""Feeds in Airflow: they have a DAG of their own, so that a sync neither waits for a feed nor fails with it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from binlake.config import load
from binlake.errors import ConfigurationError, FeedFollowed
from binlake_airflow.compat import AirflowNotFoundException, AirflowSkipException, BaseHook, BaseOperator
from binlake_airflow.hook import BinlakeHook, fields_of
from binlake_airflow.links import PageLink
from binlake_airflow.submit import airflow_errors
from binlake_airflow.task_log import LogsHarmlessly

if TYPE_CHECKING:
    from binlake.config.feed_config import FeedConfig
    from binlake.feeds.carry import Parts
    from binlake.feeds.contract import Sink
    from binlake.source.endpoint import Endpoint
    from binlake_airflow.compat import Context


class BinlakeFeedOperator(LogsHarmlessly, BaseOperator):
    """Carry one feed of a source to the newest recorded batch, in this process: it needs neither server nor Spark.

    :param config_file: the source's YAML (templated)
    :param feed: the feed's name there (templated)
    :param feeds_file: the file of feeds that has it, where that isn't the source's YAML (templated)
    """

    template_fields: Sequence[str] = ("config_file", "feed", "feeds_file")
    ui_color = "#fff4e0"
    operator_extra_links = (PageLink(),)

    def __init__(self, *, config_file: str, feed: str, feeds_file: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config_file = config_file
        self.feed = feed
        self.feeds_file = feeds_file

    def execute(self, context: Context) -> dict[str, Any]:
        """Carry the feed, and return its counts. Raises ConfigurationError where the file has no such feed."""
        from binlake.feeds.carry import carry
        from binlake.feeds.feeds_file import hold_staging, understood
        from binlake.feeds.registry import PARTS

        with airflow_errors():
            config = load(self.config_file)
            file = self.feeds_file or self.config_file
            feeds = understood(file, self.feed)
            known = [feed for source, feed in feeds if source.source.name == config.source.name]
            feed = next((feed for feed in known if feed.name == self.feed), None)
            if feed is None:
                raise ConfigurationError(f"{file} has no feed {self.feed!r}", remedy="let Airflow read the DAGs again")
            if not feed.enabled:
                raise AirflowSkipException(f"feed {self.feed} stays where it is: {file} has enabled: false")
            if self.feeds_file:
                hold_staging(feeds)
            lend_connections(feed)
            try:
                run = carry(config, feed, PARTS)
            except FeedFollowed as followed:
                raise AirflowSkipException(followed.message) from None
        self.log.info("%s", run.message)
        return run.to_json()


def lend_connections(feed: FeedConfig) -> None:
    """Put Airflow's connections of sink and schema registry into this process's environment, where the engine looks for
    them, and let it look up that of the position in Airflow itself, whenever the account is refused.

    Raises ConfigurationError if one isn't defined.
    """
    from binlake.feeds import positions

    positions.look_up = _endpoint
    of_registry = feed.registry[1] if feed.registry else None
    for name in filter(None, (feed.sink.connection, of_registry)):
        _lend(name)


def with_connections(parts: Parts) -> Parts:
    """Return makers whose sinks are made with the feed's connections as Airflow has them then: a feed that failed is
    opened again, and so a changed password is picked up."""

    def make_sink(feed: FeedConfig, source: str) -> Sink:
        lend_connections(feed)
        return parts.make_sink(feed, source)

    return replace(parts, make_sink=make_sink)


def _endpoint(connection: str) -> Endpoint:
    return BinlakeHook(connection).endpoint()


def _lend(name: str) -> None:
    """Put one connection there, and the SSH connection that its extra names."""
    from binlake.storage.connection_text import variable_of

    try:
        connection = BaseHook.get_connection(name)
    except AirflowNotFoundException:
        raise ConfigurationError(
            f"the connection {name!r} isn't defined in Airflow", remedy="add it under Admin → Connections"
        ) from None
    os.environ[variable_of(name)] = json.dumps({"conn_type": connection.conn_type, **fields_of(connection)})
    through = connection.extra_dejson.get("ssh")
    if isinstance(through, str) and through and "://" not in through:
        _lend(through)
