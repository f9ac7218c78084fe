"""spark-submit resume.py --config FILE --tables TABLE… --who NAME --why TEXT: they catch up with the others."""

import sys

from binlake import pipeline
from binlake.job import script
from binlake.records import watermarks
from binlake.records.decisions import Reason


def work(run: script.Job) -> list[str]:
    """Carry the named tables through the batches that they missed; return a sentence for each."""
    asked = run.arguments
    metadata = pipeline.metadata_of(run.config)
    tables = [watermarks.name_of(metadata, table) for table in asked.tables]
    return pipeline.resume_all(run.config, run.origin, run.session, run.report, tables, Reason(asked.who, asked.why))


if __name__ == "__main__":
    parser = script.parser("resume")
    parser.add_argument("--tables", nargs="+", required=True, metavar="TABLE")
    parser.add_argument("--who", required=True, metavar="NAME")
    parser.add_argument("--why", required=True, metavar="TEXT")
    sys.exit(script.run(parser, work))
