"""What a YAML holds of feeds: a source's own, or a file of feeds over several sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from binlake import config as configuration
from binlake.config import PipelineConfig
from binlake.errors import ConfigurationError
from binlake.feed_config import FeedConfig, FeedsFile

Feeds = list[tuple[PipelineConfig, FeedConfig]]


def is_file_of_feeds(path: str | Path) -> bool:
    """Whether it holds feeds and no source. Raises ConfigurationError where it can't be read."""
    document = _document(Path(path))
    return isinstance(document, dict) and "source" not in document and "feeds" in document


def feeds_of(path: str | Path) -> Feeds:
    """Each feed of a source's YAML, or of a file of feeds over several sources, with each of its sources.

    Raises ConfigurationError.
    """
    if not is_file_of_feeds(path):
        config = configuration.load(path)
        return [(config, feed) for feed in config.feeds]
    try:
        found = FeedsFile.model_validate(_document(Path(path)))
    except ValidationError as error:
        raise configuration.refused(path, error) from None
    folder = Path(path).resolve().parent
    return [(configuration.load(folder / source), feed) for feed in found.feeds for source in feed.sources]


def _document(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"can't read {path}: {error.strerror}", remedy="give --config FILE") from error
    except (yaml.YAMLError, ValueError):
        return None  # whoever loads it says what is wrong
