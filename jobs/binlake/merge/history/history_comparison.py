"""A history compared with a mirror that equals the server's table at a known position, in one commit.

Where both are small this process reads them; else Spark does, and writes the whole history again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from binlake.delta import data_rows, opened_tables, plain_tables
from binlake.delta.delta_schema import is_widened
from binlake.merge.history.history_files import comparable
from binlake.merge.history.history_rows import (
    CHANGE_FIELDS,
    END_FIELDS,
    FROM,
    GONE,
    TIME,
    TRANSACTION,
    VALID_FROM,
    VALID_TO,
    HistoryChanges,
    RowFlags,
    VersionRules,
    changed_versions,
    closed_rows,
    key_codes,
)
from binlake.merge.history.history_shape import HistoryShape
from binlake.merge.history.history_state import HistoryState
from binlake.merge.own_values import LIVE
from binlake.names import spark_quote, spark_string
from binlake.schema.lake_columns import LakeColumn, lake_columns
from binlake.schema.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Compared:
    """A mirror at one of its versions, and where it equals the server's table.

    position: as the history writes it. committed_us: when the newest transaction before it committed; None where that
    isn't known. renamed: see EventBeside. in_place: other values make no version.
    """

    path: str
    version: int
    schema: TableSchema
    position: str
    committed_us: int | None
    renamed: Sequence[tuple[str, str]] = ()
    in_place: bool = False


def compare(history: HistoryState, against: Compared) -> None:
    """Close and open the versions that differ from the mirror. The history is in step behind it."""
    config = history.step.config
    mirror = opened_tables.opened(against.path, against.version)
    columns = lake_columns(against.schema, config.invalid)
    size = int(pc.sum(pa.table(mirror.get_add_actions())["size_bytes"]).as_py() or 0) + history.open_bytes()
    if why := _left_to_spark(mirror, size, config.merge.without_spark_bytes):
        _compare_by_spark(history.step.engines.session(why), history, against, columns)
        return
    rows = _rows_of(mirror, against, columns)
    if history.log is None:
        history.create(columns, _opened(rows, against))
        return
    at = history.open_rows(columns, against.schema, None, against.renamed)
    names = [column.name for column in columns]
    new = {field.name for field in at.files.fields if field.before is None}
    tracked = [] if against.in_place else [name for name in history.mode.tracked(names) if name not in new]
    history.put(at, _compared(at.rows, rows, against, VersionRules(against.schema.key, names, tracked)))


def _left_to_spark(mirror: DeltaTable, size: int, limit: int) -> str:
    """Return why Spark compares; empty where this process does. size: bytes of data files."""
    if is_widened(mirror):
        return "it is compared with a mirror whose data files have narrower types (type_widening)"
    return f"{size / 1e6:,.1f} MB are compared, above merge.without_spark_mb" if size > limit else ""


def _compared(open_rows: pa.Table, rows: pa.Table, against: Compared, rules: VersionRules) -> HistoryChanges:
    """Return the changes that the mirror's rows make. Of open rows that are equal in all columns one stays: no log
    distinguishes such rows."""
    surplus = _surplus(open_rows, rules)
    changed = _changed(open_rows.filter(pa.array(~surplus)), rows, against, rules)
    replaced = surplus.copy()
    replaced[~surplus] = changed.replaced
    return HistoryChanges(replaced, changed.rows)


def _surplus(open_rows: pa.Table, rules: VersionRules) -> RowFlags:
    """Return which open rows are equal, in all columns, to one before them."""
    _, number, count = np.unique(key_codes(open_rows.select(rules.key)), return_inverse=True, return_counts=True)
    several = np.flatnonzero(count[number] > 1)
    surplus = np.zeros(open_rows.num_rows, np.bool_)
    surplus[several] = True
    surplus[several[np.unique(key_codes(open_rows.take(pa.array(several))), return_index=True)[1]]] = False
    return surplus


def _changed(open_rows: pa.Table, rows: pa.Table, against: Compared, rules: VersionRules) -> HistoryChanges:
    """Return the same for open rows that differ. Those that share a key end: they were written under another key, or
    their key's column has another type now and begins again."""
    _, number, count = np.unique(key_codes(open_rows.select(rules.key)), return_inverse=True, return_counts=True)
    alone = count[number] == 1
    matched, others = open_rows.filter(pa.array(alone)), open_rows.filter(pa.array(~alone))
    changes = pa.concat_tables([_gone(matched, rows, against), _changes(rows, against, gone=False)])
    changed = changed_versions(matched, changes, rules)
    replaced = ~alone
    replaced[alone] = changed.replaced
    ended = closed_rows(others, against.position, against.committed_us)
    return HistoryChanges(replaced, pa.concat_tables([ended, changed.rows]))


def _rows_of(mirror: DeltaTable, against: Compared, columns: Sequence[LakeColumn]) -> pa.Table:
    fields = [pa.field(column.name, column.arrow) for column in columns]
    batches = data_rows.read(mirror, against.path, fields, 0, data_rows.counting(against.schema))
    return pa.Table.from_batches([rows for rows, _ in batches], pa.schema(fields))


def _time(against: Compared) -> pa.Scalar:
    return pa.scalar(against.committed_us, pa.int64()).cast(TIME)


def _opened(rows: pa.Table, against: Compared) -> pa.Table:
    ends = {VALID_FROM: _time(against), VALID_TO: pa.scalar(None, TIME), FROM: pa.scalar(against.position)}
    for field in END_FIELDS:
        rows = rows.append_column(field, pa.repeat(ends.get(field.name, pa.scalar(None, field.type)), rows.num_rows))
    return rows


