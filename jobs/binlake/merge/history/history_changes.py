"""The changes of an epoch's staged mutations to a table's history, as ``history_rows`` takes them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from binlake.binlog.border import DELETE
from binlake.merge.arrow_mutations import HELD, SEQUENCE, StagedMutations, moved
from binlake.merge.history.history_rows import CHANGE_FIELDS, FROM, GONE, TIME, TRANSACTION, VALID_FROM
from binlake.merge.lake_images import LakeImages
from binlake.merge.position_texts import mutation_texts

_NUMBER = "number "


def staged_changes(mutations: StagedMutations, images: LakeImages, *, by_mutation: bool) -> pa.Table:
    """Return the changes of rows in the order of the log: the lake's columns, and CHANGE_FIELDS.

    An update that changes the key is two changes: the old key's row goes, the new key's comes. images: how the lake's
    columns are made. by_mutation: each change of a row counts, not the last of a transaction alone. Raises LeftToSpark
    where the staged rows take too much memory; StagingError.
    """
    staged = mutations.ordered()
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
    left = pc.or_(is_gone, moved(mutations.step.schema.key, staged))
    parts = [
        _changes(images.rows(staged.select([image]).filter(wanted), image), marks.filter(wanted), gone=gone)
        for image, wanted, gone in (("before", left, True), ("after", pc.invert(is_gone), False))
    ]
    changes = pa.concat_tables(parts)
    order = np.argsort(changes[_NUMBER].to_numpy(), kind="stable")
    return changes.take(pa.array(order)).drop_columns([_NUMBER])


def _changes(rows: pa.Table, marks: pa.Table, *, gone: bool) -> pa.Table:
    """Return rows with what is said of each of them. gone: whether they left."""
    beside = {name: marks[name] for name in marks.column_names} | {GONE: pa.repeat(pa.scalar(gone), marks.num_rows)}
    for name in (*(field.name for field in CHANGE_FIELDS), _NUMBER):
        rows = rows.append_column(name, beside[name])
    return rows


def _transactions(staged: pa.Table) -> NDArray[np.int64]:
    """Number the transactions of ordered mutations.

    GTID and commit time, in microseconds, distinguish them. Without GTIDs two transactions may have one commit time,
    but not if they changed the same row: the second waited for the first one's commit.
    """
    begins = np.zeros(staged.num_rows, np.bool_)
    gtid = staged["gtid"].unify_dictionaries().combine_chunks()
    codes = pc.fill_null(gtid.indices, -1).to_numpy()
    held = staged[HELD].to_numpy() != 0
    outcome = np.where(held, staged["offset"].to_numpy(), -1)
    for values in (codes, staged["committed_us"].to_numpy(), outcome):
        begins[1:] |= values[1:] != values[:-1]
    return np.cumsum(begins)
