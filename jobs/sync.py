"""spark-submit sync.py --config FILE [--until TIME] [--run NAME]: carry the lake along the log, from plan to record."""

import sys

from binlake import pipeline
from binlake.job import script
from binlake.moment import parse_moment
from binlake.records.record import RunReport


def work(run: script.Job) -> RunReport:
    """Carry the lake along the log, up to ``--until`` if that is given."""
    asked = run.arguments
    until = parse_moment(asked.until, "--until") if asked.until else None
    return pipeline.sync(run.config, run.origin, run.session, run.report, until=until, run=asked.run)


if __name__ == "__main__":
    parser = script.parser("sync")
    parser.add_argument("--until", metavar="TIME")
    parser.add_argument("--run", metavar="NAME")
    sys.exit(script.run(parser, work))
