"""What commands are given to work with: sessions of Spark, built when they are asked for; the server; a report."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from binlake.config import PipelineConfig
from binlake.once import once
from binlake.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.source.log import Origin


def session_of(
    name: str, config: PipelineConfig, tasks: int | None = None, short_lived: Callable[[], bool] = lambda: False
) -> Callable[[], SparkSession]:
    """short_lived: asked when the session is."""

    @once
    def build() -> SparkSession:
        from binlake.spark import session

        return session.build(
            f"binlake {name}", spark=config.spark, tasks=tasks, short_lived=short_lived(), lake=config.root
        )

    return build


def catalog_session_of(config: PipelineConfig) -> Callable[[], SparkSession]:
    """A session that reaches the catalog, in the place of the one at work."""

    def build() -> SparkSession:
        from binlake.spark import session
        from binlake.spark.named_tables import session_settings

        assert config.catalog is not None
        session.stop_active()
        more, here = session_settings(config.catalog), "local[2]"  # it writes nothing but names: no executor is needed
        return session.build(
            "binlake register", spark=config.spark, master=here, short_lived=True, more=more, lake=config.root
        )

    return build


def report_of(arguments: argparse.Namespace) -> Report:
    return Report(quiet=arguments.quiet)


def origin_of(config: PipelineConfig) -> Origin:
    from binlake.source import log

    return log.origin(config.source.connection)
