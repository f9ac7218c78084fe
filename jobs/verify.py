"""spark-submit verify.py --config FILE [--tables PATTERN…]: compare every value of the lake with the server."""

import sys
from typing import TYPE_CHECKING

from binlake import pipeline
from binlake.job import script
from binlake.phases.verification import VerifyRequest

if TYPE_CHECKING:
    from binlake.verify.verify import VerifyReport


def work(run: script.Job) -> "VerifyReport":
    """Compare the lake with the server, and report it without keys of rows. Raises CheckFailed where they differ."""
    asked = run.arguments
    request = VerifyRequest(asked.tables, changed=asked.changed, replica=run.replica)
    compared = pipeline.verify(run.config, run.origin, run.session, run.report, request, asked.run)
    run.report.say(compared.to_text_without_keys())
    compared.refuse_unequal()
    return compared


if __name__ == "__main__":
    parser = script.parser("verify")
    parser.add_argument("--tables", nargs="+", metavar="PATTERN")
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--run", metavar="NAME")
    sys.exit(script.run(parser, work))
