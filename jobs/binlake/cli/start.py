"""The entry point of ``binlake``, which can be interrupted before the command's modules are imported."""

import gc
import os
import sys

from binlake import interrupts
from binlake.cli import without_pandas

_FEW_OBJECTS = 100_000
"""New objects after which garbage is looked for among them. With Python's 700 that is done 70 times in a sync without
changes, and takes 3 % of its processor time; with changes numba is imported, and it takes more."""


def main() -> None:
    """Run a command, and exit with its code."""
    heard = interrupts.end_at_once()
    gc.disable()  # what modules make stays: to look for garbage in it takes a tenth of the start
    without_pandas.keep_out()
    # to look for them, pydantic reads the metadata of all packages that are installed
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        from binlake.cli import command_line
    except ImportError:
        from binlake import versions

        if error := versions.misfit():
            print(f"binlake: {error}", file=sys.stderr)
            sys.exit(error.exit_code)
        raise

    gc.freeze()
    gc.set_threshold(_FEW_OBJECTS)
    gc.enable()
    if heard:
        interrupts.raise_from_here_on()
    sys.exit(command_line.run())
