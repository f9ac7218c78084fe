"""spark-submit snapshot.py --config FILE [--tables PATTERN… [--keys FIRST..LAST] | --asked] [--lock MODE] [--begin]"""

import sys
from typing import TYPE_CHECKING

from binlake import job, pipeline
from binlake.bootstrap import KeysAsked

if TYPE_CHECKING:
    from binlake.snapshot.snapshot import SnapshotResult


def work(run: job.Job) -> "list[SnapshotResult]":
    options = {name: value for name, value in vars(run.arguments).items() if name not in ("config", "keys")}
    if run.arguments.keys:
        asked = KeysAsked(options.pop("tables"), run.arguments.keys)
        del options["asked"], options["begin"]
        return pipeline.snapshot_keys(run.config, run.origin, run.session, run.report, asked, **options)
    return pipeline.bootstrap(run.config, run.origin, run.session, run.report, **options)


if __name__ == "__main__":
    parser = job.parser("snapshot")
    parser.add_argument("--tables", nargs="+", metavar="PATTERN")
    parser.add_argument("--keys", metavar="FIRST..LAST")
    parser.add_argument("--asked", action="store_true")
    parser.add_argument("--begin", action="store_true")
    parser.add_argument("--run", metavar="NAME")
    parser.add_argument("--lock", choices=("flush", "tables", "none"), default="flush")
    sys.exit(job.run(parser, work))