def _changes(rows: pa.Table, against: Compared, *, gone: bool) -> pa.Table:
    """Return the rows as changes at the comparison's position."""
    values = {VALID_FROM: _time(against), FROM: against.position, GONE: gone, TRANSACTION: 0}
    for field in CHANGE_FIELDS:
        rows = rows.append_column(field, pa.repeat(pa.scalar(values[field.name], field.type), rows.num_rows))
    return rows


def _gone(open_rows: pa.Table, rows: pa.Table, against: Compared) -> pa.Table:
    """Return the changes of open rows whose keys the mirror doesn't have."""
    place, key = "place ", list(against.schema.key)
    keys = comparable(open_rows.select(key)).append_column(place, pa.array(np.arange(open_rows.num_rows)))
    left = keys.join(comparable(rows.select(key)), key, join_type="left anti", use_threads=False)
    return _changes(open_rows.select(rows.column_names).take(left[place].combine_chunks()), against, gone=True)


def _compare_by_spark(
    session: SparkSession, history: HistoryState, against: Compared, columns: Sequence[LakeColumn]
) -> None:
    from binlake.merge.lake_table import LakeTable

    shape = HistoryShape(history.mode, columns)
    mirror = session.read.format("delta").option("versionAsOf", against.version).load(against.path)
    if against.schema.soft_delete:
        mirror = mirror.where(LIVE)
    table = LakeTable(history.path, history.step.table.app, history.step.table.has_vectors)
    if history.log is None:
        rows = mirror.selectExpr(*_spark_rows(shape, [column.name for column in shape.wanted], against, "opens", ""))
        table.overwrite(session, rows, history.version, history.step.note, mode="error")
        return
    rows = _compared_rows(session, history, against, shape, mirror)
    table.overwrite(session, rows, history.version, history.step.note)


def _compared_rows(
    session: SparkSession, history: HistoryState, against: Compared, shape: HistoryShape, mirror: DataFrame
) -> DataFrame:
    """Return all rows of the history behind the comparison."""
    assert history.log is not None
    plain_tables.check_is_plain(history.log)
    reshaped = shape.reshaped(history.log, against.renamed)
    kinds = {column.name: column.kind for column in shape.wanted}
    there = session.read.format("delta").load(history.path).selectExpr(
        *(
            f"{spark_quote(column.origin)} AS {spark_quote(column.name)}"
            if column.origin
            else f"CAST(NULL AS {kinds[column.name]}) AS {spark_quote(column.name)}"
            for column in reshaped
        )
    )  # fmt: skip
    names, new = [column.name for column in reshaped], {column.name for column in reshaped if not column.origin}
    to = spark_quote(history.mode.own.to_position)
    closed, current = there.where(f"{to} IS NOT NULL"), there.where(f"{to} IS NULL")
    current = current.dropDuplicates()
    key = " AND ".join(f"o.{spark_quote(name)} <=> m.{spark_quote(name)}" for name in against.schema.key)
    same_key = ", ".join(map(spark_quote, against.schema.key))
    current.selectExpr("struct(*) AS o", f"count(*) OVER (PARTITION BY {same_key}) AS copies").createOrReplaceTempView(
        "history_open"
    )
    mirror.selectExpr("struct(*) AS m").createOrReplaceTempView("history_mirror")
    both = session.sql(f"SELECT o, m FROM history_open FULL OUTER JOIN history_mirror ON copies = 1 AND {key}")
    tracked = [] if against.in_place else history.mode.tracked([column.name for column in shape.mirrored])
    same = " AND ".join(
        ["o IS NOT NULL", "m IS NOT NULL"]
        + [f"o.{spark_quote(name)} <=> m.{spark_quote(name)}" for name in tracked if name not in new]
    )
    stays = both.where(same).selectExpr(*_spark_rows(shape, names, against, "stays"))
    ends = both.where(f"o IS NOT NULL AND NOT ({same})").selectExpr(*_spark_rows(shape, names, against, "ends"))
    opens = both.where(f"m IS NOT NULL AND NOT ({same})").selectExpr(*_spark_rows(shape, names, against, "opens", "m."))
    return closed.unionByName(stays).unionByName(ends).unionByName(opens)


def _spark_rows(
    shape: HistoryShape,
    names: Sequence[str],
    against: Compared,
    what: Literal["stays", "ends", "opens"],
    new: str = "m.",
) -> list[str]:
    """Return a history's columns as SQL. names: of all its columns. new: the mirror's row, before a column's name."""
    own = shape.mode.own
    time = "CAST(NULL AS TIMESTAMP)" if against.committed_us is None else f"timestamp_micros({against.committed_us}L)"
    position = spark_string(against.position)
    given: dict[str, str] = {}
    if what == "opens":
        given = {own.valid_from: time, own.valid_to: "CAST(NULL AS TIMESTAMP)"}
        given |= {own.from_position: position, own.to_position: "CAST(NULL AS STRING)"}
    elif what == "ends":
        given = {own.valid_to: time, own.to_position: position}
    if own.is_current:
        given[own.is_current] = "false" if what == "ends" else "true"
    mirrored = {column.name for column in shape.mirrored}

    def value(name: str) -> str:
        if name in given:
            return given[name]
        if name in mirrored and what != "ends":
            return f"{new}{spark_quote(name)}"
        return "NULL" if what == "opens" else f"o.{spark_quote(name)}"

    return [f"{value(name)} AS {spark_quote(name)}" for name in names]
