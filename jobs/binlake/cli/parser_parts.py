"""Arguments that the parsers of several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def imported_when_run(module: str, name: str) -> Callable[[argparse.Namespace], None]:
    """Return the command ``name`` of a module that needs optional packages, or takes long to import."""

    def command(arguments: argparse.Namespace) -> None:
        getattr(import_module(module), name)(arguments)

    return command


@cache
def common_options() -> argparse.ArgumentParser:
    """Return the parser of the options that every command has, which share it."""
    parser = argparse.ArgumentParser(add_help=False)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("-q", "--quiet", action="store_true", help="print only results and errors")
    how.add_argument(
        "-v", "--verbose", action="store_true",
        help="print the traceback of an unexpected error, and after a status what the process keeps in memory",
    )  # fmt: skip
    return parser


def add_tables(parser: argparse.ArgumentParser, **more: Any) -> None:
    """Add the option that chooses tables by patterns. more: argparse's other settings of it."""
    parser.add_argument("--tables", nargs="+", metavar="PATTERN", help="database.table, shell-style", **more)
