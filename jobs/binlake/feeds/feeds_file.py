"""What a YAML holds of feeds: a source's own, or a file of feeds over several sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from binlake import config as configuration
from binlake.config import PipelineConfig, yaml_file
from binlake.config.feed_config import FeedConfig, FeedsFile
from binlake.errors import ConfigurationError
from binlake.metadata import feed_watermarks
from binlake.metadata.feed_watermarks import FeedLimits
from binlake.metadata.metadata import metadata_of

Feeds = list[tuple[PipelineConfig, FeedConfig]]
"""Each with one of its sources."""


def is_file_of_feeds(path: str | Path) -> bool:
    """Whether it holds feeds and no source. Raises ConfigurationError where it can't be read."""
    document = yaml_file.read(path).document
    return "source" not in document and "feeds" in document


def feeds_of(path: str | Path) -> Feeds:
    """Each feed of a source's YAML, or of a file of feeds over several sources, with each of its sources.

    Raises ConfigurationError.
    """
    if not is_file_of_feeds(path):
        config = configuration.load(path)
        return [(config, feed) for feed in config.feeds]
    found = yaml_file.read(path).model(FeedsFile)
    folder = Path(path).resolve().parent
    return [(configuration.load(folder / source), feed) for feed in found.feeds for source in feed.sources]


def understood(path: str | Path) -> Feeds:
    """The same, once each feed's ``where`` is parsed. The mirror, which reads the source's YAML too, doesn't ask.

    Raises ConfigurationError.
    """
    found = feeds_of(path)
    understand(path, [feed for _, feed in found])
    return found


def understand(path: str | Path, feeds: Sequence[FeedConfig]) -> None:
    """Raises ConfigurationError for a ``where`` that can't be understood. path: where they stand."""
    wheres = {feed.name: feed.where for feed in feeds if feed.where}
    if wheres:
        from binlake.feeds import condition  # with sqlglot, which Airflow's parsing of DAGs is rather without

        for name, where in wheres.items():
            try:
                condition.parse(where)
            except ConfigurationError as error:
                raise ConfigurationError(f"{path}, feed {name}: {error.message}", remedy=error.remedy) from None


def hold_staging(feeds: Feeds) -> None:
    """Staging is kept, from now on, for those that will begin with the oldest of it: a source's sync knows the feeds of
    its own YAML, but of a file's those alone that were seen."""
    for config, feed in feeds:
        if feed.begin == "oldest":
            feed_watermarks.register(metadata_of(config), feed.name, FeedLimits(feed.keep_gb, feed.keep_hours))
