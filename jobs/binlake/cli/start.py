"""The entry point of ``binlake``, which can be interrupted before the command's modules are imported."""

import gc
import sys

from binlake import interrupts
from binlake.cli import without_pandas


def main() -> None:
    """Run a command, and exit with its code."""
    heard = interrupts.end_at_once()
    gc.disable()  # what modules make stays: to look for garbage in it takes a tenth of the start
    without_pandas.keep_out()
    try:
        from binlake.cli import command_line
    except ImportError:
        from binlake import versions

        if error := versions.misfit():
            print(f"binlake: {error}", file=sys.stderr)
            sys.exit(error.exit_code)
        raise

    gc.freeze()
    gc.enable()
    if heard:
        interrupts.raise_from_here_on()
    sys.exit(command_line.run())
