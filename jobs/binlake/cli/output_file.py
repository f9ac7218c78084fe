"""A file that a command writes: it appears complete, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from binlake.errors import UsageError


@contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes its name once it is complete; a device or a pipe is written as it is. Raises UsageError
    where it can't be written."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        try:
            with path.open("wb") as file:
                yield file
        except OSError as error:
            raise _unwritable(path, error) from error
        return
    try:
        descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(partial, 0o666 & ~mask)
        os.replace(partial, path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        Path(partial).unlink(missing_ok=True)


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"can't write {path}: {error.strerror}", remedy="name another file: --output FILE")
