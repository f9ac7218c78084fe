"""A foreign key of the server's, whatever it does."""

from __future__ import annotations

from dataclasses import dataclass

from binlake.schema.table import TableName


@dataclass(frozen=True, order=True)
class ForeignKey:
    """A foreign key. columns: of the child, which hold the values of the parent's columns ``referenced`` in this
    order."""

    child: TableName
    name: str
    columns: tuple[str, ...]
    parent: TableName
    referenced: tuple[str, ...]
