"""The mirror that feeds and the relay read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from binlake.merge import merge
from mirror import Mirror
from servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def mirror(server: Server, database: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """A mirror without a lake: feeds read what is staged, so nothing is merged, and no Spark starts."""
    monkeypatch.setattr(merge, "apply_steps", lambda *_: [])
    return Mirror(server, database, lake, cast("SparkSession", None))


@pytest.fixture
def mirror_with_lake(server: Server, database: str, lake: Path, spark: SparkSession) -> Mirror:
    """A mirror whose tables are snapshotted and merged."""
    return Mirror(server, database, lake, spark)
