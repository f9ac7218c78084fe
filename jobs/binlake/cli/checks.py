"""The checks of a source, its feeds and the decoder: told, and refused where one failed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from binlake import config as configuration
from binlake.cli import printing
from binlake.cli.sessions import origin_of, report_of, session_of
from binlake.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from binlake.doctor.check import Check


def doctor(arguments: argparse.Namespace) -> None:
    """Of a source, or of a file of feeds."""
    from binlake.feeds.feeds_file import is_file_of_feeds

    found = _of_feeds(arguments) if is_file_of_feeds(arguments.config) else _of_source(arguments)
    if arguments.json:
        printing.as_json([{key: value for key, value in vars(check).items() if value != {}} for check in found])
        refuse_failed(found)
    else:
        tell(found)


def _of_feeds(arguments: argparse.Namespace) -> list[Check]:
    from binlake.feeds.feed_checks import checks_of_file
    from binlake.feeds.feeds_file import feeds_of

    if arguments.second_opinion:
        raise UsageError(
            "--second-opinion reads a server's log, and a file of feeds has none",
            remedy="ask it of a source: binlake doctor --config SOURCE.yaml --second-opinion",
        )
    return checks_of_file(feeds_of(arguments.config))


def _of_source(arguments: argparse.Namespace) -> list[Check]:
    from binlake.doctor.preflight import preflight
    from binlake.source.log import server_of

    config = configuration.load(arguments.config)
    origin = origin_of(config)
    asked = server_of(origin, "--second-opinion") if arguments.second_opinion else None
    checks = preflight(config, origin, session=session_of("doctor", config, report_of(arguments)))
    if config.feeds:
        from binlake.feeds.feed_checks import checks as of_feeds

        checks += of_feeds(config)
    if asked:
        from binlake.second_opinion.opinion_checks import second_opinion

        checks += second_opinion(config, asked, arguments.minutes)
    return checks


def tell(checks: Sequence[Check]) -> None:
    for check in checks:
        mark = {True: "ok  ", False: "FAIL", "warn": "warn"}[check.ok]
        print(f"{mark}  {check.name}: {check.found}")
        if check.ok is not True and check.remedy:
            print(f"      → {check.remedy}")
    refuse_failed(checks)


def refuse_failed(checks: Sequence[Check]) -> None:
    """Raises CheckFailed."""
    failed = [check for check in checks if check.ok is False]
    if failed:
        raise CheckFailed(f"{len(failed)} of {len(checks)} checks failed", remedy="mend the lines marked FAIL above")
