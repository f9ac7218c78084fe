"""Repair: rows that a verification found to differ are put right, and only they.

Per table there is one commit, at the position where both sides were compared, under the source's lease. Deletion
vectors hide the lake's rows that aren't the server's, and one new data file has the server's rows. The former rows are
noted in the metadata table ``repairs``, before the commit. Then the table is compared once more. Rows that a foreign
writer changed are put right, too: all of the version that was compared is known.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake.exceptions import CommitFailedError
from pyroaring import BitMap64

from binlake.config import PipelineConfig
from binlake.delta import data_rows, deletion_vectors, delta_actions, opened_tables, plain_tables
from binlake.delta.data_rows import Counts
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.delta_log import COMPUTED_STATISTICS, LakeLog, overtaking
from binlake.delta.plain_files import added_file, with_true_statistics
from binlake.delta.plain_tables import OwnCommit, removed
from binlake.errors import LeftToSpark, snapshot_command
from binlake.faults import fault
from binlake.lease.lease import Lease
from binlake.merge import own_values
from binlake.merge.own_values import Written
from binlake.merge.position_texts import boundary_text
from binlake.planner.steps import Life
from binlake.records import decisions, table_versions, watermarks
from binlake.schema.table import TableName
from binlake.spark.starting import SessionFactory
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.run_rows import RepairRow
from binlake.verify.beside_check import BesideTable
from binlake.verify.reading.key_cells import ComparedColumns
from binlake.verify.reading.lake_rows import LakeRows
from binlake.verify.reading.row_pairs import Checksum, Collected, RowDifference, changed_columns
from binlake.verify.repair.repaired_beside import RepairedBeside, RepairedRows
from binlake.verify.repair.replayed_beside import NotReplayed, Proof, ReplayedBeside
from binlake.verify.repair.unreadable_files import fill, lost_commits, unreadable_files
from binlake.verify.result import MASK, ROW_HASH, TableRepair, TableResult

MOST_ROWS = 200_000
"""The most differing rows of a table that are put right; a snapshot costs less then."""
STATISTICS = "data files' statistics"
"""The kind under which a repair counts data files whose statistics it corrects."""

Looked = tuple[Collected, Collected, list[RowDifference]]
"""Rows of differing cells: the server's, the lake's, and what differs in them."""


class Unrepairable(Exception):
    """A table's rows can't be put right here; the text says why."""


_REFUSALS = (Unrepairable, LeftToSpark, CommitFailedError)
"""Errors of repairs that this process can't commit. There is no other engine for them: Spark is left nothing."""


def _refused(error: Exception, counts: Mapping[str, int], remedy: str) -> TableRepair:
    """Return a repair that one of _REFUSALS ended. remedy: unless somebody else only committed first."""
    reason = str(error)
    if isinstance(error, CommitFailedError):
        reason, remedy = "somebody else wrote it meanwhile", "run it again"
    return TableRepair("refused", dict(counts), reason=reason, remedy=remedy)


