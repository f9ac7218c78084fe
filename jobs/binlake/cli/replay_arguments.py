"""Arguments of a replay, for the command and for the script."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from binlake.cli import parser_parts
from binlake.errors import UsageError
from binlake.moment import parse_moment

if TYPE_CHECKING:
    from binlake.phases.replay import ReplayRequest
    from binlake.records.decisions import Reason


def add_to(parser: argparse.ArgumentParser, who: str | None = None) -> None:
    """Add a replay's arguments to a parser. who: the default of ``--who``."""
    parser_parts.add_tables(parser, required=True)
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--batch", type=int, metavar="N", help="as they were after this batch; by default the newest")
    when.add_argument("--as-of", metavar="TIMESTAMP", help="as they were after the last batch recorded by then")
    parser.add_argument("--archive", metavar="file:///FOLDER", help="binlog files, for batches not staged any more")
    parser.add_argument("--prove", action="store_true", help="compare every row with the table's own earlier version")
    parser.add_argument("--in-place", action="store_true", help="put the newest batch's rows into the table itself")
    parser.add_argument("--why", metavar="TEXT", help="the reason, which is recorded; needed for --in-place")
    parser.add_argument("--who", default=who, metavar="NAME", help="by default the account and the machine")


class _Refusing(argparse.ArgumentParser):
    """A parser that raises UsageError where others end the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, remedy="binlake replay --help shows what goes together")


def request_of(arguments: Sequence[str]) -> ReplayRequest:
    """Parse the script's arguments. Raises UsageError, ConfigurationError."""
    parser = _Refusing()
    add_to(parser)
    return request(parser.parse_args(arguments))


def request(arguments: argparse.Namespace) -> ReplayRequest:
    """Return the request that parsed arguments mean. Raises UsageError, ConfigurationError."""
    from binlake.phases.replay import ReplayRequest
    from binlake.source.log import folder_of

    archive = None if arguments.archive is None else folder_of(arguments.archive)
    if arguments.archive is not None and archive is None:
        raise UsageError(f"--archive {arguments.archive!r} is no folder", remedy="write file:///FOLDER")
    return ReplayRequest(
        arguments.tables,
        arguments.batch,
        parse_moment(arguments.as_of, "--as-of") if arguments.as_of is not None else None,
        archive,
        arguments.prove,
        _reason(arguments) if arguments.in_place else None,
    )


def _reason(arguments: argparse.Namespace) -> Reason:
    from binlake.records.decisions import Reason

    if not (arguments.why or "").strip() or not arguments.who:
        raise UsageError("--in-place changes a table, and no reason was given", remedy="add --why TEXT: it is recorded")
    return Reason(arguments.who, arguments.why)
