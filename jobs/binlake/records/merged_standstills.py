"""Merged tables that are stopped, and shards that these don't show as they are: noted until it is otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from binlake.planner.steps import Standstill
from binlake.schema.table import TableName
from binlake.store.conditions import rows_of
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import MergedRow


@dataclass(frozen=True)
class NotedStandstills:
    """The notes about a merged table. own: why it is stopped itself. shards: why they aren't shown as they are, by
    name."""

    own: Standstill | None
    shards: Mapping[str, Standstill]


NOTHING = NotedStandstills(None, {})


def read(metadata: Metadata) -> dict[TableName, NotedStandstills]:
    """Return what is noted, by merged table. Raises LakeError."""
    noted: dict[TableName, dict[str | None, Standstill]] = {}
    for row in MergedRow.read(metadata):
        noted.setdefault(row.name, {})[row.shard] = Standstill(row.reason, row.remedy)
    return {
        name: NotedStandstills(rows.get(None), {shard: why for shard, why in rows.items() if shard is not None})
        for name, rows in noted.items()
    }


def note(metadata: Metadata, name: TableName, before: NotedStandstills, now: NotedStandstills) -> None:
    """Note the state of a merged table, in one commit; nothing where that is noted. Raises LakeError."""
    if now == before:
        return
    stamp = now_us()
    standing: list[tuple[str | None, Standstill]] = [*now.shards.items()]
    if now.own is not None:
        standing.append((None, now.own))
    rows = [
        MergedRow(**vars(name), shard=shard, reason=why.reason, remedy=why.remedy, at_us=stamp)
        for shard, why in standing
    ]
    MergedRow.replace(metadata, rows_of(name), rows)
