"""Histories and logs, compared with what is known of them: they hold what no server has any more.

A history's current versions are compared with the mirror, row by row. No two versions of a row overlap. The closed ones
stay what they are: their count and the sum of their checksums are noted, and compared the next time. So are the rows of
a log; those that came since are counted against what its commits say of each batch.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.config.table_modes import BesideMode, beside_table
from binlake.delta import data_rows, delta_log, opened_tables
from binlake.delta.claimed_statistics import WrongFiles
from binlake.delta.delta_log import LakeLog
from binlake.errors import LakeError, repair_beside
from binlake.kernels.row_kernels import Numbers
from binlake.merge.beside_standstills import standstill
from binlake.merge.history.history_state import is_in_step, position_mark
from binlake.merge.position_texts import boundary_text
from binlake.planner.steps import Life
from binlake.position import Position
from binlake.records import table_versions
from binlake.schema.table import TableName
from binlake.store.conditions import literal, rows_of
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import ShapeRow
from binlake.store.run_rows import VerifiedRow
from binlake.verify.reading.key_cells import ComparedColumns, KeyCells, shares_of
from binlake.verify.reading.lake_rows import LakeRows
from binlake.verify.reading.row_checksums import Checksums, Flags, Sums
from binlake.verify.reading.row_pairs import Collected, Shown, differences
from binlake.verify.reading.row_versions import RowVersions, as_compared
from binlake.verify.result import MOST_ROWS, TableResult

_MOST_LOOKED_AT = 200_000
"""The most current versions, or rows of the mirror, among which the differing ones are named."""


@dataclass(frozen=True)
class BesideTable:
    """A table beside a mirror, at a version of its own. life: the mirror's. mirror_version: at which the mirror equals
    it. standing: why it is stopped; empty where it isn't. unreadable: why its log can't be read."""

    life: Life
    mode: BesideMode
    path: str
    table_id: str = ""
    version: int = -1
    mirror_version: int | None = None
    in_step: bool = True
    mark: str = ""
    standing: str = ""
    unreadable: str = ""

    @property
    def name(self) -> TableName:
        """Return the table's own name."""
        return TableName(self.life.name.database, beside_table(self.life.name.table, self.mode))


def tables_beside(config: PipelineConfig, metadata: Metadata, lives: Sequence[Life]) -> list[BesideTable]:
    """Return the tables beside the mirrors of some lives as they are now; the caller holds the lease. Raises LakeError
    where metadata can't be read."""
    modes = [(life, mode) for life in lives for mode in config.beside(life.name)]
    own = [TableName(life.name.database, beside_table(life.name.table, mode)) for life, mode in modes]
    known = table_versions.known_beside(metadata, own) if own else {}
    standing = []
    for life, mode in modes:
        log = LakeLog.beside(config, life.name, mode)
        table = BesideTable(life, mode, log.path)
        try:
            if not log.exists():
                continue
            opened = log.opened()
            if log.recorded() < 0:
                raise LakeError(
                    f"{log.path} is there, and isn't the {mode} of {life.name}", remedy=f"move {log.path} away"
                )
            table = replace(table, table_id=str(opened.metadata().id), version=int(opened.version()))
            why = standstill(log, life.name, mode, known.get(table.table_id))
            table = replace(table, standing=why.reason if why else "", mirror_version=_version(config, life))
            if mode == "history":
                table = replace(table, in_step=is_in_step(log), mark=position_mark(log))
        except LakeError as error:
            table = replace(table, unreadable=error.message)
        standing.append(table)
    return standing


def _version(config: PipelineConfig, life: Life) -> int:
    return LakeLog.of(config, life.name, life.id).version()


@dataclass(frozen=True)
class NotedRows:
    """The note on the rows of a table beside a mirror that don't change any more. bound: they lie before it; the text
    of a position for a history, a batch for a log. shape: of the table's columns."""

    bound: str
    shape: str
    rows: int
    checksum: str


def noted_rows(metadata: Metadata) -> dict[str, NotedRows]:
    """Return what was noted, by table id."""
    columns = ("table_id", "least", "shape", "rows", "checksum")
    return {
        row.table_id: NotedRows(row.least, row.shape or "", row.rows or 0, row.checksum or "")
        for row in VerifiedRow.read(metadata, *columns, where="chunk = -1")
        if row.least is not None
    }


