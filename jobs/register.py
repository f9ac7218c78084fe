"""spark-submit register.py --config FILE: give the catalog that the YAML names the tables' names."""

import sys
from dataclasses import replace

from binlake import pipeline
from binlake.job import script
from binlake.phases.register import RegisterReport


def work(run: script.Job) -> RegisterReport:
    """Register the tables' names, in a session that knows the catalog."""
    from binlake.spark.named_tables import session_settings

    if run.config.catalog is not None:
        run = replace(run, settings=session_settings(run.config.catalog))
    return pipeline.register(run.config, run.session, run.report)


if __name__ == "__main__":
    sys.exit(script.run(script.parser("register"), work))
