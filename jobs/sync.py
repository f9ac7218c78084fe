"""spark-submit sync.py --config FILE [--until TIME] [--run NAME]: carry the lake along the log, from plan to record."""

import sys

from binlake import job, pipeline
from binlake.moment import parse_moment
from binlake.state.record import RunReport


def work(run: job.Job) -> RunReport:
    asked = run.arguments
    until = parse_moment(asked.until, "--until") if asked.until else None
    return pipeline.sync(run.config, run.origin, run.session, run.report, until=until, run=asked.run)


if __name__ == "__main__":
    parser = job.parser("sync")
    parser.add_argument("--until", metavar="TIME")
    parser.add_argument("--run", metavar="NAME")
    sys.exit(job.run(parser, work))