def note(metadata: Metadata, table: BesideTable, result: TableResult, rows: NotedRows | None) -> None:
    """Note the result of a table's check, in the place of what was noted of it. rows: what was noted before, where the
    check failed."""
    problem = f"can't be read: {result.reason}" if result.is_unreadable else result.reason
    row = VerifiedRow(
        table_id=table.table_id,
        **vars(table.name),
        chunk=-1,
        chunks=1,
        at_us=now_us(),
        delta_version=table.version,
        batch=result.batch if result.equal else None,
        problem=None if result.equal else problem,
    )
    if rows:
        row = replace(row, least=rows.bound, shape=rows.shape, rows=rows.rows, checksum=rows.checksum)
    if table.table_id:
        VerifiedRow.replace(metadata, f"table_id = {literal(table.table_id)}", [row])


class BesideCheck:
    """Checks of tables beside mirrors at a position of the lake. batch, position: those of the lake."""

    def __init__(self, config: PipelineConfig, metadata: Metadata, batch: int, position: Position) -> None:
        self._config, self._metadata, self._batch, self._position = config, metadata, batch, position
        self._noted = noted_rows(metadata)

    def result(self, table: BesideTable) -> TableResult:
        """Check a table, and note what was found. Raises LakeError where it can't be noted."""
        result, rows = self._checked(table)
        if result.state != "catching up":
            note(self._metadata, table, result, rows)
        return result

    def again(self, table: BesideTable) -> TableResult:
        """Check a table once more behind a repair. The note on a table that was stopped isn't used: it doesn't cover
        the lost rows. Raises what ``result`` does."""
        if table.standing:
            self._noted.pop(table.table_id, None)
        standing = tables_beside(self._config, self._metadata, [table.life])
        return self.result(next(other for other in standing if other.mode == table.mode))

    def why_wrong(self, table: BesideTable, built: LakeLog) -> str:
        """Return what is wrong with the rows at another path, which are to be the table's; empty where nothing is.
        Nothing is noted."""
        opened = replace(table, path=built.path, version=built.version(), standing="", unreadable="")
        if table.mode == "history":
            opened = replace(opened, in_step=is_in_step(built), mark=position_mark(built))
        result, _ = self._checked(opened, table)
        return "" if result.equal else result.why

    def _checked(self, table: BesideTable, written: BesideTable | None = None) -> tuple[TableResult, NotedRows | None]:
        """Check a table; return what is to be noted of it, too. written: whose commits count a log's rows; None for the
        table's own."""
        before, blank = self._noted.get(table.table_id), self.blank(table)
        if table.unreadable:
            return replace(blank, reason=table.unreadable, is_unreadable=True), before
        if table.standing:
            return replace(blank, state="stopped", reason=table.standing), before
        try:
            rows = _Rows(table, before, self._bound(table))
            if table.mode == "log":
                result = self._of_log(written or table, rows, blank)
            else:
                result = self._of_history(table, rows, blank)
            return result, rows.noted if result.equal else before
        except (DeltaError, LakeError, OSError, pa.ArrowException) as error:
            text = error.message if isinstance(error, LakeError) else (str(error).strip() or type(error).__name__)
            return replace(blank, reason=text.splitlines()[0], is_unreadable=True), before

    def blank(self, table: BesideTable) -> TableResult:
        """Return what is known of a table's result before it is read."""
        remedy = repair_beside(table.life.name)
        return TableResult(
            table.name, "failed", batch=self._batch, delta_version=table.version, remedy=remedy, beside=table.mode
        )

    def _bound(self, table: BesideTable) -> str:
        """Return what rows lie before that don't change any more: others may come at the lake's position itself."""
        return str(self._batch) if table.mode == "log" else table.mark + boundary_text(*self._position.order)

    def _of_log(self, table: BesideTable, rows: _Rows, blank: TableResult) -> TableResult:
        """Check a log's rows. table: whose commits count them."""
        counts: Counter[int] = Counter()
        for part in rows.read(_batches_before):
            values, numbers = np.unique(part.column("batch").to_numpy(zero_copy_only=False), return_counts=True)
            counts.update(dict(zip(values.tolist(), numbers.tolist(), strict=True)))
        written = self._written_by_batch(table, int(rows.before.bound) if rows.before else 0)
        lacking = [number for number, count in sorted(written.items()) if counts[number] != count]
        problems = rows.problems("rows")
        blank = replace(blank, lacks_rows=bool(problems or lacking))
        if lacking:
            listed = ", ".join(f"{counts[number]:,} of {written[number]:,} of batch {number}" for number in lacking[:3])
            problems.append(f"rows of {len(lacking):,} batches aren't those that were written: {listed}")
        total = counts.total()
        by_batches = total + sum(written[number] - counts[number] for number in lacking)
        return _result(blank, rows, problems, source_rows=by_batches, lake_rows=total)

    def _written_by_batch(self, table: BesideTable, first: int) -> Counter[int]:
        """Return how many rows a log's commits say that they wrote, by batch, from the batch ``first`` on, as far as
        all commits of a batch are there."""
        written: Counter[int] = Counter()
        expected, replayed = table.version, math.inf
        for commit in LakeLog(table.path, "").history():
            if (version := int(commit["version"])) > table.version:
                continue  # it came since
            if version != expected:
                break
            note, expected = delta_log.note_of(commit), version - 1
            if note.get("beside") == "log" and delta_log.changes_rows(commit):
                if (batch := int(note["batch"])) < first:
                    return written
                if "replayed" in note:  # it wrote again what the commits before it wrote of these batches
                    again = {int(number): count for number, count in note["replayed"]["rows"].items()}
                    written.update({number: count for number, count in again.items() if number < replayed})
                    replayed = min(replayed, int(note["replayed"]["first"]))
                elif batch < replayed:
                    written[batch] += int((commit.get("operationMetrics") or {}).get("numOutputRows", 0))
            if version == 0:
                return written
        written.pop(min(written, default=0), None)  # upkeep removed the commits before, which may be of it
        return written

    def _of_history(self, table: BesideTable, rows: _Rows, blank: TableResult) -> TableResult:
        mode = self._config.history(table.life.name)
        assert mode is not None
        if not table.in_step:
            reason = "it is out of step with the log: the table's next batch compares it with the mirror"
            return replace(blank, state="catching up", reason=reason, remedy="run binlake sync")
        mirror = LakeRows(self._config.table_path(table.life.name), table.mirror_version)
        compared, versions = ComparedColumns(table.life.schema), RowVersions()
        cells = KeyCells(shares=shares_of(int(mirror.log.count())))
        current, there = Sums.empty(cells.count), Sums.empty(cells.count)
        since = rows.before.bound if rows.before else rows.bound if self._had_other_key(table.life) else ""
        for part in rows.read(partial(_ended_before, mode.own.to_position)):
            versions.add(part, since, compared, mode.own)
            open_rows = as_compared(part.filter(pc.is_null(part.column(mode.own.to_position))), compared)
            measured = compared.measured(open_rows, cells)
            current.add(measured.cells, measured.checksums)
        for file in mirror.files(compared):
            for part, _ in file.numbered():
                measured = compared.measured(part, cells)
                there.add(measured.cells, measured.checksums)
        lost = rows.problems("closed versions")
        problems, blank = [*lost, *versions.problems()], replace(blank, lacks_rows=bool(lost))
        result = _result(blank, rows, problems, source_rows=there.total, lake_rows=current.total)
        differing = current.differing(there)
        if not len(differing):
            return result
        shown = Shown(compared, MOST_ROWS)
        if max(current.total, there.total) <= _MOST_LOOKED_AT:
            self._show(rows, mirror, compared, cells, differing, shown, mode.own.to_position)
        reason = "; ".join([*problems, "its current versions aren't the mirror's rows"])
        return replace(result, equal=False, reason=reason, differing=1, rows=tuple(shown.rows))

    def _had_other_key(self, life: Life) -> bool:
        """Return whether rows had another key under the table's name: by today's key older versions may overlap."""
        shapes = ShapeRow.read(self._metadata, "schema", where=rows_of(life.name))
        return any(row.shape.key != life.schema.key for row in shapes)

    @staticmethod
    def _show(
        rows: _Rows,
        mirror: LakeRows,
        compared: ComparedColumns,
        cells: KeyCells,
        differing: Numbers,
        shown: Shown,
        to: str,
    ) -> None:
        """Add the differing rows of some cells."""
        wanted: Flags = np.zeros(cells.count, np.bool_)
        wanted[differing] = True

        def of(batches: Iterator[pa.RecordBatch]) -> Collected:
            measured = [compared.measured(batch, cells).of_cells(wanted) for batch in batches]
            return Collected.of(compared, [part for part in measured if part.rows.num_rows])

        current = (as_compared(batch.filter(pc.is_null(batch.column(to))), compared) for batch in rows.batches())
        theirs = of(current)
        ours = of(part for file in mirror.files(compared) for part, _ in file.numbered())
        shown.add(ours, theirs, differences(ours, theirs, keyed=True))


