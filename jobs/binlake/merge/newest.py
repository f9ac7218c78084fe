"""The result of an epoch's staged mutations, as Arrow: the keys that changed, and the rows that remain at the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlake.binlog.border import DELETE
from binlake.errors import LeftToSpark
from binlake.merge.arrow_mutations import SEQUENCE, StagedMutations, moved
from binlake.merge.lake_images import LakeImages
from binlake.merge.own_values import Written, with_own
from binlake.merge.position_texts import mutation_texts
from binlake.schema.lake_columns import LakeColumn, own_columns
from binlake.schema.table import TableSchema

PLACE = "place "
"""Beside columns of a key: no name of the server's ends with a space."""


def check_key(key: Sequence[str], columns: Sequence[LakeColumn]) -> None:
    """Raise LeftToSpark unless rows are identified by the bytes of their key. columns: the lake's."""
    keys = [column for column in columns if column.source.name in key]
    if any(column.is_side for column in keys):
        raise LeftToSpark("its key may hold invalid values")
    if any(pa.types.is_floating(column.arrow) for column in keys):
        raise LeftToSpark("its key has floating-point numbers")
    if any(pa.types.is_nested(column.arrow) for column in keys):
        raise LeftToSpark("its key has lists")


def newest_rows(mutations: StagedMutations, images: LakeImages, batch: int) -> tuple[pa.Table, pa.Table]:
    """Return the staged keys, old and new ones, and the rows that remain at the end, both as the lake has them.

    images: how the mirror's columns are made. Where deleted rows stay, they are among them. batch: its number. Raises
    LeftToSpark where the staged rows take too much memory.

    Keys compare as bytes: before images carry the stored key, so collations need no emulation. An update that changes
    the key deletes the old one, and then writes the new one.
    """
    schema = mutations.step.schema
    has_own = bool(own_columns(schema))
    more = ("committed_us", *SEQUENCE) if has_own else ()
    came: list[pa.Table] = []
    left: list[pa.Table] = []
    count = 0
    for staged in mutations.newest_in_parts(more):
        numbered = staged.append_column("number", pa.array(np.arange(count, count + staged.num_rows)))
        count += staged.num_rows
        is_delete = pc.equal(staged["op"], DELETE)
        came.append(_where(numbered.select(["after", "number", *more]), pc.invert(is_delete)))
        left.append(numbered.select(["before", "number", *more]).filter(pc.or_(is_delete, moved(schema.key, staged))))
        del staged, numbered  # most old images aren't asked for again
    return _newest(schema, images, _concatenated(came), _concatenated(left), batch if has_own else None)


def _concatenated(parts: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(parts, promote_options="default")


def _newest(
    schema: TableSchema, images: LakeImages, came: pa.Table, left: pa.Table, batch: int | None
) -> tuple[pa.Table, pa.Table]:
    """Return the keys, and the rows that remain.

    came, left: rows with the new image of those that exist behind a mutation, and with the old image of those that
    don't any more.
    batch: None where the mirror has no columns of its own.
    """
    keys = {image: images.rows(rows, image) for image, rows in (("after", came), ("before", left))}
    if batch is not None:
        keys = {
            "after": with_own(keys["after"], schema, _written(came, batch), deleted=False),
            "before": with_own(keys["before"], schema, _written(left, batch), deleted=True),
        }
    standing = ("after", "before") if schema.soft_delete else ("after",)
    changed = pa.concat_tables([keys[image].select(schema.key) for image in ("before", "after")])
    if _are_different_numbers(changed):
        return changed, pa.concat_tables([keys[image] for image in standing])
    ranks = {"after": pc.add(pc.multiply(came["number"], 2), 1), "before": pc.multiply(left["number"], 2)}
    chunks = [chunk for image in ("before", "after") for chunk in ranks[image].chunks]
    places = pa.chunked_array(chunks, pa.int64())  # there is none where all mutations were taken back
    changes = changed.append_column(PLACE, places)
    last = changes.group_by(list(schema.key), use_threads=False).aggregate([(PLACE, "max")])
    if last.num_rows == changes.num_rows:  # no key occurs twice
        return last.select(schema.key), pa.concat_tables([keys[image] for image in standing])
    newest = last[f"{PLACE}_max"].combine_chunks()
    stand = [keys[image].filter(pc.is_in(ranks[image], value_set=newest)) for image in standing]
    return last.select(schema.key), pa.concat_tables(stand)


def _written(mutations: pa.Table, batch: int) -> Written:
    places = (mutations[name].to_numpy() for name in SEQUENCE)
    return Written(batch, mutations["committed_us"], mutation_texts(*places))


def _are_different_numbers(keys: pa.Table) -> bool:
    """Return whether the keys are of one column of numbers, and none occurs twice: they are sorted in a tenth of the
    memory in which they are grouped."""
    column = keys.column(0)
    if keys.num_columns != 1 or not pa.types.is_integer(column.type) or column.null_count:
        return False
    ascending = np.sort(column.to_numpy())
    return bool((ascending[1:] != ascending[:-1]).all())


def _where(rows: pa.Table, wanted: pa.ChunkedArray) -> pa.Table:
    """Return the wanted rows, uncopied where all are wanted."""
    return rows if pc.all(wanted).as_py() else rows.filter(wanted)
