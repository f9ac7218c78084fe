"""A table's staged mutations as Spark's tasks read them, by the code that reads them in the process.

Of a merge of a million mutations of ten columns this takes a twentieth more processor time than Spark's own reader of
Parquet, with the same rules in SQL; of the rows of a log a quarter less. Rows that only come are written by the tasks,
see task_appends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from binlake.binlog.border import DELETE, INSERT
from binlake.merge.arrow_mutations import HELD, NUMBER, StagedMutations, moved
from binlake.merge.lake_images import LakeImages
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.merge.own_values import Written, with_own
from binlake.merge.position_texts import mutation_texts
from binlake.planner.manifest import StagedFile
from binlake.planner.steps import Life, MergeStep, XaCommit
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import own_columns
from binlake.schema.table import TableSchema

_SHARE = 16_000_000
"""Bytes of staged files for each task."""
AT = ("file", "offset", HELD, "row")
"""Columns of the place of a mutation, which compare as the log does, also with those of other tables."""
GONE, PART, IMAGE = "gone ", "part ", "image "
"""Columns of a change: whether the row goes, 0 for its old image and 1 for its new one, and that image."""


@dataclass(frozen=True)
class TaskRows:
    """Rows that Spark's tasks make of an epoch's mutations after the snapshot.

    made: makes them of a part of what StagedMutations.unordered yields with ``more``. schema: theirs.
    """

    life: Life
    step: MergeStep
    invalid: InvalidValues
    made: Callable[[pa.Table], pa.Table]
    schema: pa.Schema
    more: Sequence[str] = ()

    def frame(self, session: SparkSession) -> DataFrame:
        """Return the rows."""
        return self.passed(session, lambda rows: rows, self.schema)

    def passed(
        self, session: SparkSession, through: Callable[[Iterator[pa.Table]], Iterable[pa.Table]], schema: pa.Schema
    ) -> DataFrame:
        """Return what ``through`` makes of the rows of each task. schema: of that."""
        shares = list(_shares(self.step))

        def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    for rows in through(self._rows(*shares[number])):
                        yield from rows.to_batches()

        return session.range(0, len(shares), 1, len(shares)).mapInArrow(read, spark_columns(schema))

    def _rows(self, step: MergeStep, share: tuple[int, int]) -> Iterator[pa.Table]:
        for rows in StagedMutations(self.life, step, self.invalid, 0).unordered(share, self.more):
            yield self.made(rows).cast(self.schema)


def spark_columns(schema: pa.Schema) -> StructType:
    """Return columns as Spark has them. Releases before 4.2 take a DATETIME for an instant, unless it is said."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _shares(step: MergeStep) -> Iterator[tuple[MergeStep, tuple[int, int]]]:
    """Yield the tasks by which a step's files are read: a step of some small files, or a share of a large one's row
    groups."""
    small: list[StagedFile] = []
    for file in step.files:
        count = 1 + file.bytes // _SHARE
        if count > 1:
            yield from ((_only(step, file), (number, count)) for number in range(count))
            continue
        if small and sum(other.bytes for other in small) + file.bytes > _SHARE:
            yield _only(step, *small), (0, 1)
            small = []
        small.append(file)
    if small:
        yield _only(step, *small), (0, 1)
    held: dict[str, list[tuple[StagedFile, XaCommit]]] = defaultdict(list)
    for file, commit in step.xa:
        held[file.path].append((file, commit))
    # The rows of an XA transaction are numbered, so that they are read by one task.
    yield from ((replace(_only(step), xa=tuple(ended)), (0, 1)) for ended in held.values())


def _only(step: MergeStep, *files: StagedFile) -> MergeStep:
    return replace(step, files=files, xa=(), parents=())