def _result(
    blank: TableResult, rows: _Rows, problems: Sequence[str], *, source_rows: int, lake_rows: int
) -> TableResult:
    return replace(
        blank, state="compared", equal=not (problems or rows.wrong), reason="; ".join(problems),
        source_rows=source_rows, lake_rows=lake_rows, chunks=1, differing=int(bool(problems)), looked=1,
        statistics=tuple(rows.wrong.values()),
    )  # fmt: skip


@dataclass
class _Rows:
    """The rows of a table beside a mirror. before: what was noted of those that don't change any more. bound: what
    those lie before by now."""

    table: BesideTable
    before: NotedRows | None
    bound: str
    wrong: WrongFiles = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._log = opened_tables.opened(self.table.path, self.table.version)
        self._fields = list(pa.schema(self._log.schema().to_arrow()))
        shape = repr([(item.name, str(item.type)) for item in self._fields])
        self._shape = hashlib.sha256(shape.encode()).hexdigest()[:32]
        self._now, self._then = Sums.empty(1), Sums.empty(1)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read all rows, some at a time. Raises what LakeRows raises."""
        paths = sorted(pa.table(self._log.get_add_actions())["path"].to_pylist())
        for file in data_rows.of_files(self._log, self.table.path, self._fields, paths, wrong=self.wrong):
            yield from (rows for rows, _ in file.numbered())

    def read(self, stays: Callable[[pa.RecordBatch, str], Flags]) -> Iterator[pa.RecordBatch]:
        """Read all rows, and sum up those that don't change any more. stays: returns which of some rows lie before a
        bound."""
        for rows in self.batches():
            checksums = Checksums.of(rows.columns, rows.num_rows)
            _add(self._now, checksums, stays(rows, self.bound))
            if self.before:
                _add(self._then, checksums, stays(rows, self.before.bound))
            yield rows

    def problems(self, what: str) -> list[str]:
        """Return what became of the rows that were noted."""
        if self.before is None:
            return []
        rows, text = self._then.total, self._then.text(0)
        if rows != self.before.rows:
            return [f"of {self.before.rows:,} {what} that were verified before {rows:,} are there"]
        if self.before.shape == self._shape and text != self.before.checksum:
            return [f"some of the {rows:,} {what} aren't what they were when they were verified before"]
        return []

    @property
    def noted(self) -> NotedRows:
        """Return the note on the rows that don't change any more, once all were read."""
        return NotedRows(self.bound, self._shape, self._now.total, self._now.text(0))


def _add(sums: Sums, checksums: Checksums, wanted: Flags) -> None:
    places = np.flatnonzero(wanted)
    sums.add(np.zeros(len(places), np.int64), checksums.at(places))


def _ended_before(column: str, rows: pa.RecordBatch, bound: str) -> Flags:
    ended: Flags = pc.fill_null(pc.less(rows.column(column), bound), False).to_numpy(zero_copy_only=False)
    return ended


def _batches_before(rows: pa.RecordBatch, bound: str) -> Flags:
    before: Flags = pc.less(rows.column("batch"), int(bound)).to_numpy(zero_copy_only=False)
    return before
