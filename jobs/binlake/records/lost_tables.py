"""Metadata tables that were there and are gone: what is lost with each, and what to do.

A row of ``made`` says which tables were seen in the folder of metadata. Each plan of a batch compares, and adds new
ones. A table without which tables of the lake would be left out in silence stops the run. The loss of another is
reported by the runs that find it gone: once, where no command that writes it again is waited for.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress

from binlake.errors import MetadataLost, WrittenMeanwhile
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import MadeRow, PinRow, WatermarkRow
from binlake.store.table_losses import LOSSES, RESTORE, SYNC


def find(metadata: Metadata, *, notes: bool = True) -> list[str]:
    """Return the metadata tables that are gone. notes: note which are there, once a lake has its lease. Raises
    LakeError."""
    there = metadata.tables()
    known = {table for row in MadeRow.read(metadata) for table in row.names}
    if notes and "lease" in there and not there <= known:
        with suppress(WrittenMeanwhile):  # a process beside this one notes the same
            _note(metadata, known | there)
    return sorted((known & LOSSES.keys()) - there)


def loss_message(table: str) -> str:
    """Return the loss of a table, and what to do, for people."""
    loss = LOSSES[table]
    return f"the metadata table {table} is gone, and with it {loss.meaning}\n  → {RESTORE}; without one: {loss.remedy}"


def refuse_mixed(metadata: Metadata, batch: int) -> None:
    """Raise MetadataLost where watermarks are of a later batch than the lease: they were copied at different times.

    batch: the newest number that was given out.
    """
    rows = WatermarkRow.read(metadata, "batch", "status")
    newest = max((row.batch for row in rows if row.status == "following"), default=0)
    if newest > batch:
        raise MetadataLost(
            f"metadata are of different times: the lease knows batch {batch}, and watermarks batch {newest}",
            remedy="restore a copy of _binlake that was made while no run was at work, with the tables' logs of the "
            "same time (binlake help backup); without one copy all tables again: binlake snapshot --config FILE",
        )


def refuse(metadata: Metadata, work: str) -> list[str]:
    """Return the metadata tables that are gone. Raises MetadataLost for those without which this work isn't done.

    work: sync, maintain or feed.
    """
    lost = find(metadata)
    for table in lost:
        pinned = table == "lake_versions" and work == SYNC and PinRow.count(metadata)
        if work in LOSSES[table].refuses or pinned:
            loss = LOSSES[table]
            raise MetadataLost(
                f"the metadata table {table} is gone, and with it {loss.meaning}: nothing is at "
                f"{metadata.location(table)}",
                remedy=f"{RESTORE}, with the rest of {metadata.path} of the same time; without one: {loss.remedy}",
            )
    if work == SYNC:
        _expect_no_more(metadata, [table for table in lost if LOSSES[table].is_reported_once])
    return lost


def _expect_no_more(metadata: Metadata, tables: Collection[str]) -> None:
    """Note that tables needn't be there, so that their loss is reported once: few commands make some of them."""
    if tables:
        known = {table for row in MadeRow.read(metadata) for table in row.names}
        _note(metadata, known.difference(tables))


def _note(metadata: Metadata, known: Collection[str]) -> None:
    MadeRow.replace(metadata, "true", [MadeRow(tables=json.dumps(sorted(known)), at_us=now_us())])
