"""``binlake feed``, ``binlake tail`` and ``binlake console-consumer``."""

from __future__ import annotations

import argparse
import sys
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from binlake import config as configuration
from binlake.cli import printing
from binlake.cli.step_commands import parse_until
from binlake.config import PipelineConfig
from binlake.config.feed_config import FeedConfig
from binlake.errors import BinlakeError, FeedFollowed, LakeError, UsageError
from binlake.feeds.carry import FeedRun, carry, rarely_collected
from binlake.feeds.console import Tail, tail as print_tail
from binlake.feeds.consume import Consuming, SchemaOf, consume
from binlake.feeds.feeds_beside import follow_feeds
from binlake.feeds.feeds_file import Feeds, FeedsOnDisk, feeds_of, hold_staging, is_file_of_feeds, understood
from binlake.feeds.registry import PARTS
from binlake.feeds.schema_registry import SchemaRegistry
from binlake.feeds.sinks.kafka import credentials
from binlake.interrupts import Ending
from binlake.kernels import heap
from binlake.records import feed_watermarks
from binlake.report import Report
from binlake.store.metadata import metadata_of


def _chosen(arguments: argparse.Namespace, known: Feeds) -> Feeds:
    """Return the feed that the arguments name, or all. Raises UsageError if there is none."""
    chosen = [(config, feed) for config, feed in known if arguments.feed in (None, feed.name)]
    if not chosen:
        if arguments.feed is None:
            remedy = "write a section feeds into it; binlake help feeds shows how"
            raise UsageError(f"{arguments.config} has no feeds", remedy=remedy)
        names = ", ".join(dict.fromkeys(feed.name for _, feed in known)) or "none"
        raise UsageError(
            f"there is no feed {arguments.feed!r} in {arguments.config}; there are: {names}",
            remedy="add it under feeds: in the YAML",
        )
    return chosen


def _enabled(chosen: Feeds, report: Report) -> Feeds:
    """Return the feeds that may be carried, and say which may not."""
    for config, feed in chosen:
        if not feed.enabled:
            report.say(f"feed {feed.name} stays where it is on {config.source.name}: enabled: false")
    return [(config, feed) for config, feed in chosen if feed.enabled]


def feed(arguments: argparse.Namespace) -> None:
    """Carry the chosen feeds; the first error is raised after all have had their turn."""
    report, until = Report(quiet=arguments.quiet), parse_until(arguments.until)
    if arguments.follow:
        _follow(arguments, report)
        return
    if arguments.forget is not None:
        _forget(arguments.config, arguments.forget, report)
        return
    runs: list[FeedRun] = []
    failed: list[BinlakeError] = []
    known = understood(arguments.config, arguments.feed)
    chosen = _chosen(arguments, known)
    if not (arguments.restart_from and arguments.feed):  # asked for by name, a feed with enabled: false is freed
        chosen = _enabled(chosen, report)
    if is_file_of_feeds(arguments.config):
        hold_staging(known)
    for config, settings in chosen:
        if arguments.restart_from:
            settings = settings.model_copy(update={"begin": arguments.restart_from})
        try:
            run = carry(config, settings, PARTS, until=until, restarts=bool(arguments.restart_from))
            runs.append(run)
            if not arguments.json:
                print(run.message)
        except FeedFollowed as followed:
            if arguments.restart_from:
                raise
            report.say(followed.message)
        except BinlakeError as error:
            report.say(f"feed {settings.name}: {error}")
            failed.append(error)
    if arguments.json:
        printing.as_json([run.to_json() for run in runs])
    if failed:
        raise failed[0]


