"""What an epoch's staged mutations change in a table's history, as ``history_rows`` takes it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from binlake.batch.steps import Life, MergeStep
from binlake.binlog.border import DELETE
from binlake.merge.arrow_mutations import HELD, SEQUENCE, moved, ordered_mutations
from binlake.merge.history_rows import CHANGE_FIELDS, FROM, GONE, TIME, TRANSACTION, VALID_FROM
from binlake.merge.newest import lake_images
from binlake.merge.position_texts import mutation_texts
from binlake.merge.shared_reads import SharedReads
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.virtual import computed_columns

_NUMBER = "number "


def staged_changes(
    life: Life,
    step: MergeStep,
    columns: Sequence[LakeColumn],
    invalid: InvalidValues,
    reads: SharedReads,
    *,
    by_mutation: bool,
    most: int,
) -> pa.Table:
    """Return the changes of rows in the order of the log: the lake's columns, and CHANGE_FIELDS.

    An update that changes the key is two changes: the old key's row goes, the new key's comes. by_mutation: each change
    of a row counts, not the last of a transaction alone. reads: where others read the same files. Raises LeftToSpark
    where the staged rows take more than ``most`` bytes of memory; StagingError.
    """
    staged = ordered_mutations(life, step, invalid, most, reads)
    number = np.arange(staged.num_rows)
    marks = pa.table(
        {
            VALID_FROM: staged["committed_us"].cast(TIME),
            FROM: mutation_texts(*(staged[name].to_numpy() for name in SEQUENCE)),
            TRANSACTION: number if by_mutation else _transactions(staged),
            _NUMBER: number,
        }
    )
    is_gone = pc.equal(staged["op"], DELETE)
    came = _changes(step, columns, staged, marks, "after", pc.invert(is_gone))
    left = _changes(step, columns, staged, marks, "before", pc.or_(is_gone, moved(step.schema, staged)))
    changes = pa.concat_tables([left, came])
    order = np.argsort(changes[_NUMBER].to_numpy(), kind="stable")
    return changes.take(pa.array(order)).drop_columns([_NUMBER])


def _changes(
    step: MergeStep,
    columns: Sequence[LakeColumn],
    staged: pa.Table,
    marks: pa.Table,
    image: str,
    wanted: pa.ChunkedArray,
) -> pa.Table:
    """Return the rows that came (``after``) or left (``before``)."""
    rows = lake_images(columns, staged.select([image]).filter(wanted), image, computed_columns(step.schema))
    marks = marks.filter(wanted)
    gone = pa.repeat(pa.scalar(image == "before"), marks.num_rows)
    beside = {**{name: marks[name] for name in marks.column_names}, GONE: gone}
    for name in (*(field.name for field in CHANGE_FIELDS), _NUMBER):
        rows = rows.append_column(name, beside[name])
    return rows


def _transactions(staged: pa.Table) -> NDArray[np.int64]:
    """Number the transactions of ordered mutations.

    GTID and commit time, in microseconds, tell them apart. Without GTIDs two transactions may have one commit time, but
    not if they changed the same row: the second waited for the first one's commit.
    """
    begins = np.zeros(staged.num_rows, np.bool_)
    gtid = staged["gtid"].unify_dictionaries().combine_chunks()
    codes = pc.fill_null(gtid.indices, -1).to_numpy()
    held = staged[HELD].to_numpy() != 0
    outcome = np.where(held, staged["offset"].to_numpy(), -1)
    for values in (codes, staged["committed_us"].to_numpy(), outcome):
        begins[1:] |= values[1:] != values[:-1]
    return np.cumsum(begins)
