"""spark-submit register.py --config FILE: give the catalog that the YAML names the tables' names."""

import sys
from dataclasses import replace

from binlake import job, pipeline
from binlake.register import RegisterReport


def work(run: job.Job) -> RegisterReport:
    from binlake.lake.named_tables import session_settings

    if run.config.catalog is not None:
        run = replace(run, settings=session_settings(run.config.catalog))
    return pipeline.register(run.config, run.session, run.report)


if __name__ == "__main__":
    sys.exit(job.run(job.parser("register"), work))
