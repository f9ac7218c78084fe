"""A history at one version of its Delta table, and the commits that a step makes to it.

All that is known beside the rows is in Delta's transaction ids, which every commit keeps, also one that rewrites the
whole table:

| application id      | its version |
|---------------------|-------------|
| binlake-history      | of the newest step that was done in step with the log |
| binlake-history-gap  | of the newest step that was done out of step, which the history is until one is done in step |
| binlake-history-part | of a step that is too large to be done at once, with how many of its parts are done |
| binlake-history-log  | how often the log's numbers began again: see position_texts.log_mark |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from binlake.config.table_modes import HistoryMode
from binlake.delta import layout, plain_tables
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.delta_log import LakeLog, transaction_version
from binlake.delta.delta_schema import DeltaSchema
from binlake.delta.plain_files import added_file
from binlake.delta.plain_tables import OwnCommit
from binlake.errors import LakeError
from binlake.faults import fault
from binlake.merge import turns
from binlake.merge.beside_commit import BesideCommit
from binlake.merge.history.history_files import HistoryFiles, OpenedFile
from binlake.merge.history.history_rows import TO, HistoryChanges, RowFlags
from binlake.merge.history.history_shape import HistoryShape, is_new_shape, table_fields
from binlake.merge.position_texts import boundary_text, log_mark
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.table import TableSchema

_PARTS = 1 << 10
"""More than a step has parts."""


Loss = tuple[OpenedFile, NDArray[np.int64]]
"""A file, and the numbers of rows that it loses."""


@dataclass(frozen=True)
class OpenRows:
    """Open rows of a history, as history_rows.py takes them, and the files that were looked into.

    actions: those that give the table its columns behind the commit; none where they stay.
    """

    files: HistoryFiles
    shape: HistoryShape
    actions: Sequence[DeltaAction]
    opened: Sequence[OpenedFile]
    rows: pa.Table

    def losses(self, replaced: RowFlags) -> list[Loss]:
        """Return the files that lose rows, and the numbers of those. replaced: which of the rows go."""
        begins, losses = 0, list[Loss]()
        for file in self.opened:
            gone = file.places[replaced[begins : begins + file.places.size]]
            begins += file.places.size
            if gone.size:
                losses.append((file, gone))
        return losses

    def written_again(self, losses: Sequence[Loss]) -> list[Loss]:
        """Return the files that are rewritten without the rows that they lose: where these are few bytes all that are
        old enough, and small ones that lose none."""
        lost = {file.add["path"]: gone for file, gone in losses}
        losing = [file.add for file, _ in losses]
        few = sum(int(add["size"]) for add in losing) <= layout.FEW_BYTES
        chosen = {add["path"] for add in (layout.old_enough(losing, plain_tables.now()) if few else ())}
        others = [file.add for file in self.opened if file.add["path"] not in chosen]
        chosen |= {add["path"] for add in layout.smallest(others, layout.FEW_BYTES // 4)}
        nothing = np.empty(0, np.int64)
        return [(file, lost.get(path, nothing)) for file in self.opened if (path := file.add["path"]) in chosen]


def is_in_step(log: LakeLog) -> bool:
    """Return whether the history at a path has all changes of the log."""
    return log.recorded() > _by_another_id(log, "-gap").recorded()


def position_mark(log: LakeLog) -> str:
    """Return the prefix of a history's newest positions: see position_texts.log_mark."""
    return log_mark(max(_by_another_id(log, "-log").recorded(), 0))


def newest_version(log: LakeLog) -> int:
    """Return the newest transaction version of a history's steps, those that left it out of step included."""
    return max(log.recorded(), _by_another_id(log, "-gap").recorded())


def _by_another_id(log: LakeLog, which: str) -> LakeLog:
    """Return a history's log as another of its application ids has it."""
    mode, _, source = log.app.partition(":")
    return LakeLog(log.path, f"{mode}{which}:{source}", log.has_vectors)


