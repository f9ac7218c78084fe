"""What an epoch's staged mutations leave behind, as Arrow: the keys that changed, and the rows that stand at last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlake.batch.steps import Life, MergeStep
from binlake.binlog.border import DELETE, UPDATE, staged_schema
from binlake.config import PipelineConfig
from binlake.delta.key_ranges import image_column
from binlake.errors import LeftToSpark
from binlake.schema import arithmetic
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.render import RENDERERS, vectors, vectors_in_bytes
from binlake.schema.table import TableSchema
from binlake.schema.virtual import computed_columns
from binlake.storage import parquet_files

PLACE = "place "
"""Beside columns of a key: no name of the server's ends with a space."""
_SEQUENCE = ("file", "offset", "row")
_READ = ("op", *_SEQUENCE, "before", "after")
"""The columns of staged rows that are read; GTID and commit time are a third of the bytes of short rows."""


def newest_rows(
    life: Life, step: MergeStep, columns: Sequence[LakeColumn], config: PipelineConfig, most: int
) -> tuple[pa.Table, pa.Table]:
    """Return the staged keys, old and new ones, and the rows that stand at last, both as the lake has them.

    Raises LeftToSpark where the staged rows take more than ``most`` bytes of memory.

    Keys compare as bytes: before images carry the stored key, so collations need no emulation. An update that changes
    the key deletes the old one, and then writes the new one.
    """
    staged = _staged_rows(life, step, config, most)
    came = _where(staged.select(["after", "number"]), pc.not_equal(staged["op"], DELETE))
    gone = pc.or_(pc.equal(staged["op"], DELETE), _moved(step.schema, staged))
    left = staged.select(["before", "number"]).filter(gone)
    del staged  # most old images aren't asked for again
    return _newest(step.schema, columns, came, left)


def _staged_rows(life: Life, step: MergeStep, config: PipelineConfig, most: int) -> pa.Table:
    """Return the epoch's mutations after the snapshot, in the order of the log: ``op``, ``before``, ``after``, and
    ``number``, their place in it. Raises LeftToSpark where they take more than ``most`` bytes of memory."""
    parts: list[pa.Table] = []
    for file in step.files:
        part = parquet_files.read_within(file.path, most - sum(earlier.nbytes for earlier in parts), _READ)
        if part is None:
            raise LeftToSpark(f"the staged rows take more than {most / 1e6:,.0f} MB of memory")
        schema = staged_schema(file.columns, config.invalid)
        part = part.cast(pa.schema([schema.field(name) for name in part.column_names]))
        parts.append(_with_vectors(part, vectors_in_bytes(step.schema.logged, file.columns)))
    rows = pa.concat_tables(parts, promote_options="default")
    number, offset = life.low.order
    if min(file.first[:2] for file in step.files) < (number, offset):
        here = pc.and_(pc.equal(rows["file"], number), pc.greater_equal(rows["offset"], offset))
        rows = rows.filter(pc.or_(pc.greater(rows["file"], number), here))
    if not _is_in_order(rows):
        rows = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in _SEQUENCE]))
    return rows.drop_columns(_SEQUENCE).append_column("number", pa.array(np.arange(rows.num_rows)))


def _with_vectors(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return staged rows with lists of floats in the place of these columns' bytes."""
    for image in ("before", "after") if names else ():
        place = rows.schema.get_field_index(image)
        struct = rows[image].combine_chunks()
        fields = [field.name for field in struct.type]
        arrays = [
            vectors(array) if name in names else array for name, array in zip(fields, struct.flatten(), strict=True)
        ]
        made = pa.StructArray.from_arrays(arrays, fields, mask=pc.is_null(struct))
        rows = rows.set_column(place, pa.field(image, made.type), made)
    return rows


def _is_in_order(rows: pa.Table) -> bool:
    """Tell whether the rows ascend by their sequence: to sort them costs a copy of them all."""
    above = np.zeros(max(rows.num_rows - 1, 0), np.bool_)
    for name in reversed(_SEQUENCE):
        values = rows[name].to_numpy()
        above = (values[1:] > values[:-1]) | ((values[1:] == values[:-1]) & above)
    return bool(above.all())


def _newest(
    schema: TableSchema, columns: Sequence[LakeColumn], came: pa.Table, left: pa.Table
) -> tuple[pa.Table, pa.Table]:
    """Return the keys, and the rows that stand.

    came, left: rows with the new and the old image of what stands behind a mutation and what doesn't any more.
    """
    computed = computed_columns(schema)
    keys = {image: _images(columns, rows, image, computed) for image, rows in (("after", came), ("before", left))}
    ranks = {"after": pc.add(pc.multiply(came["number"], 2), 1), "before": pc.multiply(left["number"], 2)}
    changes = pa.concat_tables(
        [keys[image].select(schema.key).append_column(PLACE, ranks[image]) for image in ("before", "after")]
    )
    if _are_different_numbers(changes.select(schema.key)):
        return changes.select(schema.key), keys["after"]
    last = changes.group_by(list(schema.key), use_threads=False).aggregate([(PLACE, "max")])
    if last.num_rows == changes.num_rows:  # no key occurs twice
        return last.select(schema.key), keys["after"]
    stands = pc.is_in(ranks["after"], value_set=last[f"{PLACE}_max"].combine_chunks())
    return last.select(schema.key), keys["after"].filter(stands)


def _are_different_numbers(keys: pa.Table) -> bool:
    """Tell whether the keys are of one column of numbers, and none occurs twice: they are sorted in a tenth of the
    memory in which they are grouped."""
    column = keys.column(0)
    if keys.num_columns != 1 or not pa.types.is_integer(column.type) or column.null_count:
        return False
    ascending = np.sort(column.to_numpy())
    return bool((ascending[1:] != ascending[:-1]).all())


def _where(rows: pa.Table, wanted: pa.ChunkedArray) -> pa.Table:
    """Return the wanted rows, uncopied where all are wanted."""
    return rows if pc.all(wanted).as_py() else rows.filter(wanted)


def _moved(schema: TableSchema, staged: pa.Table) -> pa.ChunkedArray:
    """Tell for each mutation whether it is an update that changes the key."""
    differs = [
        pc.fill_null(pc.not_equal(image_column(staged, "before", name), image_column(staged, "after", name)), True)
        for name in schema.key
    ]
    return pc.and_(pc.equal(staged["op"], UPDATE), reduce(pc.or_, differs))


def _images(
    columns: Sequence[LakeColumn], rows: pa.Table, image: str, computed: Mapping[str, arithmetic.Stored]
) -> pa.Table:
    """Return the lake's columns of a staged image."""
    arrays = {}
    for column in columns:
        if column.name in computed:
            images = rows[image].combine_chunks()
            arrays[column.name] = pa.chunked_array([arithmetic.computed(computed[column.name], images, column.arrow)])
            continue
        stored = image_column(rows, image, column.name)
        if is_rendered(column):
            render = RENDERERS[column.source.type]
            texts = [None if data is None else render(data) for data in stored.to_pylist()]
            stored = pa.chunked_array([pa.array(texts, pa.string())])
        arrays[column.name] = stored
    return pa.table(arrays)


def is_rendered(column: LakeColumn) -> bool:
    """Tell whether the log has bytes where the lake has their text."""
    return not column.is_side and column.source.type in RENDERERS
