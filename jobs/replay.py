"""spark-submit replay.py --config FILE --tables PATTERN… [--batch N | --as-of TIME]: build tables once more."""

import sys
from typing import TYPE_CHECKING

from binlake import job, pipeline
from binlake.commands import replay_arguments

if TYPE_CHECKING:
    from binlake.replay import ReplayedTable


def work(run: job.Job) -> "list[ReplayedTable]":
    found = pipeline.replay(run.config, run.session, run.report, replay_arguments.request(run.arguments))
    for table in found:
        run.report.say(table.to_text())
    return found


if __name__ == "__main__":
    parser = job.parser("replay")
    replay_arguments.add_to(parser)
    sys.exit(job.run(parser, work))
