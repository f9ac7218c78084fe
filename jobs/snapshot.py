"""spark-submit snapshot.py --config FILE [--tables PATTERN… [--keys A..B] | --new | --asked] [--lock MODE] [--begin]"""

import sys
from collections.abc import Sequence

from binlake import pipeline
from binlake.job import script
from binlake.phases.bootstrap import KeysAsked


def work(run: script.Job) -> Sequence[object]:
    """Snapshot tables, or with ``--keys`` a range of one table's keys."""
    options = {name: value for name, value in vars(run.arguments).items() if name not in ("config", "keys")}
    if run.arguments.keys:
        asked = KeysAsked(options.pop("tables"), run.arguments.keys)
        del options["unnamed"], options["begin"]
        return pipeline.snapshot_keys(run.config, run.origin, run.session, run.report, asked, **options)
    return pipeline.bootstrap(run.config, run.origin, run.session, run.report, **options)


if __name__ == "__main__":
    parser = script.parser("snapshot")
    parser.add_argument("--tables", nargs="+", metavar="PATTERN")
    parser.add_argument("--keys", metavar="FIRST..LAST")
    parser.add_argument("--new", dest="unnamed", action="store_const", const="new", default="new or all")
    parser.add_argument("--asked", dest="unnamed", action="store_const", const="asked", default="new or all")
    parser.add_argument("--begin", action="store_true")
    parser.add_argument("--run", metavar="NAME")
    parser.add_argument("--lock", choices=("flush", "tables", "none"), default="flush")
    sys.exit(script.run(parser, work))
