"""The command that removes what is kept of tables from before their newest copies."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from binlake.cli import argument_values, parser_parts, printing
from binlake.cli.sessions import report_of
from binlake.config import PipelineConfig
from binlake.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser, add_reason: Callable[..., None]) -> None:
    """Add the command's options. add_reason: adds those that record who decided, and why."""
    parser_parts.add_tables(parser, required=True, type=argument_values.pattern)
    parser.add_argument("--dry-run", action="store_true", help="show what is kept and would go; change nothing")
    parser.add_argument("--yes", action="store_true", help="don't ask")
    add_reason(parser, required=False)


def run(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Show what is kept, ask, and purge. Raises UsageError where somebody says no, or nobody can be asked."""
    from binlake.maintain.purge import look, purge
    from binlake.records.decisions import Reason

    if arguments.dry_run or not arguments.yes:
        looked = look(config, arguments.tables)
        if arguments.dry_run:
            printing.as_json(looked.to_json()) if arguments.json else print(looked.to_text())
            return
        print(looked.to_text(), file=sys.stderr)
        looked.refuse_obstacles()
        if any(not each.is_done for each in looked.looked):
            _ask()
    result = purge(config, report_of(arguments), arguments.tables, Reason(arguments.who, arguments.why or ""))
    if arguments.json:
        printing.as_json(result.to_json())
    else:
        print(result.to_text())


def _ask() -> None:
    question = "All of it goes, and earlier versions can't be read any more. Purge? [yes/no] "
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to say yes", remedy="add --yes, or --dry-run to look alone")
    if input(question).strip().lower() != "yes":
        raise UsageError("nothing was purged", remedy="say yes, or add --yes")
