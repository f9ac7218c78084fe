"""The process that copies tables of a source beside its batches: one at a time.

Its row keeps two processes from copying the same tables. It says nothing about the lake, which is changed under the
source's lease alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from binlake.errors import LeaseHeld, TablesCopied
from binlake.metadata.held_row import HeldRow, SharedRow
from binlake.metadata.metadata import Metadata, now_us
from binlake.moment import moment_text

TABLE = "copiers"


def _row(metadata: Metadata) -> SharedRow:
    return SharedRow(metadata, TABLE, None, "the copying of tables")


class Copier(HeldRow):
    """The row, held by this process."""

    def __init__(self, metadata: Metadata) -> None:
        super().__init__(_row(metadata), self.new_token())

    def check(self) -> None:
        """Raise LeaseHeld when another process took the row over."""
        row = self._row.read()
        if row.get("token") != self._token:
            holder = row.get("holder") or "another, which has ended"
            raise LeaseHeld(
                f"this run lost its lease of the copying of tables to {holder}",
                remedy="nothing to do: the other run copies what is to be copied",
            )

    def _refused(self, row: Mapping[str, Any]) -> LeaseHeld:
        return TablesCopied(
            f"{row['holder']} copies tables of this source since {moment_text(row['since_us'])}",
            remedy="wait for it to end, then run again",
        )


@contextmanager
def held(metadata: Metadata) -> Iterator[Copier]:
    """Hold the row, renewed by a thread, and give it back. Raises TablesCopied, naming who copies; LakeError."""
    if not metadata.read(TABLE, ["token"]):
        metadata.create_with(TABLE, [{"expires_us": 0}])
    with Copier(metadata).held(changes={"since_us": now_us()}) as taken:
        yield taken


def take_away(metadata: Metadata) -> str | None:
    """Free the row, and return its holder: see SharedRow.take_away."""
    return _row(metadata).take_away()
