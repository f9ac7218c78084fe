"""spark-submit maintain.py --config FILE [--run NAME] [--tables PATTERN…]: the upkeep that the YAML promises."""

import sys
from typing import TYPE_CHECKING

from binlake import pipeline
from binlake.job import script

if TYPE_CHECKING:
    from binlake.maintain.maintain import MaintainReport


def work(run: script.Job) -> "MaintainReport":
    """Maintain the tables that the arguments name; all without a name."""
    return pipeline.maintain(run.config, run.session, run.report, tables=run.arguments.tables, run=run.arguments.run)


if __name__ == "__main__":
    parser = script.parser("maintain")
    parser.add_argument("--run", metavar="NAME")
    parser.add_argument("--tables", nargs="+", metavar="PATTERN")
    sys.exit(script.run(parser, work))
