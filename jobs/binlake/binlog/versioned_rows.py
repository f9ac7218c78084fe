"""Mutations of system-versioned tables: which of them change current rows.

The time of a current row has no end. The server logs former rows as it writes them: an update inserts the row as it
was, a delete gives the row its end (TABLE::delete_row, sql/sql_delete.cc; vers_insert_history_row, sql/table.cc).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from binlake.binlog.border import DELETE, INSERT, UPDATE

NO_END = (2_147_483_647_999_999, 4_294_967_295_999_999)
"""The last TIMESTAMP in microseconds: of 2038 before MariaDB 11.5, of 2106 since."""


def of_current_rows(rows: pa.RecordBatch, row_end: str) -> pa.RecordBatch:
    """Return what staged mutations of a system-versioned table do to its current rows."""
    was, stays = (_has_no_end(rows.column(image), row_end) for image in ("before", "after"))
    op = pc.if_else(was, pc.if_else(stays, UPDATE, DELETE), INSERT)
    before, after = (
        pc.if_else(shown, rows.column(image), None) for shown, image in ((was, "before"), (stays, "after"))
    )
    changed = {"op": pc.cast(op, pa.int8()), "before": before, "after": after}
    arrays = [changed.get(name, rows.column(name)) for name in rows.schema.names]
    return pa.RecordBatch.from_arrays(arrays, rows.schema.names).filter(pc.or_(was, stays))


def _has_no_end(struct: pa.StructArray, row_end: str) -> pa.BooleanArray:
    end = pc.cast(struct.field(row_end), pa.int64())
    return pc.fill_null(pc.and_(struct.is_valid(), pc.is_in(end, pa.array(NO_END))), False)
