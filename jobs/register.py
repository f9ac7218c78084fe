"""spark-submit register.py --config FILE [--every OCCASION]: give the YAML's catalogs the tables' names."""

import sys
from dataclasses import replace

from binlake import pipeline
from binlake.job import script
from binlake.phases.register import RegisterReport


def work(run: script.Job) -> RegisterReport:
    """Register the tables' names, in a session that knows the catalogs."""
    from binlake.spark.named_tables import session_settings

    run = replace(run, settings=session_settings(run.config.named_catalogs))
    return pipeline.register(run.config, run.session, run.report, run.arguments.every)


if __name__ == "__main__":
    parser = script.parser("register")
    parser.add_argument("--every", choices=("batch", "snapshot"))
    sys.exit(script.run(parser, work))