def staged_rows(
    session: SparkSession, life: Life, step: MergeStep, images: LakeImages, invalid: InvalidValues
) -> DataFrame | None:
    """Return the epoch's mutations after the snapshot with both images; None where nothing was staged."""
    if not step.staged:
        return None
    image = pa.struct([(column.name, column.arrow) for column in images.columns])
    schema = pa.schema([("op", pa.int8()), *((name, pa.int64()) for name in AT), ("before", image), ("after", image)])

    def made(rows: pa.Table) -> pa.Table:
        both = {name: _struct(images.rows(rows, name), pc.is_null(rows[name])) for name in ("before", "after")}
        return pa.table({**{name: rows[name] for name in ("op", *AT)}, **both})

    return TaskRows(life, step, invalid, made, schema).frame(session)


@dataclass(frozen=True)
class ChangedImages:
    """The images that came by an epoch's mutations, and the old ones that went.

    An update that changes the key is a delete of the old one and an upsert of the new one. batch: its number, where the
    mirror's own columns are part of the image. every: old images of all updates, not only of those that change the key.
    """

    table: TableSchema
    images: LakeImages
    batch: int | None = None
    every: bool = False

    @classmethod
    def of(cls, epoch: MirrorEpoch, *, every: bool = False) -> ChangedImages:
        """Return those of an epoch of a mirror; of a table without a key all old images."""
        batch = epoch.batch if own_columns(epoch.schema) else None
        return cls(epoch.schema, epoch.images, batch, every or not epoch.schema.key)

    @property
    def more(self) -> Sequence[str]:
        """Return what is needed of the transaction's columns."""
        return () if self.batch is None else ("committed_us",)

    @property
    def columns(self) -> pa.Schema:
        """Return the columns of the image."""
        own = () if self.batch is None else own_columns(self.table)
        return pa.schema([(column.name, column.arrow) for column in (*self.images.columns, *own)])

    @property
    def schema(self) -> pa.Schema:
        """Return AT, PART, GONE and IMAGE."""
        places = [pa.field(name, pa.int64()) for name in AT]
        image = pa.struct(list(self.columns))
        return pa.schema([*places, pa.field(PART, pa.int8()), pa.field(GONE, pa.bool_()), pa.field(IMAGE, image)])

    def made(self, rows: pa.Table) -> pa.Table:
        """Return the images of some mutations, in columns of ``schema``."""
        is_old, came = pc.not_equal(rows["op"], INSERT), pc.not_equal(rows["op"], DELETE)
        if not pc.any(is_old).as_py():
            return self._images(rows, 1)
        left = is_old if self.every else pc.or_(pc.invert(came), moved(self.table.key, rows))
        return pa.concat_tables([self._images(rows.filter(kept), part) for part, kept in enumerate((left, came))])

    def _images(self, rows: pa.Table, part: int) -> pa.Table:
        of_image, count = self.image(rows, part), rows.num_rows
        return pa.table({
            **{name: rows[name] for name in AT},
            PART: pa.repeat(pa.scalar(part, pa.int8()), count), GONE: pa.repeat(pa.scalar(not part), count),
            IMAGE: _struct(of_image),
        })  # fmt: skip

    def image(self, rows: pa.Table, part: int) -> pa.Table:
        """Return the old images of some mutations, or the new ones (``part`` = 1)."""
        of_image = self.images.rows(rows, ("before", "after")[part])
        if self.batch is None:
            return of_image
        texts = mutation_texts(*(rows[name].to_numpy() for name in ("file", "offset", NUMBER)))
        return with_own(of_image, self.table, Written(self.batch, rows["committed_us"], texts), deleted=not part)


def changes(
    session: SparkSession, life: Life, step: MergeStep, changed: ChangedImages, invalid: InvalidValues
) -> DataFrame | None:
    """Return the images that came by the epoch's mutations, and the old ones that went: AT, PART, GONE and IMAGE. None
    where nothing was staged."""
    if not step.staged:
        return None
    return TaskRows(life, step, invalid, changed.made, changed.schema, changed.more).frame(session)


def _struct(rows: pa.Table, absent: pa.ChunkedArray | None = None) -> pa.StructArray:
    arrays = [column.combine_chunks() for column in rows.columns]
    mask = None if absent is None else absent.combine_chunks()
    return pa.StructArray.from_arrays(arrays, fields=list(rows.schema), mask=mask)