class HistoryState:
    """A history as one step finds it."""

    def __init__(self, commit: BesideCommit, mode: HistoryMode) -> None:
        self.step, self.mode = commit, mode
        self.path = commit.table.path
        self.log = commit.table.opened() if commit.table.exists() else None
        self._in_step, self._gap, self._part = (self._recorded(which) for which in ("", "-gap", "-part"))
        if self.log is not None:
            self._refuse_other_names()

    def _refuse_other_names(self) -> None:
        assert self.log is not None
        have = {field["name"] for field in plain_tables.fields_of(self.log)}
        if lacking := [name for name in self.mode.own.names if name not in have]:
            raise LakeError(
                f"{self.path} was begun under other names of its own columns, it has no {lacking[0]}",
                remedy="take tables.modes.history.columns back, or move that folder away: it is begun again",
            )

    def _recorded(self, which: str) -> int:
        version = _by_another_id(self.step.table, which).transaction_version(self.log) if self.log else None
        return -1 if version is None else version

    @property
    def is_done(self) -> bool:
        """Return whether the step is done already."""
        return max(self._in_step, self._gap) >= self.version

    @property
    def version(self) -> int:
        """Return the transaction version of the step."""
        return self.step.version + 1

    @property
    def is_in_step(self) -> bool:
        """Return whether the history has all changes of the log up to here."""
        return self._in_step > self._gap

    @property
    def parts_done(self) -> int:
        """Return how many parts of this step are done."""
        version, parts = divmod(self._part, _PARTS)
        return parts if version == self.version else 0

    def mark(self) -> str:
        """Return the prefix of this batch's positions: see position_texts.log_mark. It is greater than before where the
        log's numbers don't continue those of the history, which is noted by a commit of its own."""
        number = max(self._recorded("-log"), 0)
        if self.log is None or max(self._in_step, self._gap) >= transaction_version(self.step.batch, 0):
            return log_mark(number)
        names = [self.mode.own.from_position, self.mode.own.to_position]
        newest = self._files(HistoryShape(self.mode, ()), ())[0].newest(names)
        if newest <= log_mark(number) + boundary_text(*self.step.start):
            return log_mark(number)
        own = OwnCommit("Manual Update", number + 1, self.step.note, {}, {})
        plain_tables.commit(_by_another_id(self.step.table, "-log"), self.log, own, [])
        self.log = self.step.table.opened()
        return log_mark(number + 1)

    def _files(self, shape: HistoryShape, renamed: Sequence[tuple[str, str]]) -> tuple[HistoryFiles, list[DeltaAction]]:
        """Return the data files under the columns behind the step, and the actions that make the columns so."""
        assert self.log is not None
        plain_tables.check_is_plain(self.log)
        fields, actions = table_fields(self.log, self.path, shape.reshaped(self.log, renamed))
        return HistoryFiles(self.step.table, self.log, fields, self.mode.own.to_position), actions

    def open_rows(
        self,
        columns: Sequence[LakeColumn],
        schema: TableSchema,
        keys: pa.Table | None,
        renamed: Sequence[tuple[str, str]] = (),
    ) -> OpenRows:
        """Read the open rows with these keys, or all. columns: the mirror's behind the step. schema: the table's."""
        shape = HistoryShape(self.mode, columns)
        files, actions = self._files(shape, renamed)
        looked = files.with_open_rows()
        if (pc.sum(looked["size_bytes"]).as_py() or 0) > turns.QUICK_BYTES:
            turns.leave()
        opened = files.opened(looked, keys, schema)
        none = pa.schema([pa.field(field.name, field.stored.type) for field in files.fields]).empty_table()
        rows = shape.inward(pa.concat_tables([none, *(files.rows_of(file) for file in opened if file.places.size)]))
        return OpenRows(files, shape, actions, opened, rows)

    def put(self, at: OpenRows, changes: HistoryChanges, *, in_step: bool = True, part: int | None = None) -> None:
        """Put changed versions in the place of open rows, in one commit. part: of the step; None for the last."""
        nothing = not at.actions and not changes.rows.num_rows and not changes.replaced.any()
        if nothing and in_step == self.is_in_step and part is None:
            return
        actions, losses = list(at.actions), at.losses(changes.replaced)
        names = [field.name for field in at.files.fields]
        rows = at.shape.outward(changes.rows, names)
        is_open = pc.is_null(changes.rows[TO])
        closed, current = rows.filter(pc.invert(is_open)), rows.filter(is_open)
        if current.num_rows or losses:
            to_rewrite = at.written_again(losses)
            paths = {file.add["path"] for file, _ in to_rewrite}
            actions += [plain_tables.removed(file.add) for file, _ in to_rewrite]
            actions += at.files.marking([(file, gone) for file, gone in losses if file.add["path"] not in paths])
            current = pa.concat_tables([current, *(at.files.without(file, gone) for file, gone in to_rewrite)])
        stored = pa.schema([field.stored for field in at.files.fields])
        for written in (closed, current):
            if written.num_rows:
                added = added_file(self.path, pa.Table.from_arrays(written.columns, schema=stored))
                fault("data file written")
                actions.append({"add": added})
        self.commit(actions, in_step=in_step, part=part, rows=changes.rows.num_rows)

    def commit(
        self, actions: Sequence[DeltaAction], *, in_step: bool, part: int | None = None, rows: int | None = None
    ) -> None:
        """Commit the step, or a part of it. rows: that were written; None where the columns alone change."""
        assert self.log is not None
        which, version = ("" if in_step else "-gap"), self.version
        if part is not None:
            which, version = "-part", self.version * _PARTS + part
        operation, metrics = ("Manual Update", {}) if rows is None else ("MERGE", {"numOutputRows": rows})
        own = OwnCommit(operation, version, self.step.note, {}, metrics)
        plain_tables.commit(_by_another_id(self.step.table, which), self.log, own, actions)
        self.log = self.step.table.opened()

    def fall_out(self) -> None:
        """Note that the history is out of step from here on."""
        if self.is_in_step:
            self.commit([], in_step=False)

    def open_bytes(self) -> int:
        """Return the bytes of the data files that may hold open rows."""
        if self.log is None:
            return 0
        files, _ = self._files(HistoryShape(self.mode, ()), ())
        return int(pc.sum(files.with_open_rows()["size_bytes"]).as_py() or 0)

    def reshape(self, columns: Sequence[LakeColumn], renamed: Sequence[tuple[str, str]], begun: Sequence[str]) -> None:
        """Give the history the mirror's columns; no row is written. begun: columns that begin without a value."""
        assert self.log is not None
        plain_tables.check_is_plain(self.log)
        reshaped = HistoryShape(self.mode, columns).reshaped(self.log, renamed, begun)
        if is_new_shape(self.log, reshaped):
            self.commit(table_fields(self.log, self.path, reshaped)[1], in_step=True)
            fault("schema evolved")

    def create(self, columns: Sequence[LakeColumn], versions: pa.Table | None) -> None:
        """Begin the history with these versions, as history_rows.py has them; None for an empty table."""
        shape = HistoryShape(self.mode, columns)
        schema = DeltaSchema(tuple((column.name, column.kind) for column in shape.wanted), self.path)
        rows = pa.schema([(column.name, column.arrow) for column in shape.wanted]).empty_table()
        if versions is not None:
            rows = shape.outward(versions, rows.column_names)
        metrics = {"numFiles": 1, "numOutputRows": rows.num_rows}
        own = OwnCommit("WRITE", self.version, self.step.note, {"mode": "Append"}, metrics)
        plain_tables.create(self.step.table, schema, own, rows)
