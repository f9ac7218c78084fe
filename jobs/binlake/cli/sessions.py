"""The Spark session on demand, the server and the report that a command works with."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from binlake.config import PipelineConfig
from binlake.report import Report
from binlake.spark.on_demand import SessionOnDemand

if TYPE_CHECKING:
    from binlake.source.endpoint import Endpoint
    from binlake.source.log import Origin


def session_of(
    name: str,
    config: PipelineConfig,
    report: Report,
    tasks: int | None = None,
    short_lived: Callable[[], bool] = lambda: False,
) -> SessionOnDemand:
    """Return the session of the command ``name``. tasks: how many must run at once."""
    return SessionOnDemand(f"binlake {name}", config, report, tasks=tasks, short_lived=short_lived)


def catalog_session_of(config: PipelineConfig, report: Report) -> SessionOnDemand:
    """Return a session that reaches the catalogs. It writes nothing but names, so it needs no executor."""

    def settings() -> Mapping[str, str]:
        from binlake.spark.named_tables import session_settings

        return session_settings(config.named_catalogs)

    return SessionOnDemand(
        "binlake register",
        config,
        report,
        master="local[2]",
        more=settings,
        short_lived=lambda: True,
        replaces_active=True,
    )


def report_of(arguments: argparse.Namespace) -> Report:
    """Return the report to which the command writes its progress, silent with ``--quiet``."""
    return Report(quiet=arguments.quiet)


def origin_of(config: PipelineConfig) -> Origin:
    """Return the source's server or folder of log files. Raises ConfigurationError."""
    from binlake.source import log

    return log.origin(config.source)


def replica_of(config: PipelineConfig) -> Endpoint | None:
    """Return the server that ``verify.connection`` names; None without one. Raises ConfigurationError."""
    from binlake.source import log

    return log.replica(config)
