"""Reading feeds from YAML: a source's own, or a file of feeds over several sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from binlake import config as configuration
from binlake.config import PipelineConfig, yaml_file
from binlake.config.feed_config import FeedConfig, FeedsFile
from binlake.config.pipeline_config import FileStand, file_stand
from binlake.errors import ConfigurationError
from binlake.records import feed_watermarks
from binlake.records.feed_watermarks import FeedLimits
from binlake.store.metadata import metadata_of

Feeds = list[tuple[PipelineConfig, FeedConfig]]
"""Feeds, each paired with the configuration of one of its sources."""


def is_file_of_feeds(path: str | Path) -> bool:
    """Return whether a YAML has feeds and no source. Raises ConfigurationError if it can't be read."""
    document = yaml_file.read(path).document
    return "source" not in document and "feeds" in document


def feeds_of(path: str | Path) -> Feeds:
    """Return each feed of a source's YAML, or of a file of feeds over several sources, with each of its sources.

    Raises ConfigurationError.
    """
    if not is_file_of_feeds(path):
        config = configuration.load(path)
        return [(config, feed) for feed in config.feeds]
    feeds_file = yaml_file.read(path).model(FeedsFile)
    folder = Path(path).resolve().parent
    return [(configuration.load(folder / source), feed) for feed in feeds_file.feeds for source in feed.sources]


class FeedsOnDisk:
    """The feeds of a YAML, which a long-lived process reads again once that file, or a source's, has changed.

    name: of the feed that the process carries, None for all.
    """

    def __init__(self, path: str, name: str | None = None) -> None:
        self._path, self._name = path, name
        self._seen: dict[Path, FileStand | None] = {}
        self._feeds: Feeds = []

    def read(self) -> Feeds:
        """Return the same as ``understood``, of the files as they are now. Raises ConfigurationError."""
        if not self._seen or any(file_stand(file) != stand for file, stand in self._seen.items()):
            seen = {file: file_stand(file) for file in (Path(self._path), *_source_files(self._path))}
            self._feeds, self._seen = understood(self._path, self._name), seen
        return self._feeds


def _source_files(path: str | Path) -> list[Path]:
    """Return the YAMLs of the sources that a file of feeds names; none for a source's own."""
    if not is_file_of_feeds(path):
        return []
    folder = Path(path).resolve().parent
    return [folder / source for feed in yaml_file.read(path).model(FeedsFile).feeds for source in feed.sources]


def understood(path: str | Path, name: str | None = None) -> Feeds:
    """Return the same as ``feeds_of``, once each feed's ``where`` and the classes of one's own are checked; the mirror
    doesn't check them. name: of the only feed to check, None for all. Feeds of other names are returned, too.

    Raises ConfigurationError.
    """
    feeds = feeds_of(path)
    understand(path, [feed for _, feed in feeds if name in (None, feed.name)])
    return feeds


def understand(path: str | Path, feeds: Sequence[FeedConfig]) -> None:
    """Raise ConfigurationError for a ``where`` that can't be parsed, and for a class of one's own that isn't installed.
    path: the feeds' YAML."""
    for feed in feeds:
        try:
            if feed.where:
                from binlake.feeds import condition  # with sqlglot, which Airflow's parsing of DAGs is rather without

                condition.parse(feed.where)
            if feed.sink.own or feed.own_position or feed.errors.handler:
                from binlake.feeds.registry import refuse_unknown_names  # with all formats and sinks

                refuse_unknown_names(feed)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}, feed {feed.name}: {error.message}", remedy=error.remedy) from None


def hold_staging(feeds: Feeds) -> None:
    """Have staging kept for the feeds that will begin with the oldest of it.

    A sync knows the feeds of its source's own YAML, but those of a file of feeds only once they are registered.
    """
    for config, feed in feeds:
        if feed.enabled and feed.begin == "oldest":
            feed_watermarks.register(metadata_of(config), feed.name, FeedLimits(feed.keep_gb, feed.keep_hours))
