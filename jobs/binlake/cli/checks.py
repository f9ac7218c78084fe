"""``binlake doctor``: print the checks of a source, its feeds and the decoder, and fail if one failed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from binlake import config as configuration
from binlake.cli import printing
from binlake.cli.sessions import origin_of, replica_of, report_of, session_of
from binlake.errors import CheckFailed, UsageError
from binlake.names import shown
from binlake.report import harmless_entry

if TYPE_CHECKING:
    from binlake.doctor.check import Check


def doctor(arguments: argparse.Namespace) -> None:
    """Check a source, or a file of feeds. Raises CheckFailed if a check failed."""
    from binlake.feeds.feeds_file import is_file_of_feeds

    results = _checks_of_feeds(arguments) if is_file_of_feeds(arguments.config) else _checks_of_source(arguments)
    if arguments.json:
        printing.as_json([{key: value for key, value in vars(check).items() if value != {}} for check in results])
        refuse_failed(results)
    else:
        print_checks(results)


def _checks_of_feeds(arguments: argparse.Namespace) -> list[Check]:
    from binlake.feeds.feed_checks import checks_of_file
    from binlake.feeds.feeds_file import feeds_of

    if arguments.second_opinion:
        raise UsageError(
            "--second-opinion reads a server's log, and a file of feeds has none",
            remedy="ask it of a source: binlake doctor --config SOURCE.yaml --second-opinion",
        )
    return checks_of_file(feeds_of(arguments.config))


def _checks_of_source(arguments: argparse.Namespace) -> list[Check]:
    from binlake.doctor.preflight import preflight
    from binlake.source.log import server_of

    config = configuration.load(arguments.config)
    origin = origin_of(config)
    asked = server_of(origin, "--second-opinion") if arguments.second_opinion else None
    checks = preflight(config, origin, session=session_of("doctor", config, report_of(arguments)))
    if replica := replica_of(config):
        from binlake.doctor.server_checks import replica_checks

        checks += replica_checks(config, origin, replica)
    if config.feeds:
        from binlake.feeds.feed_checks import checks as feed_checks

        checks += feed_checks(config)
    if asked:
        from binlake.second_opinion.opinion_checks import second_opinion

        checks += second_opinion(config, asked, arguments.minutes)
    return checks


def print_checks(checks: Sequence[Check]) -> None:
    """Print the checks for people. Raises CheckFailed if one failed."""
    for check in checks:
        mark = {True: "ok  ", False: "FAIL", "warn": "warn"}[check.ok]
        print(harmless_entry(f"{mark}  {shown(check.name)}: {check.found}"))
        if check.ok is not True and check.remedy:
            print(harmless_entry(f"      → {check.remedy}"))
    refuse_failed(checks)


def refuse_failed(checks: Sequence[Check]) -> None:
    """Raise CheckFailed if a check failed."""
    failed = [check for check in checks if check.ok is False]
    if failed:
        raise CheckFailed(f"{len(failed)} of {len(checks)} checks failed", remedy="fix the lines marked FAIL above")