def _follow(arguments: argparse.Namespace, report: Report) -> None:
    """Carry the chosen feeds until SIGTERM or Ctrl-C. Raises UsageError; ConfigurationError at the beginning."""
    if arguments.restart_from or arguments.forget is not None or arguments.until != "now":
        raise UsageError(
            "--follow continues from where each feed is",
            remedy="run --restart-from, --forget or --until by itself before",
        )
    heap.return_freed_memory()
    file, ending = FeedsOnDisk(arguments.config, arguments.feed), Ending()
    _enabled(_chosen(arguments, file.read()), report)
    if is_file_of_feeds(arguments.config):
        try:
            hold_staging(file.read())
        except LakeError as error:  # each feed that is followed is tried again
            report.say(f"{error.message}: staging isn't kept yet for feeds that nobody carries")

    def chosen() -> Feeds:
        return [(config, feed) for config, feed in file.read() if arguments.feed in (None, feed.name)]

    ending.listen()
    with rarely_collected():
        followed = follow_feeds(chosen, report, PARTS, ending)
    ending.over()
    if arguments.json:
        printing.as_json(followed.to_json())
    else:
        for key in followed.batches:
            print(followed.line(key))


def _forget(path: str, name: str, report: Report) -> None:
    """Forget a feed's position on each source that the file names. Raises UsageError if none has one."""
    sources = {config.source.name: config for config in _sources(path)}
    forgotten = [source for source, config in sources.items() if feed_watermarks.forget(metadata_of(config), name)]
    if not forgotten:
        known = ", ".join(sources)
        raise UsageError(f"no feed {name!r} ever ran on {known}", remedy="binlake status names those that did")
    report.say(f"feed {name} is forgotten on {', '.join(forgotten)}; what its sink holds stays")
    if any(known_feed.name == name for _, known_feed in feeds_of(path)):
        report.say(f"  it still is in {path}, where it is a new one now")


def tail(arguments: argparse.Namespace) -> None:
    """Print staged mutations, from the batch that ``--start`` names on."""
    start = None if arguments.start == "now" else 0 if arguments.start == "start" else int(arguments.start)
    feeds, report, ending = _tailed(arguments), Report(quiet=arguments.quiet), Ending()
    if arguments.follow:
        heap.return_freed_memory()
        ending.listen()
    print_tail(feeds, Tail(start, arguments.follow), PARTS, sys.stdout, report, ending)
    ending.over()


def console_consumer(arguments: argparse.Namespace) -> None:
    """Print a Kafka topic's messages."""
    schema_of = _schema_of(arguments)
    asked = Consuming(arguments.topic, arguments.max, arguments.follow, schema_of)
    consume(arguments.bootstrap, asked, sys.stdout, credentials(arguments.connection))


def _schema_of(arguments: argparse.Namespace) -> SchemaOf | None:
    """Return a function that looks schemas up in the registry, None if none was given.

    Raises UsageError if the registry's address has a user or password; ConfigurationError.
    """
    if arguments.registry is None:
        return None
    if "@" in urlsplit(arguments.registry).netloc:
        raise UsageError(
            "the registry's address holds a user or a password", remedy="name a connection: --registry-connection ID"
        )
    return SchemaRegistry(arguments.registry, connection=arguments.registry_connection).schema


def _tailed(arguments: argparse.Namespace) -> Feeds:
    """Return the named feed, or one made for the given table or all tables, for each source. Raises UsageError."""
    made: dict[str, Any] = {
        "name": "tail",
        "include": ["*.*" if arguments.table is None else arguments.table],
        "sink": "file:///dev/stdout",
    }
    form: dict[str, Any] = {"type": arguments.format or "text"}
    if arguments.registry:
        form |= {"registry": arguments.registry, "registry_connection": arguments.registry_connection}
        if arguments.format == "debezium":
            form["encoding"] = "avro"
    try:
        own = FeedConfig.model_validate({**made, "format": form})
    except ValidationError as error:
        raise UsageError(
            f"--format {arguments.format}: {error.errors(include_input=False)[0]['msg']}",
            remedy="specific wants --registry http://host:port, debezium may have one, the others want none",
        ) from None
    if arguments.feed is None:
        return [(config, own) for config in _sources(arguments.config)]
    other = {} if arguments.format is None else {"format": own.format}
    known = understood(arguments.config, arguments.feed)
    return [(config, feed.model_copy(update=other)) for config, feed in _chosen(arguments, known)]


def _sources(path: str) -> list[PipelineConfig]:
    """Return the configuration of a source's YAML, or those of the sources that a file of feeds names."""
    by_name = {config.source.name: config for config, _ in feeds_of(path)}
    return list(by_name.values()) or [configuration.load(path)]
