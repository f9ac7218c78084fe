"""The process that copies tables of a source beside its batches: one at a time.

Its row keeps two processes from copying the same tables. It says nothing about the lake, which is changed under the
source's lease alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from binlake.errors import LeaseHeld, TablesCopied
from binlake.lease.held_row import HeldRow, SharedRow
from binlake.lease.holder import wait_remedy
from binlake.moment import moment_text
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import ChunkRow, CopierRow


def _row(metadata: Metadata) -> SharedRow[CopierRow]:
    return SharedRow(metadata, CopierRow, None, "the copying of tables")


class Copier(HeldRow[CopierRow]):
    """The row, held by this process."""

    def __init__(self, metadata: Metadata) -> None:
        super().__init__(_row(metadata), self.new_token())

    def check(self) -> None:
        """Raise LeaseHeld when another process took the row over."""
        row = self._row.read()
        if row is None or row.token != self._token:
            holder = (row and row.holder) or "another, which has ended"
            raise LeaseHeld(
                f"this run lost its lease of the copying of tables to {holder}",
                remedy="nothing to do: the other run copies what is to be copied",
            )

    def _refused(self, row: CopierRow) -> LeaseHeld:
        return TablesCopied(
            f"{row.holder} copies tables of this source since {moment_text(row.since_us)}",
            remedy=wait_remedy(row.holder or ""),
        )


@contextmanager
def held(metadata: Metadata) -> Iterator[Copier]:
    """Hold the row, renewed by a thread, and release it. Raises TablesCopied, naming the process that copies;
    LakeError."""
    if not CopierRow.read(metadata, "token"):
        CopierRow.create(metadata, [CopierRow()])
    with Copier(metadata).held(changes={"since_us": now_us()}) as taken:
        yield taken


def tables(metadata: Metadata) -> frozenset[TableName]:
    """Return the tables of which the row's holder has begun chunks that aren't committed; none once its row expired."""
    row = _row(metadata).read()
    if row is None or not row.token or row.expires_us < now_us():
        return frozenset()
    chunks = ChunkRow.read(metadata, "database", "table", "updated_us", where="state <> 'committed'")
    return frozenset(chunk.name for chunk in chunks if chunk.updated_us >= row.since_us)


def take_away(metadata: Metadata) -> str | None:
    """Free the row, and return its holder: see SharedRow.take_away."""
    return _row(metadata).take_away()
