"""spark-submit maintain.py --config FILE [--run NAME]: compact and vacuum tables and metadata, as the YAML promises."""

import sys
from typing import TYPE_CHECKING

from binlake import job, pipeline

if TYPE_CHECKING:
    from binlake.maintain import MaintainReport


def work(run: job.Job) -> "MaintainReport":
    return pipeline.maintain(run.config, run.session, run.report, run=run.arguments.run)


if __name__ == "__main__":
    parser = job.parser("maintain")
    parser.add_argument("--run", metavar="NAME")
    sys.exit(job.run(parser, work))
