"""A table's staged mutations as Spark reads them, and their images as the lake has them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import from_arrow_schema

from binlake.batch.manifest import StagedFile
from binlake.batch.steps import Life, MergeStep
from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.binlog.staged_schema import staged_schema
from binlake.binlog.versioned_rows import NO_END
from binlake.names import spark_quote
from binlake.schema import arithmetic
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.render import RENDERERS, vectors_in_bytes
from binlake.schema.table import TableSchema
from binlake.schema.virtual import computed_columns


def staged_rows(session: SparkSession, life: Life, step: MergeStep, invalid: InvalidValues) -> DataFrame | None:
    """Return the epoch's mutations after the snapshot; None where nothing was staged.

    Those of an XA transaction stand where it was committed, in their own order there: ``place``, which is 0 for the
    others. ``number`` is that of a mutation among all that are logged in its place.
    """
    parts = []
    if step.files:
        staged = _read(session, step.files, step.schema, invalid)
        if any(file.xids for file in step.files):
            staged = staged.where("xid IS NULL")
        number, offset = life.low.order
        if min(file.first[:2] for file in step.files) < (number, offset):
            staged = staged.where(f"file > {number} OR (file = {number} AND offset >= {offset})")
        parts.append(staged.selectExpr("*", "0L AS place", "row AS number"))
    if step.xa:
        parts.append(_committed(session, step, invalid))
    if not parts:
        return None
    staged = reduce(DataFrame.unionByName, parts)
    return staged if step.schema.row_end is None else _of_current_rows(staged, step.schema.row_end)


def _of_current_rows(staged: DataFrame, row_end: str) -> DataFrame:
    """Return what the mutations of a system-versioned table do to its current rows: see versioned_rows.py."""
    was, stays = (f"unix_micros({image}.{spark_quote(row_end)}) IN {NO_END}" for image in ("before", "after"))
    changed = staged.where(f"{was} OR {stays}")
    own = [name for name in staged.columns if name not in ("op", "before", "after")]
    return changed.selectExpr(
        *own,
        f"CASE WHEN NOT coalesce({was}, false) THEN {INSERT} WHEN {stays} THEN {UPDATE} ELSE {DELETE} END AS op",
        f"IF({was}, before, NULL) AS before",
        f"IF({stays}, after, NULL) AS after",
    )


def _read(
    session: SparkSession, files: tuple[StagedFile, ...], known: TableSchema, invalid: InvalidValues
) -> DataFrame:
    """Read the rows of staged files that weren't rolled back."""
    schema = staged_schema(files[0].columns, invalid)
    staged = session.read.schema(from_arrow_schema(schema)).parquet(*[file.path for file in files])
    for name in vectors_in_bytes(known.logged, files[0].columns):
        for image in ("before", "after"):
            vector = functions.expr(f"binlake_vector({image}.{spark_quote(name)})")
            staged = staged.withColumn(image, functions.col(image).withField(spark_quote(name), vector))
    void = sorted({(file.first[0], *bounds) for file in files for bounds in file.void})
    if not void:
        return staged
    columns = "number bigint, first bigint, first_row bigint, last bigint, last_row bigint"
    session.createDataFrame(void, columns).createOrReplaceTempView("void")
    staged.createOrReplaceTempView("everything")
    return session.sql("""
        SELECT * FROM everything LEFT ANTI JOIN void
        ON file = number AND (offset > first OR (offset = first AND row >= first_row))
           AND (offset < last OR (offset = last AND row < last_row))
    """)


def _committed(session: SparkSession, step: MergeStep, invalid: InvalidValues) -> DataFrame:
    """Return the rows of the XA transactions that ended."""
    staged = _read(session, tuple({file.path: file for file, _ in step.xa}.values()), step.schema, invalid)
    outcomes = dict.fromkeys(commit for _, commit in step.xa)
    rows = [
        (end.xid, end.file, end.after, end.prepared, *end.committed, end.committed_us, end.gtid) for end in outcomes
    ]
    columns = (
        "xa string, number bigint, behind bigint, prepared bigint, ended_file bigint, ended_offset bigint,"
        " ended_us bigint, ended_gtid string"
    )
    session.createDataFrame(rows, columns).createOrReplaceTempView("ended")
    staged.createOrReplaceTempView("held")
    outcome = {"file": "ended_file", "offset": "ended_offset", "committed_us": "ended_us", "gtid": "ended_gtid"}
    listed = ", ".join(f"{outcome[name]} AS {name}" if name in outcome else name for name in staged.columns)
    return session.sql(f"""
        SELECT /*+ BROADCAST(ended) */ {listed}, offset AS place,
               row_number() OVER (PARTITION BY ended_file, ended_offset ORDER BY offset, row) - 1L AS number
        FROM held JOIN ended ON xid = xa AND file = number AND offset > behind AND offset <= prepared
    """)


def lake_image(schema: TableSchema, columns: Sequence[LakeColumn], image: str, prefix: str = "") -> list[str]:
    """Return the lake's columns of a staged image, as SQL expressions. prefix: of their names."""
    computed = computed_columns(schema)

    def expression(column: LakeColumn) -> str:
        staged = f"{image}.{spark_quote(column.name)}"
        if column.is_side:
            return staged
        if column.source.type in RENDERERS:
            return f"binlake_{column.source.type}({staged})"
        if column.name in computed:
            return f"CAST({arithmetic.sql(computed[column.name], image)} AS {column.delta})"
        return staged

    return [f"{expression(column)} AS {spark_quote(prefix + column.name)}" for column in columns]
