"""``binlake dictionary``: what is known of the lake's tables, for people, dbt, data contracts and programs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from binlake.cli import output_file, parser_parts, sql_commands
from binlake.cli.sessions import origin_of
from binlake.config import PipelineConfig
from binlake.errors import SourceError, UsageError
from binlake.report import harmless_entry

if TYPE_CHECKING:
    from binlake.lake.dictionary import DictionaryTable
    from binlake.schema.foreign_key import ForeignKey

FORMATS = ("markdown", "dbt", "odcs", "json")
"""Forms in which a dictionary is written, see dictionary_formats.py."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``binlake dictionary``."""
    sql_commands.add_version(parser)
    parser_parts.add_tables(parser, default=())
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="markdown",
        help="dbt: sources with tests; odcs: an open data contract; by default %(default)s",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write it there, not to standard output")
    parser.add_argument("--no-server", action="store_true", help="don't ask the server for its foreign keys")


def run(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Write the dictionary. Where the server can't be asked, it has no foreign keys, and that is said. Raises
    UsageError, LakeError."""
    from binlake.cli import dictionary_formats
    from binlake.lake.dictionary import extents_of

    lake = sql_commands.lake_of(arguments, config)
    tables = lake.dictionary(*arguments.tables)
    known = dictionary_formats.Dictionary(
        source=config.source.name,
        root=config.root,
        version=lake.version,
        is_chosen=any(asked is not None for asked in (arguments.batch, arguments.as_of, arguments.name)),
        tables=tables,
        extents=extents_of(table.at for table in tables),
        foreign_keys=[] if arguments.no_server else _foreign_keys(config, tables),
    )
    text = dictionary_formats.written(known, arguments.format)
    if arguments.output is None:
        sys.stdout.write(text)
        return
    with output_file.replaced(arguments.output) as file:
        file.write(text.encode())


def _foreign_keys(config: PipelineConfig, tables: Sequence[DictionaryTable]) -> list[ForeignKey]:
    """Return the server's foreign keys between tables and columns that the dictionary has, by the lake's names."""
    from binlake.source import foreign_keys
    from binlake.source.log import server_of
    from binlake.source.server import Source

    names = {
        table.name: {column.server_name: column.name for column in table.columns if column.server_name}
        for table in tables
    }
    try:
        with Source.open(server_of(origin_of(config), "the dictionary's foreign keys")) as source:
            known = foreign_keys.read(source, {name.database for name in names})
    except (SourceError, UsageError) as error:
        said = f"foreign keys are left out, as the server can't be asked: {error}"
        print(harmless_entry(f"binlake: {said}"), file=sys.stderr)
        return []
    return [in_lake for key in known if (in_lake := _in_lake(key, names.get(key.child, {}), names.get(key.parent, {})))]


def _in_lake(key: ForeignKey, child: Mapping[str, str], parent: Mapping[str, str]) -> ForeignKey | None:
    """Return a foreign key by the lake's names of columns; None where the lake lacks some. child, parent: these, by the
    server's names."""
    if not ({*key.columns} <= child.keys() and {*key.referenced} <= parent.keys()):
        return None
    columns, referenced = (
        tuple(names[column] for column in of) for names, of in ((child, key.columns), (parent, key.referenced))
    )
    return replace(key, columns=columns, referenced=referenced)
