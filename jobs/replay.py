"""spark-submit replay.py --config FILE --tables PATTERN… [--batch N | --as-of TIME]: build tables once more."""

import sys
from typing import TYPE_CHECKING

from binlake import pipeline
from binlake.cli import replay_arguments
from binlake.job import script

if TYPE_CHECKING:
    from binlake.phases.replay import ReplayedTable


def work(run: script.Job) -> "list[ReplayedTable]":
    """Build the tables again, and report each."""
    replayed = pipeline.replay(run.config, run.session, run.report, replay_arguments.request(run.arguments))
    for table in replayed:
        run.report.say(table.to_text())
    return replayed


if __name__ == "__main__":
    parser = script.parser("replay")
    replay_arguments.add_to(parser)
    sys.exit(script.run(parser, work))
