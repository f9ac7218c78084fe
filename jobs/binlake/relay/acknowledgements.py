"""Events that clients acknowledged since the relay's state was saved: a line in a file for each poll.

The state is saved whole when batches arrive, and every few seconds. A killed relay would tell everything again that was
acknowledged since. A lake in a store has no file to append to: there ``--every`` bounds what is told twice.
"""

from __future__ import annotations

import os
from contextlib import suppress

from binlake.errors import LakeError


class Acknowledgements:
    """The newest count of acknowledged events of each client, in all its life, by the client's id."""

    def __init__(self, path: str) -> None:
        """path: of the file; one in a store is neither read nor written."""
        self._path = None if "://" in path else path
        self._file: int | None = None

    def read(self) -> dict[int, int]:
        """Return the counts that were noted since the last ``clear``."""
        counts: dict[int, int] = {}
        if self._path is None or not os.path.exists(self._path):
            return counts
        with open(self._path, encoding="ascii", errors="replace") as lines:
            for line in lines:
                with suppress(ValueError):  # the last line may be cut off
                    client, count, _ = line.split(" ")
                    counts[int(client)] = int(count)
        return counts

    def note(self, client: int, count: int) -> None:
        """Append a client's count. It survives the death of the process, not that of the machine."""
        if self._path is None:
            return
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.write(self._file, f"{client} {count} \n".encode("ascii"))
        except OSError as error:
            raise LakeError(f"{self._path}: {error.strerror}", remedy="the relay tells events again") from error

    def clear(self) -> None:
        """Forget the counts: the state that was saved has them."""
        if self._path is not None and os.path.exists(self._path):
            os.truncate(self._path, 0)
