"""spark-submit stage.py --config FILE: stage the open batch's mutations as Parquet."""

import sys

from binlake import job, pipeline


def work(run: job.Job) -> pipeline.StepOutcome:
    return pipeline.stage(run.config, run.origin, run.session, run.report)


if __name__ == "__main__":
    sys.exit(job.run(job.parser("stage"), work))
