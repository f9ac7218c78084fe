"""A batch's steps for tables with modes that keep a table beside the mirror: all mutations and statements of the log.

They are collected by the table's name, whatever becomes of its mirror: a table that stopped, is snapshotted again or is
at a later position misses nothing here, and repeats nothing. The steps and their numbers follow from the staged files
and statements alone, so that each attempt at a batch gives the same ones, whatever was snapshotted in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from binlake.binlog.border import PARTIAL, Statement
from binlake.config.table_modes import BesideMode
from binlake.ddl import statements
from binlake.planner.manifest import StagedFile
from binlake.planner.steps import BesideSteps, EventBeside, Happened, Life, MergeStep, ReshapeStep, RowsBeside, XaCommit
from binlake.position import Position, file_number
from binlake.schema.hidden import without_hashes
from binlake.schema.table import TableName, TableSchema
from binlake.schema.virtual import lost_columns


class BesideCollector:
    """Collects the steps of all names that have such modes. wanted: returns the modes of a name."""

    def __init__(self, start: Position, wanted: Callable[[TableName], Collection[BesideMode]]) -> None:
        self._start = start
        self._wanted = wanted
        self._by_name: dict[TableName, BesideSteps] = {}

    @property
    def steps(self) -> tuple[BesideSteps, ...]:
        """Return the steps of each name that has some."""
        return tuple(self._by_name.values())

    def file(self, file: StagedFile, schema: TableSchema | None, turn: int) -> None:
        """Add a staged file's mutations outside XA transactions. schema: of the table's life there; None without."""
        has_rows = file.inserted + file.updated + file.deleted > 0
        if has_rows and self._wanted(file.name) and self._is_whole(file, schema, turn):
            self._rows(file.name, (file,), (), schema, turn)

    def xa(
        self,
        name: TableName,
        rows: Iterable[tuple[StagedFile, XaCommit]],
        schema: TableSchema | None,
        turn: int,
    ) -> None:
        """Add the rows of XA transactions that end here."""
        if self._wanted(name):
            for file, commit in rows:
                if self._is_whole(file, schema, turn):
                    self._rows(name, (), ((file, commit),), schema, turn)

    def _is_whole(self, file: StagedFile, schema: TableSchema | None, turn: int) -> bool:
        """Return whether the rows have all columns but generated ones; else note that they aren't known."""
        lost = lost_columns(file.absent, schema) if schema else file.absent
        if lost:
            self._event(file.name, EventBeside("gap", *file.first, detail=f"{PARTIAL}: {', '.join(lost)}"), turn)
        return not lost

    def _rows(
        self,
        name: TableName,
        files: tuple[StagedFile, ...],
        xa: tuple[tuple[StagedFile, XaCommit], ...],
        schema: TableSchema | None,
        turn: int,
    ) -> None:
        files = tuple(_shown(file, schema) for file in files)
        xa = tuple((_shown(file, schema), commit) for file, commit in xa)
        ours = self._of(name)
        last = ours.steps[-1] if ours.steps else None
        (file,) = (*files, *(file for file, _ in xa))
        if isinstance(last, RowsBeside) and _have_one_shape(last.merge.staged[0], file):
            merge = MergeStep(last.merge.schema, last.merge.files + files, last.merge.xa + xa)
            ours.steps[-1], ours.turns[-1] = RowsBeside(last.life, merge), turn
            return
        shape = schema or TableSchema(file.columns)
        life = Life("", name, shape, self._start, self._start)
        ours.add(RowsBeside(life, MergeStep(shape, files, xa)), turn)

    def statement(
        self, parsed: statements.ParsedStatement, statement: Statement, known: Collection[TableName], turn: int
    ) -> None:
        """Note what a statement does to tables, before it is followed. known: the names of tables there."""
        events = [event for change in parsed.changes for event in self._events(change, known)]
        if parsed.kind == "DML" or parsed.may_concern_any:
            named = parsed.tables if parsed.kind == "DML" else ()
            others = known if parsed.may_concern_any else ()
            why = "a statement may have changed rows without row events"
            events = [(name, "gap", why) for name in dict.fromkeys((*named, *others))]
        place = (file_number(statement.file), statement.offset)
        numbers: dict[TableName, int] = {}
        for name, what, detail in events:
            if self._wanted(name):
                number = numbers[name] = numbers.get(name, -1) + 1
                event = EventBeside(what, *place, number, statement.committed_us, statement.gtid, detail)
                self._event(name, event, turn)

    def _events(
        self, change: statements.Change, known: Collection[TableName]
    ) -> Sequence[tuple[TableName, Happened, str]]:
        match change:
            case statements.TruncateTable(name):
                return [(name, "truncate", "")]
            case statements.DropTable(name):
                return [(name, "drop", "")] if name in known or name in self._by_name else []
            case statements.DropDatabase(database):
                names = dict.fromkeys((*known, *self._by_name))
                return [(name, "drop", "") for name in names if name.database == database]
            case statements.RenameTables(pairs):
                left: list[tuple[TableName, Happened, str]] = [(old, "rename", f"to {new}") for old, new in pairs]
                return [*left, *((new, "rename", f"from {old}") for old, new in pairs)]
            case statements.AlterTable(name=name):
                return [] if change.describes else [(name, "alter", "")]
            case statements.RowsChanged(name, why) | statements.Unfollowed(name, why):
                return [(name, "gap", why)]
        return []

    def renamed(self, name: TableName, columns: Iterable[tuple[str, str]], turn: int) -> None:
        """Note that the statement of this turn gave a table's columns other names."""
        if pairs := tuple(columns):
            for place in self._noted(name, "alter", turn):
                self._amend(name, place, renamed=pairs)

    def altered(self, life: Life, reshape: ReshapeStep | None, turn: int) -> None:
        """Note that a mirror follows the ALTER TABLE of this turn. life: as it is behind it."""
        for place in self._noted(life.name, "alter", turn):
            self._amend(life.name, place, life=life, reshape=reshape)

    def moved(self, life: Life, turn: int) -> None:
        """Note that a mirror follows the RENAME TABLE of this turn, under its new name."""
        *before, new = self._noted(life.name, "rename", turn) or [-1]
        for place in before:
            self._amend(life.name, place, is_replaced=True)
        if new >= 0:
            self._amend(life.name, new, life=life)

    def copied_again(self, name: TableName, place: tuple[int, int], turn: int) -> None:
        """Note that the table which gets a name by the RENAME TABLE of this turn is copied again for the mirror."""
        for noted in self._noted(name, "rename", turn):
            self._amend(name, noted, is_replaced=True)
        if "history" in self._wanted(name):
            self._event(name, EventBeside("anew", *place), turn)

    def created(self, life: Life, statement: Statement, turn: int) -> None:
        """Note that a mirror begins with the CREATE TABLE of this turn."""
        if "history" in self._wanted(life.name):
            place = (file_number(statement.file), statement.offset)
            event = EventBeside("create", *place, committed_us=statement.committed_us, gtid=statement.gtid, life=life)
            self._event(life.name, event, turn)

    def _noted(self, name: TableName, what: Happened, turn: int) -> list[int]:
        """Return the places of the events that a turn's statement is to a name."""
        ours = self._by_name.get(name)
        steps = enumerate(zip(ours.steps, ours.turns, strict=True)) if ours else ()
        return [
            place
            for place, (step, noted) in steps
            if noted == turn and isinstance(step, EventBeside) and step.what == what
        ]

    def _amend(self, name: TableName, place: int, **changed: Any) -> None:
        steps = self._by_name[name].steps
        event = steps[place]
        assert isinstance(event, EventBeside)
        steps[place] = replace(event, **changed)

    def gap(self, name: TableName, place: tuple[int, int], why: str, turn: int) -> None:
        """Note that what changed at a place isn't known row by row."""
        if self._wanted(name):
            self._event(name, EventBeside("gap", *place, detail=why), turn)

    def _event(self, name: TableName, event: EventBeside, turn: int) -> None:
        self._of(name).add(event, turn)

    def _of(self, name: TableName) -> BesideSteps:
        if name not in self._by_name:
            self._by_name[name] = BesideSteps.at(self._start, name)
        return self._by_name[name]


def _have_one_shape(first: StagedFile, other: StagedFile) -> bool:
    """Return whether rows have the same columns; where the log lacks generated ones, the lake computes them."""
    return first.columns == other.columns and bool(first.absent) == bool(other.absent)


def _shown(file: StagedFile, schema: TableSchema | None) -> StagedFile:
    """Return the file without the columns that MariaDB hides."""
    if schema is None:
        return file
    return replace(file, columns=without_hashes(file.columns, schema))
