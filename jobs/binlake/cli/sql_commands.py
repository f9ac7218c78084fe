"""``binlake sql`` and ``binlake views``: the lake's tables at one batch, for analysts."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from binlake import interrupts
from binlake.cli import argument_values, parser_parts
from binlake.config import PipelineConfig
from binlake.lake.view_statements import DATABASE, DIALECTS, named_views, statements
from binlake.moment import parse_moment

if TYPE_CHECKING:
    from binlake.lake.opened_lake import Lake

FORMATS = ("table", "expanded", "csv", "json", "parquet")
"""Forms in which rows are written, see query_output.py."""


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a version of the lake."""
    version = parser.add_mutually_exclusive_group()
    version.add_argument("--batch", type=int, metavar="N", help="the tables at this batch; by default at the newest")
    version.add_argument("--as-of", metavar="TIMESTAMP", help="at the last batch that was committed by then")
    version.add_argument("--name", metavar="NAME", help="at a batch that is pinned under this name")


def add_sql(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``binlake sql``."""
    add_version(parser)
    parser.add_argument("--format", choices=FORMATS, default="table", help="of the rows; by default table")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write them there, not to standard output")
    parser.add_argument(
        "--width",
        type=argument_values.whole_number,
        metavar="N",
        help="cut values of a table at so many characters; 0: show them whole, as without a terminal",
    )
    parser.add_argument(
        "query",
        nargs="?",
        metavar="QUERY",
        help="SELECT …, or a command of the prompt, such as \\d; without it the prompt",
    )


def sql(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Run a query, the statements on standard input, or a prompt. Ctrl-C ends a query at once."""
    from binlake.cli.sql_prompt import Prompt

    with interrupts.without_waiting():
        prompt = Prompt(lake_of(arguments, config), arguments.format, arguments.output, arguments.width)
        with closing(prompt):
            if arguments.query is not None and arguments.query.lstrip().startswith("\\"):
                prompt.run(arguments.query)
            elif arguments.query is not None:
                prompt.query(arguments.query)
            elif sys.stdin.isatty():
                prompt.ask(arguments.config)
            else:
                prompt.run(sys.stdin.read())


def lake_of(arguments: argparse.Namespace, config: PipelineConfig) -> Lake:
    """Return the lake at the version that the arguments name. Raises UsageError, LakeError."""
    from binlake.lake.opened_lake import place_of

    moment = parse_moment(arguments.as_of, "--as-of") if arguments.as_of is not None else None
    return place_of(config).at(batch=arguments.batch, time=moment, name=arguments.name)


def add_views(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``binlake views``."""
    add_version(parser)
    parser.add_argument("--dialect", required=True, choices=DIALECTS, help="whose SQL the statements are in")
    parser_parts.add_tables(parser, default=())
    parser.add_argument(
        "--database",
        default=DATABASE,
        metavar="PATTERN",
        help="the views' database; by default %(default)s, where version is the name or the batch's number",
    )


def views(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Print the statements that create views of one version of all tables."""
    lake = lake_of(arguments, config)
    version = lake.version.name or str(lake.version.batch)
    shown = named_views(lake.chosen(arguments.tables), version, arguments.database)
    print(f"-- {lake.version.position}, committed {lake.version.committed.isoformat()}")
    for statement in statements(arguments.dialect, shown):
        print(f"{statement};")