@dataclass
class Correction:
    """The rows by which a table is put right.

    gone: how many rows of the lake go, by the checksum of the key; of the whole row without a key. rows: the server's,
    which come. before, after: the rows of both sides that are put right, place by place. retired: the lake's, which go,
    and stay as deleted ones. put: checksums of the keys of both, where deleted rows stay. notes: of each difference its
    kind, columns and, as JSON, the key's hash, or the key itself if keys or values are kept, and the lake's values if
    these are. Values of the columns ``masked`` (in lower case) are written nowhere.
    """

    compared: ComparedColumns
    keep_values: bool
    keep_keys: bool = False
    masked: frozenset[str] = frozenset()
    gone: Counter[Checksum] = field(default_factory=Counter)
    rows: list[pa.RecordBatch] = field(default_factory=list)
    before: list[pa.RecordBatch] = field(default_factory=list)
    after: list[pa.RecordBatch] = field(default_factory=list)
    retired: list[pa.RecordBatch] = field(default_factory=list)
    put: set[Checksum] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    most: int = MOST_ROWS
    notes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def keyed(self) -> bool:
        """Return whether the table has a key."""
        return bool(self.compared.schema.key)

    def add(self, looked: Looked) -> None:
        """Add what differs in some cells. Raises Unrepairable where it is too much."""
        ours, theirs, differing = looked
        changed = [difference for difference in differing if difference.kind == "changed"]
        columns = iter(changed_columns(self.compared, ours, theirs, changed))
        by_key = {key: place for place, key in enumerate(ours.keys)} if self.keyed else {}
        coming: list[int] = []
        retired: list[int] = []
        for difference in differing:
            self.counts[difference.kind] += difference.count
            if self.keyed and difference.theirs:
                key = theirs.keys[difference.theirs[0]]
                self.gone[key] = len(theirs.keys)  # all rows of the key, also one beside a twin
                coming += [by_key[key]] if key in by_key else []
                retired += [] if key in by_key else [difference.theirs[0]]
            elif difference.theirs:
                self.gone[theirs.checksums[difference.theirs[0]]] += difference.count
            elif difference.ours is not None:
                coming += [difference.ours] * difference.count
            names = next(columns) if difference.kind == "changed" else ()
            self.notes.append(self._note(difference, names, ours, theirs))
        if self.counts.total() > self.most:
            raise Unrepairable(f"more than {self.most:,} rows differ")
        if coming:
            self.rows += ours.rows.take(pa.array(coming, pa.int64())).to_batches()
        pairs = [pair for difference in differing for pair in self._pairs(difference)]
        self.before += theirs.rows.take(pa.array([there for _, there in pairs], pa.int64())).to_batches()
        self.after += ours.rows.take(pa.array([here for here, _ in pairs], pa.int64())).to_batches()
        if self.compared.schema.soft_delete:
            self.put |= {ours.keys[place] for place in coming} | {theirs.keys[place] for place in retired}
            self.retired += theirs.rows.take(pa.array(retired, pa.int64())).to_batches() if retired else []

    def _pairs(self, difference: RowDifference) -> list[tuple[int | None, int | None]]:
        """Return (place of the server's row, place of the lake's) of each row that is put right; None for no row."""
        if not self.keyed:
            there = difference.theirs[0] if difference.theirs else None
            return [(None if difference.theirs else difference.ours, there)] * difference.count
        places: Sequence[int | None] = difference.theirs or (None,)
        return [(difference.ours, places[0]), *((None, place) for place in places[1:])]

    @property
    def repaired(self) -> RepairedRows:
        """Return the rows that were put right, before and after, place by place."""
        before, after = (pa.Table.from_batches(rows, self.compared.arrow) for rows in (self.before, self.after))
        return RepairedRows(before, after)

    def _note(
        self, difference: RowDifference, columns: Sequence[str], ours: Collected, theirs: Collected
    ) -> dict[str, Any]:
        side, place = (ours, difference.ours) if difference.ours is not None else (theirs, difference.theirs[0])
        assert place is not None
        (row,) = side.rows.slice(place, 1).combine_chunks().to_batches()
        before = None
        if self.keep_values and difference.theirs:
            taken = theirs.rows.take(pa.array(difference.theirs, pa.int64())).to_pylist()
            before = json.dumps([self._unmasked(row) for row in taken], ensure_ascii=False, default=_as_text)
        if not self.keyed:
            key: dict[str, Any] = {ROW_HASH: _hash_text(side.checksums[place])}
        elif self.keep_keys or self.keep_values:
            key = self._unmasked(dict(self.compared.shown(row, 0)))
        else:
            key = {"key hash": _hash_text(side.keys[place])}
        return {
            "kind": difference.kind, "rows": difference.count, "key": json.dumps(key, ensure_ascii=False),
            "columns": json.dumps(list(columns), ensure_ascii=False), "before": before,
        }  # fmt: skip

    def _unmasked(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return values by the lake's columns without those of masked columns."""
        hidden = {column.name for column in self.compared.columns if column.source.name.lower() in self.masked}
        return {name: MASK if name in hidden else value for name, value in values.items()}


def _hash_text(checksum: Checksum) -> str:
    return "{:016x}{:016x}".format(*checksum)


def _as_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


class Repairs:
    """The repairs of one run. held: the source's lease, under which the lake was brought to the position compared.
    session: for large tables beside mirrors. run: the run's name."""

    def __init__(
        self,
        held: Lease,
        config: PipelineConfig,
        session: SessionFactory,
        run: str | None,
        *,
        dry_run: bool,
        keep_values: bool,
    ) -> None:
        self._run = run
        self._held = held
        self._session = session
        self._config = config
        self._dry_run = dry_run
        self._keep_values = keep_values
        self._repair = uuid.uuid4().hex
        self._writing = threading.Lock()
        self._more_rows: dict[str, int] = {}
        """How many rows of a life may be put right beside MOST_ROWS, as files that held them were taken out."""

    @property
    def metadata(self) -> Metadata:
        """Return metadata as the lease guards them."""
        return self._held.metadata

    def repair(self, compared: ComparedColumns, lake: LakeRows, life: Life, looked: Iterable[Looked]) -> TableRepair:
        """Put a table right, unless it is a dry run; return what was done. Raises what reading the lake raises, and
        LeaseHeld."""
        page = self._config.page
        correction = Correction(compared, self._keep_values, page.show_values, self._config.masked_on_page(life.name))
        correction.most += self._more_rows.get(life.id, 0)
        try:
            for part in looked:
                correction.add(part)
            self._refuse_unknown(compared, lake, life, correction)
            counts = dict(correction.counts)
            if self._dry_run:
                return TableRepair("planned", counts)
            return TableRepair("repaired", counts, self._commit(compared, lake, life, correction))
        except _REFUSALS as error:
            return _refused(error, correction.counts, snapshot_command(life.name))

    def restate(self, lake: LakeRows, life: Life) -> TableRepair:
        """Give the files whose statistics are wrong those of their rows, in one commit, unless it is a dry run; return
        what was done. Raises what reading the lake raises, and LeaseHeld."""
        counts = {STATISTICS: len(lake.wrong)}
        if self._dry_run:
            return TableRepair("planned", counts)
        began_us = now_us()
        try:
            plain_tables.check_is_plain(lake.log, widened=True)
            adds = plain_tables.actions_of(lake.log, lake.path, list(lake.wrong))
            own = self._own(COMPUTED_STATISTICS, lake, life, {"numFiles": len(adds)})
            notes = [
                {"kind": "statistics", "key": json.dumps({"file": path}), "columns": json.dumps(wrong.what)}
                for path, wrong in lake.wrong.items()
            ]
            restated = [{"add": with_true_statistics(lake.path, add)} for add in adds]
            version = self._committed(lake, life, own, restated, notes)
        except _REFUSALS as error:
            return _refused(error, counts, snapshot_command(life.name))
        with self._writing:
            watermarks.at_version(self._held.metadata, life.id, version, self._config.is_listed, began_us=began_us)
        return TableRepair("repaired", counts, version)

    def note_lost(self, name: TableName, version: int) -> None:
        """Note that a table's Delta log went back to a version, and is followed from there, unless it is a dry run."""
        if self._dry_run:
            return
        metadata, life = self._held.metadata, decisions.following(self._held.metadata, name)
        with self._writing:
            began_us = now_us()
            table_versions.note_lost(metadata, life.id, version)
            watermarks.at_version(metadata, life.id, version, self._config.is_listed, began_us=began_us)

    def without_unreadable(self, path: str, life: Life) -> LakeRows | None:
        """Return a table's rows without the files that can't be read; None where that isn't what ails it, and in a dry
        run. The repair's commit takes these files out. Commits that are lost are replaced by ones that change nothing.

        Raises LakeError, LeaseHeld and what reading the lake raises.
        """
        if self._dry_run:
            return None
        try:
            lost = lost_commits(path)
            if lost:
                self._held.check()
                with self._writing:
                    table_versions.note_lost(self._held.metadata, life.id, lost[0] - 1)
                fill(path, lost, self._commit_note(life))
            log = opened_tables.opened(path)
            unreadable = unreadable_files(log, path)
        except LeftToSpark:
            return None
        self._more_rows[life.id] = sum(delta_actions.rows_in(add) or 0 for add in unreadable)
        return LakeRows(path, int(log.version()), unreadable) if unreadable or lost else None

    def repair_beside(self, table: BesideTable, result: TableResult, proof: Proof) -> TableRepair:
        """Put a table beside a mirror right, unless it is a dry run; return what was done.

        Its lost rows are written again from the staging that is kept. Otherwise it is put right as far as its rows
        follow from the mirror. proof: returns whether rows are as they have to be. Raises LakeError, and what reading
        the mirror raises.
        """
        wrong = {statistics.path: statistics for statistics in result.statistics}
        lacking = ""
        if table.unreadable:
            lacking = "its Delta log can't be read"
        elif table.standing or result.is_unreadable or result.lacks_rows:
            try:
                return self._replayed_beside(table, proof)
            except NotReplayed as reason:
                lacking = f"it can't be written again from the staging: {reason}"
            except CommitFailedError as error:
                return _refused(error, {}, "")
        counts = {STATISTICS: len(wrong)} if wrong else {}
        counts |= {"gap": 1} if table.standing else {}
        counts |= {"comparison with the mirror": 1} if table.mode == "history" and result.reason else {}
        if result.is_unreadable or (table.mode == "log" and result.lacks_rows):
            why = result.reason if result.is_unreadable else "what is lost is in no other table"
            remedy = f"restore its files, or move {table.path} away: it is begun again, without what it had"
            return TableRepair("refused", counts, reason=f"{why}; {lacking}", remedy=remedy)
        if self._dry_run:
            return TableRepair("planned", counts)
        beside = RepairedBeside(self._held, self._config, table.life, self._repair, self._session)
        try:
            with self._writing:
                why = f"{table.standing}; {lacking}" if table.standing else ""
                version = beside.go_on(table.mode, wrong, why=why, compares=bool(result.reason))
        except _REFUSALS as error:
            return _refused(error, counts, result.remedy)
        return TableRepair("repaired", counts, version)

    def _replayed_beside(self, table: BesideTable, proof: Proof) -> TableRepair:
        """Write a table beside a mirror again from the staging, unless it is a dry run. Raises NotReplayed."""
        replayed = ReplayedBeside(self._held, self._config, table, self._repair, self._session)
        counts = {"replay of batches": 1}
        if self._dry_run:
            replayed.check()
            return TableRepair("planned", counts)
        with self._writing:
            return TableRepair("repaired", counts, replayed.run(proof))

    def _refuse_unknown(self, compared: ComparedColumns, lake: LakeRows, life: Life, correction: Correction) -> None:
        """Raise Unrepairable or LeftToSpark where a commit here would lose something."""
        plain_tables.check_is_plain(lake.log)
        if life.schema.kept:
            raise Unrepairable("it keeps columns that the server dropped")
        there = {item["name"] for item in plain_tables.fields_of(lake.log)}
        for place, column in enumerate(compared.columns):
            if column.name not in there and any(rows.column(place).null_count < len(rows) for rows in correction.rows):
                raise Unrepairable(f"column {column.source.name!r} has values that the lake has no column for")

    def _commit(self, compared: ComparedColumns, lake: LakeRows, life: Life, correction: Correction) -> int:
        """Commit a correction and return the table's new Delta version."""
        began_us = now_us()
        actions = [*map(plain_tables.removed, lake.left_out), *self._marked(compared, lake, correction)]
        fields = {item["name"]: item for item in plain_tables.fields_of(lake.log)}
        control = self._held.control()
        if correction.rows or correction.retired:
            assert control.position is not None  # up to which the lake was compared
            written = (control.batch, began_us, boundary_text(*control.position.order))
            added = added_file(lake.path, _stored(correction, fields, written))
            fault("data file written")
            actions.append({"add": added})
        beside = RepairedBeside(self._held, self._config, life, self._repair, self._session)
        own = self._own("MERGE", lake, life, {"numTargetFilesAdded": sum("add" in action for action in actions)})
        with self._writing:
            beside.begin()
        version = self._committed(lake, life, own, actions, correction.notes)
        fault("rows committed")
        with self._writing:
            watermarks.at_version(self._held.metadata, life.id, version, self._config.is_listed, began_us=began_us)
            beside.end(version, correction.repaired, began_us)
        return version

    def _own(self, operation: str, lake: LakeRows, life: Life, metrics: Mapping[str, int]) -> OwnCommit:
        """Return what a commit at the position compared says of itself."""
        control, app = self._held.control(), LakeLog.of(self._config, life.name, life.id).app
        transaction = max(lake.log.transaction_version(app) or -1, overtaking(control.batch)) + 1
        return OwnCommit(operation, transaction, self._commit_note(life), {}, metrics)

    def _commit_note(self, life: Life) -> dict[str, Any]:
        """Return the note of this repair's commits."""
        control = self._held.control()
        origin = {"source": self._config.source.name, "life": life.id, "batch": control.batch}
        return {"binlake": {**origin, "position": str(control.position), "repair": self._repair}}

    def _committed(
        self,
        lake: LakeRows,
        life: Life,
        own: OwnCommit,
        actions: Sequence[DeltaAction],
        notes: Sequence[dict[str, Any]],
    ) -> int:
        """Note what is put right, commit it behind the version that was compared, and return the new version. Raises
        CommitFailedError, LeaseHeld, OSError."""
        log, version = LakeLog.of(self._config, life.name, life.id), lake.version + 1
        with self._writing:
            self._note(life, version, notes)
        self._held.check()
        try:
            plain_tables.commit(log, lake.log, own, actions)
        except BaseException:
            if log.version() < version:
                with self._writing:
                    self._forget(life, version)
            raise
        return version

    def _marked(self, compared: ComparedColumns, lake: LakeRows, correction: Correction) -> list[DeltaAction]:
        """Return the actions that hide the rows which go."""
        left = Counter(correction.gone)
        places: dict[str, list[int]] = defaultdict(list)
        for path, number, checksum in _rows_with(compared, lake, left, data_rows.counting(compared.schema)):
            if left[checksum] > 0:
                left[checksum] -= 1
                places[path].append(number)
        if correction.put:
            for path, number, _ in _rows_with(compared, lake, correction.put, "deleted"):
                places[path].append(number)
        actions: list[DeltaAction] = []
        marks: list[tuple[DeltaAction, BitMap64]] = []
        for add in plain_tables.actions_of(lake.log, lake.path, list(places)):
            actions.append(removed(add))
            after = deletion_vectors.hidden(lake.path, add) | BitMap64(places[add["path"]])
            rows = delta_actions.rows_in(add)
            if rows is None or len(after) < rows:
                marks.append((add, after))
        return [*actions, *plain_tables.marked(lake.log, lake.path, marks)]

    def _note(self, life: Life, version: int, notes: Sequence[dict[str, Any]]) -> None:
        control = self._held.control()
        rows = [
            RepairRow(
                repair=self._repair,
                run=self._run,
                at_us=now_us(),
                table_id=life.id,
                **vars(life.name),
                batch=control.batch,
                position=str(control.position),
                delta_version=version,
                **note,
            )
            for note in notes
        ]
        RepairRow.append(self._held.metadata, rows)

    def _forget(self, life: Life, version: int) -> None:
        where = f"repair = {literal(self._repair)} AND table_id = {literal(life.id)} AND delta_version = {version}"
        RepairRow.replace(self._held.metadata, where)


def _rows_with(
    compared: ComparedColumns, lake: LakeRows, wanted: Collection[Checksum], counts: Counts
) -> Iterator[tuple[str, int, Checksum]]:
    """Yield the rows of these checksums: the data file, the number in it, and the checksum."""
    firsts = np.fromiter((first for first, _ in wanted), np.uint64, len(wanted))
    for file in lake.files(compared, counts=counts) if wanted else ():
        for rows, numbers in file.numbered():
            sums = compared.keys_or_rows(rows)
            for place in np.flatnonzero(np.isin(sums.first, firsts)).tolist():
                checksum = (int(sums.first[place]), int(sums.second[place]))
                if checksum in wanted:
                    yield file.path, int(numbers[place]), checksum


def _stored(correction: Correction, fields: dict[str, Any], written: tuple[int, int, str]) -> pa.Table:
    """Return the rows that come, and those that stay as deleted ones, with the columns that the table has, as data
    files have them. written: batch, time and position of the repair."""
    compared = correction.compared

    def with_own(batches: Sequence[pa.RecordBatch], *, deleted: bool) -> pa.Table:
        part = pa.Table.from_batches(batches, compared.arrow)
        return own_values.with_own(part, compared.schema, Written.at_once(*written, part.num_rows), deleted=deleted)

    rows = pa.concat_tables([with_own(correction.rows, deleted=False), with_own(correction.retired, deleted=True)])
    places = {name: place for place, name in reversed(list(enumerate(rows.column_names)))}
    stored = [plain_tables.stored_field(item, rows.schema.field(places[name]).type) for name, item in fields.items()]
    return pa.Table.from_arrays([rows.column(places[name]) for name in fields], schema=pa.schema(stored))
