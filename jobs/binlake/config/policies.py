"""Policies: what to do about statements that don't only change rows, and about failures."""

from __future__ import annotations

from typing import Literal

from binlake import names
from binlake.config.section import Section, TablePattern
from binlake.schema.table import TableName


class Policy(Section):
    """Decisions about statements that don't only change rows, and about failures.

    on_drop_column: ``keep`` leaves the column in the lake, with NULL in newer rows. on_unfollowable: after a statement
    whose effect on the rows can't be computed from the log, the table is snapshotted again, or stops.

    without_key: rows of a table without a key are matched by all their values, with a scan per batch (``exact``); or
    they are appended, and an update or delete stops the table (``append``).

    on_unlogged_cascade: if a foreign key changes rows of the table without logging it, the table isn't mirrored
    (``stop``); or it is snapshotted again after each batch that deletes (or updates, if that cascades) rows of the
    parent (``resnapshot``); or its changes are derived from the parent's, with a new snapshot if that can't be done
    exactly (``derive``).

    on_untold_column: if the log lacks the values of a VIRTUAL column (see schema/virtual.py), the column is left out,
    or the table isn't mirrored.

    on_decode_failure, on_merge_failure, on_commit_failure: if a table's part of the log can't be decoded or followed,
    its rows can't be merged, or the lake's storage fails, the table stops and the others continue; or the run ends, and
    the next one repeats it. Nothing is skipped either way.
    """

    on_drop_column: Literal["drop", "keep"] = "drop"
    on_drop_table: Literal["keep", "drop"] = "keep"
    on_truncate: Literal["follow", "stop"] = "follow"
    on_unfollowable: Literal["resnapshot", "stop"] = "resnapshot"
    without_key: Literal["exact", "append"] = "exact"
    on_unlogged_cascade: Literal["stop", "resnapshot", "derive"] = "stop"
    on_untold_column: Literal["leave_out", "stop"] = "leave_out"
    on_decode_failure: Literal["stop_table", "stop_run"] = "stop_table"
    on_merge_failure: Literal["stop_table", "stop_run"] = "stop_table"
    on_commit_failure: Literal["stop_table", "stop_run"] = "stop_run"


class PoliciesConfig(Policy):
    """The source's policy. tables: other policies by pattern of database.table; the last match overrides others."""

    tables: dict[TablePattern, Policy] = {}

    def of(self, name: TableName) -> Policy:
        """Return the policy of a table: the source's, overridden by each pattern that matches, in their order."""
        chosen = self.model_dump(exclude={"tables"})
        for pattern, policy in self.tables.items():
            if names.matches(pattern, name.database, name.table):
                chosen |= policy.model_dump(exclude_unset=True)
        return Policy(**chosen)
