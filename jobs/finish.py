"""spark-submit finish.py --config FILE: stage, merge and record a batch that an earlier run left open."""

import sys

from binlake import job, pipeline
from binlake.state.record import RunReport


def work(run: job.Job) -> RunReport:
    pipeline.stage(run.config, run.origin, run.session, run.report)
    pipeline.merge(run.config, run.session, run.report)
    return pipeline.record(run.config)


if __name__ == "__main__":
    sys.exit(job.run(job.parser("finish"), work))
