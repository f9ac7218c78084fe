"""The walk through a batch's log: which mutations go to which table, and which tables stop or need a snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from binlake.binlog.border import PARTIAL, PARTIAL_REMEDY, XaEvent
from binlake.errors import ConfigurationError, snapshot_again, unexpected
from binlake.planner.answers import Answer, HeldChange
from binlake.planner.beside_steps import BesideCollector
from binlake.planner.manifest import StagedFile
from binlake.planner.noted_statements import ASKED, IGNORED, STOPPED, NotedStatement
from binlake.planner.prepared import PreparedTransactions
from binlake.planner.rules import Rules
from binlake.planner.steps import CreateStep, Life, PreparedXa, ReshapeStep, Standstill, TableSteps, XaCommit
from binlake.position import Range, file_number
from binlake.schema.cascades import Cascade
from binlake.schema.log_gaps import LogGap
from binlake.schema.table import TableName, TableSchema
from binlake.schema.virtual import UNLOGGED_COLUMN_REMEDY, as_logged, lost_columns


@dataclass(frozen=True)
class BatchInputs:
    """The facts that are known of a batch before its log is walked through.

    lives: the catalog before the batch. prepared: XA transactions of earlier batches that wait for their outcome.
    cascades: foreign keys that change rows without an event in the log; None if the server logs what they do.
    unsnapshotted: included tables without a life: missing, or to be snapshotted. charsets: the databases' default
    character sets at the batch's start; utf8mb4 for databases that it lacks. lower_case_names: the server stores
    table names in lower case, however a statement writes them. server_shapes: by life id, the server's shape of
    tables that don't follow and were altered since; None for a shape that isn't known. declaring: ids of lives to
    which an earlier batch's statements gave foreign keys that cascade; asked where a statement may drop one. gaps: why
    the log lacks changes of some databases. answers: what somebody decided about schema changes that waited.
    """

    source: str
    rules: Rules
    range: Range
    lives: Sequence[Life]
    prepared: Sequence[PreparedXa] = ()
    cascades: Sequence[Cascade] | None = None
    unsnapshotted: Collection[TableName] = ()
    charsets: Mapping[str, str] = field(default_factory=dict)
    lower_case_names: bool = False
    server_shapes: Mapping[str, TableSchema | None] = field(default_factory=dict)
    declaring: Collection[str] = ()
    gaps: Sequence[LogGap] = ()
    answers: Sequence[Answer] = ()


class Walk:
    """A batch's tables, and what becomes of them as the log is walked through.

    tables: by life id. current: life id by the name that the table has at this point of the log. history: rows of the
    DDL history. missing: included tables with mutations that were never snapshotted. asked: tables without a life
    that are to be snapshotted, and why. gone: names that a table without a life had before it was dropped or renamed.
    left_out: places of the first rows that conditions left out. turn: see TableSteps. beside: steps of the tables that
    modes keep beside mirrors. answers: see BatchInputs. held: by life id, the schema change at which a table waits.
    """

    def __init__(self, batch: int, inputs: BatchInputs) -> None:
        self.rules = inputs.rules
        self.stop = inputs.range.stop
        self.prepared = PreparedTransactions(batch, inputs.prepared)
        self.unsnapshotted = set(inputs.unsnapshotted)
        self.tables = {life.id: TableSteps(life) for life in inputs.lives}
        self.current = {life.name: life.id for life in inputs.lives if life.status != "dropped"}
        self.history: list[NotedStatement] = []
        self.missing: set[TableName] = set()
        self.asked: dict[TableName, str] = {}
        self.gone: set[TableName] = set()
        self.declaring = frozenset(inputs.declaring)
        self.turn = 0
        self.answers = inputs.answers
        self.held: dict[str, HeldChange] = {}
        self.left_out: dict[TableName, tuple[int, int]] = {}
        self.beside = BesideCollector(inputs.range.start, inputs.rules.beside)

    def at(self, name: TableName) -> TableSteps | None:
        """Return the steps of the table that has the name now; None where no mirrored table has it."""
        life_id = self.current.get(name)
        return self.tables[life_id] if life_id else None

    @contextmanager
    def undone_on_error(self, table: TableSteps | None) -> Iterator[None]:
        """Take back what is done to a table, and lives that begin, if an error is raised in the context."""
        lives, before = len(self.tables), (table.life, len(table.steps)) if table else None
        try:
            yield
        except Exception:
            while len(self.tables) > lives:
                life_id, begun = self.tables.popitem()
                if self.current.get(begun.life.name) == life_id:
                    del self.current[begun.life.name]
            if table is not None and before is not None:
                table.back_to(*before)
                self.current[table.life.name] = table.life.id
            raise

    def file(self, file: StagedFile) -> None:
        """Add a staged file's mutations to the steps of its table, if the table follows the log there."""
        table = self._working(file.name, file.last[:2])
        has_rows = file.inserted + file.updated + file.deleted > 0
        if table is not None and has_rows:
            number, offset, _ = file.first
            try:
                with self.undone_on_error(table):
                    if not file.absent or self._goes_without(table, file):
                        table.add_file(file, self.turn)
            except Exception as error:  # costs this table alone
                why = f"its mutations can't be merged: {unexpected(error)}"
                self.ask_snapshot(table, Standstill.at(self._file_name(number), offset, why))
        self.beside.file(file, self._shape_of(file.name), self.turn)

    def _shape_of(self, name: TableName) -> TableSchema | None:
        """Return the shape of the life that has the name, which may be at another place of the log."""
        table = self.at(name)
        return table.life.schema if table else None

    def _goes_without(self, table: TableSteps, file: StagedFile) -> bool:
        """Return whether the table can follow a file whose rows lack columns; stop the table if it can't.

        It can if all of these columns are generated: a server of a newer version wrote the rows. From this file on
        the lake computes such columns itself, or leaves them out.
        """
        number, offset, _ = file.first
        before = table.life.schema
        if lost := lost_columns(file.absent, before):
            why = f"{PARTIAL}: {', '.join(lost)}"
            self.stop_table(table, Standstill.at(self._file_name(number), offset, why, PARTIAL_REMEDY))
            return False
        after = as_logged(before)
        if why := self.rules.refusal(table.life.name, after):
            self.stop_table(table, Standstill.at(self._file_name(number), offset, why, UNLOGGED_COLUMN_REMEDY))
            return False
        table.life = replace(table.life, schema=after)
        if after.mirrored != before.mirrored:
            origins = tuple(column.name for column in after.columns)
            kept = tuple(column.name for column in after.kept)
            table.add(
                CreateStep(after) if table.may_be_created_again else ReshapeStep(before, after, origins, kept),
                self.turn,
            )
        return True

    def _file_name(self, number: int) -> str:
        return f"{self.stop.file.rpartition('.')[0]}.{number:06}"

    def xa(self, events: list[XaEvent]) -> None:
        """Follow XA events: rows of a committed transaction are merged at the place of its XA COMMIT.

        Where the transaction was prepared before anything that was read here, its tables aren't known: every table
        that follows the log there needs a new snapshot.
        """
        earlier = self.prepared.of_earlier_batches(events)
        commits, unknown = self.prepared.follow(events)
        refused = self._without_read_otherwise(earlier) if earlier else set()
        by_name: dict[TableName, list[tuple[StagedFile, XaCommit]]] = defaultdict(list)
        for file, commit in commits:
            if (file.name, commit.xid) not in refused:
                by_name[file.name].append((file, commit))
        for name, rows in by_name.items():
            table = self._working(name, max(commit.committed for _, commit in rows))
            if table is not None and all(self._goes_without(table, file) for file, _ in rows if file.absent):
                low = table.life.low.order
                table.add_xa([(file, commit) for file, commit in rows if commit.committed >= low], self.turn)
            self.beside.xa(name, rows, self._shape_of(name), self.turn)
        for event in unknown:
            why = f"XA COMMIT of {event.xid}, prepared before the log that was read here"
            standstill = Standstill.at(event.file, event.offset, why)
            for name in self.current:
                self.beside.gap(name, (file_number(event.file), event.offset), why, self.turn)
            for life_id in self.current.values():
                if self.tables[life_id].life.low.order <= (file_number(event.file), event.offset):
                    self.ask_snapshot(self.tables[life_id], standstill)

    def _without_read_otherwise(self, ended: list[tuple[PreparedXa, XaEvent]]) -> set[tuple[TableName, str]]:
        """Ask for snapshots of tables whose rows in XA transactions were staged under other settings, and return these
        tables with the transactions' ids."""
        refused: set[tuple[TableName, str]] = set()
        for transaction, event in ended:
            place = file_number(event.file), event.offset
            for name in dict.fromkeys((*(file.name for file in transaction.files), *transaction.left_out)):
                table = self.at(name)
                why = transaction.read_otherwise(name, table.life) if table else ""
                if table is None or not why:
                    continue
                refused.add((name, event.xid))
                why = f"XA COMMIT of {event.xid}: {why}"
                self.beside.gap(name, place, why, self.turn)
                if table.life.low.order <= place:
                    self.ask_snapshot(table, Standstill.at(event.file, event.offset, why))
        return refused

    def _working(self, name: TableName, last: tuple[int, int]) -> TableSteps | None:
        """Return the table if it follows mutations up to (file number, offset) ``last``; None if it doesn't.

        An included table that was never snapshotted is noted as missing.
        """
        table = self.at(name)
        if table is None:
            if self.rules.included(name) and name not in self.asked and name not in self.unsnapshotted:
                self.missing.add(name)
            return None
        return table if table.life.status == "following" and last >= table.life.low.order else None

    def stop_table(self, table: TableSteps, standstill: Standstill) -> None:
        """Stop a table that follows the log; nothing of this batch is merged into it."""
        if table.life.status == "following":
            table.forget()
            table.life = replace(table.life, status="stopped", standstill=standstill)

    def ask_snapshot(self, table: TableSteps, standstill: Standstill, remedy: str = "") -> str:
        """Ask for a new snapshot if the policy allows one and there is a server to take it from; else stop the table.

        remedy: of a table that stopped; by default, a snapshot. Returns what was done: ASKED or STOPPED.
        """
        asked = self.rules.unfollowable(table.life, standstill, remedy)
        if asked.status == "stopped":
            assert asked.standstill is not None
            self.stop_table(table, asked.standstill)
            return STOPPED
        if table.life.status == "following":
            table.life = asked
        return ASKED

    def forget_name(self, name: TableName) -> None:
        """Note that no table without a snapshot has this name from here on."""
        self.missing.discard(name)
        self.asked.pop(name, None)
        if name in self.unsnapshotted:
            self.unsnapshotted.discard(name)
            self.gone.add(name)

    def end(self, table: TableSteps, reason: str) -> None:
        """End the table's life: it was dropped, replaced, or renamed to a name that isn't included."""
        if self.current.get(table.life.name) == table.life.id:
            del self.current[table.life.name]
        table.life = replace(table.life, status="dropped", standstill=Standstill(reason))

    def ask_first_snapshot(self, name: TableName, reason: str) -> tuple[str, str]:
        """Ask for a snapshot of a table that has no life here, where the policy allows it.

        Returns the action (ASKED, STOPPED, IGNORED) and its reason.
        """
        if not self.rules.included(name):
            return IGNORED, reason
        wanted = self.rules.policy(name).on_unfollowable == "resnapshot" and self.rules.can_snapshot
        if not wanted:
            self.missing.add(name)
            return STOPPED, reason
        self.asked[name] = reason
        self.missing.discard(name)
        return ASKED, reason

    def stop_unlogged(self, inputs: BatchInputs) -> None:
        """Stop tables that began in a log which lacks changes of their databases, or ask for their snapshots."""
        before = {life.id for life in inputs.lives}  # the plan saw to these
        for table in [table for table in self.tables.values() if table.life.id not in before]:
            gap = next((gap for gap in inputs.gaps if gap.concerns(table.life.name.database)), None)
            if gap and table.life.status == "following":
                name, file, offset = table.life.name, self.stop.file, self.stop.offset
                self.ask_snapshot(table, Standstill.at(file, offset, gap.missed(name.database)), gap.then(name))

    def left_out_before(self, table: TableSteps, place: tuple[int, int]) -> bool:
        """Return whether the batch has rows of the table before a place that its row filter left out."""
        return any(self.left_out.get(name, place) < place for name in (table.begins, table.life.name))

    def compare_settings(self) -> None:
        """Stop tables whose rows were read under other settings than the batch.

        Somebody may have changed the YAML between the batch's plan and its staging.
        """
        for table in self.tables.values():
            try:
                table.life = self.rules.under(table.life)
            except ConfigurationError as error:
                self.stop_table(table, Standstill(error.message, error.remedy))
            except Exception as error:  # costs this table alone
                why = f"its shape can't be compared with the YAML: {unexpected(error)}"
                self.stop_table(table, Standstill(why, snapshot_again(table.life.name)))
            if table.life.status == "dropped" and self.current.get(table.life.name) == table.life.id:
                del self.current[table.life.name]
