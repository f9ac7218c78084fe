"""The checks of a source, its feeds and the decoder: told, and refused where one failed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from binlake.commands import printing
from binlake.commands.sessions import origin_of, session_of
from binlake.config import PipelineConfig
from binlake.errors import CheckFailed

if TYPE_CHECKING:
    from binlake.check import Check


def doctor(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake.preflight.doctor import preflight
    from binlake.source.log import server_of

    origin = origin_of(config)
    asked = server_of(origin, "--second-opinion") if arguments.second_opinion else None
    checks = preflight(config, origin, session=session_of("doctor", config))
    if config.feeds:
        from binlake.feeds.doctor import checks as of_feeds

        checks += of_feeds(config)
    if asked:
        from binlake.opinion.doctor import second_opinion

        checks += second_opinion(config, asked, arguments.minutes)
    if arguments.json:
        printing.as_json([{key: value for key, value in vars(check).items() if value != {}} for check in checks])
        refuse_failed(checks)
    else:
        tell(checks)


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
