"""Rows that foreign keys changed below the log, derived from the parents' mutations by the process itself, as
``derived.py`` does by Spark. The effects of the parents' events on the rows are played in plain Python (acted_rows.py):

on the columns alone that foreign keys join, and on those rows alone that refer to what an event concerns. Images of
whole rows stay in Arrow. Rows of the lake are looked for in its data files as they were before the batch
(referring_rows.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from binlake.binlog.border import DELETE
from binlake.config import PipelineConfig
from binlake.errors import LeftToSpark
from binlake.merge.arrow_mutations import HELD, StagedMutations, moved
from binlake.merge.foreign_keys.acted_rows import (
    AFTER_ALL,
    BEFORE_ALL,
    ActingKey,
    JoinedValues,
    LogPlace,
    ParentEvent,
    RowChange,
    RowStretch,
    changes_of,
    events_of,
)
from binlake.merge.foreign_keys.referring_rows import ReferringRows, may_refer, values_of
from binlake.merge.lake_images import LakeImages
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.merge.newest import check_key
from binlake.planner.steps import Life, MergeStep, ParentMutations
from binlake.schema.cascades import Cascade
from binlake.schema.lake_columns import LakeColumn, lake_columns

MOST_PLAYED = 300_000
"""Events of parents, and rows that they may concern, that are played: each takes up to a kilobyte and some 20 µs."""
_FIRST, _LAST = -1, 2**62
"""Numbers of images: of those before all of the log's, and of what is behind them."""


def newest_rows(epoch: MirrorEpoch, most: int) -> tuple[pa.Table, pa.Table]:
    """Return the keys that the log or a foreign key changed, and the rows that remain at the end, as the lake has both.

    Raises LeftToSpark where the rows are too many to be played here, or take more than ``most`` bytes of memory;
    UnfollowedStatement where they refer to each other through too many levels; LakeError, OSError, DeltaError,
    ArrowException.
    """
    return _Table(epoch.life, epoch.step, epoch.images, _joined(epoch.step), epoch.config, most).newest()


def staged_bytes(step: MergeStep) -> int:
    """Return the bytes of the staged files that a step reads, with those of the parents through all levels."""
    parents = sum(staged_bytes(mutations.step) for mutations in step.parents if mutations.step)
    return sum(file.bytes for file in step.staged) + parents


def _joined(step: MergeStep, referenced: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the columns of a table that foreign keys join. referenced: by another table."""
    names = [*referenced]
    for mutations in step.parents:
        names += mutations.cascade.columns
        names += () if mutations.parent else mutations.cascade.referenced
    return tuple(dict.fromkeys(names))


def _check_played(count: int) -> None:
    if count > MOST_PLAYED:
        raise LeftToSpark(f"foreign keys below the log concern more than {MOST_PLAYED:,} of its rows")


@dataclass(frozen=True)
class _Images:
    """Images of rows in one batch: those of the lake, and behind them those that came by the log.

    numbers: of each, and behind them of each key that went by the log, as ``_Table.place_of`` takes it. keys: a number
    of the key of each of these. ends: for each the number of the next one of its key. by_key: the keys by their
    numbers.
    """

    rows: pa.Table
    numbers: NDArray[np.int64]
    keys: NDArray[np.int64]
    ends: NDArray[np.int64]
    by_key: pa.Table


@dataclass(frozen=True)
class _Played:
    """The changes that foreign keys made. stretches: for the number of a change's stretch, the image that it is of."""

    images: _Images
    stretches: NDArray[np.int64]
    changes: Sequence[RowChange]


@dataclass(frozen=True)
class _Table:
    """A table in one batch. made: how those of its columns that matter are made. followed: those whose values are
    played. most: see ``newest_rows``, which says what the methods raise."""

    life: Life
    step: MergeStep
    made: LakeImages
    followed: tuple[str, ...]
    config: PipelineConfig
    most: int

    @classmethod
    def of_parent(
        cls, life: Life, step: MergeStep, referenced: Sequence[str], config: PipelineConfig, most: int
    ) -> Self:
        """Return a parent with only the columns that its events need. referenced: by the child."""
        followed = _joined(step, referenced)
        columns = lake_columns(step.schema, config.invalid)
        if step.parents:
            check_key(step.schema.key, columns)
        made = LakeImages.of(step.schema, columns).only({*followed, *step.schema.key})
        return cls(life, step, made, followed, config, most)

    @property
    def columns(self) -> tuple[LakeColumn, ...]:
        """Return the columns of its images."""
        return self.made.columns

    # the log ---------------------------------------------------------------------------------------------------------
    @cached_property
    def mutations(self) -> pa.Table | None:
        """Return the log's mutations, in their order; None without any."""
        if not self.step.staged:
            return None
        return StagedMutations(self.life, self.step, self.config.invalid, self.most).placed()

    def place_of(self, number: int) -> LogPlace:
        """Return the place of an image. number: 2 n where the old one of the n-th mutation went, 2 n + 1 where the new
        one came."""
        if number in (_FIRST, _LAST):
            return BEFORE_ALL if number == _FIRST else AFTER_ALL
        file, offset, held, row = (int(values[number // 2]) for values in self._places)
        return file, offset, held, row, number % 2

    @cached_property
    def _places(self) -> list[NDArray[np.int64]]:
        assert self.mutations is not None
        return [self.mutations[name].to_numpy() for name in ("file", "offset", HELD, "row")]

    # the causes ------------------------------------------------------------------------------------------------------
    def _acting(self) -> list[ActingKey]:
        def places(names: Sequence[str]) -> tuple[int, ...]:
            return tuple(map(self.followed.index, names))

        pairs = [(mutations.cascade, mutations.parent) for mutations in self.step.parents]
        return [
            ActingKey(cascade, places(cascade.columns), None if parent else places(cascade.referenced))
            for cascade, parent in pairs
        ]

    def _events(self) -> list[ParentEvent]:
        """Return the events that the log and the parents' own foreign keys give."""
        events: list[ParentEvent] = []
        for number, mutations in enumerate(self.step.parents):
            is_own = mutations.parent is None
            events += self.logged_events(number, mutations.cascade) if is_own else self._of_parent(number, mutations)
            _check_played(len(events))
        return events

    def _of_parent(self, number: int, mutations: ParentMutations) -> list[ParentEvent]:
        cascade, step = mutations.cascade, mutations.step
        assert mutations.parent is not None
        assert step is not None
        parent = self.of_parent(mutations.parent, step, cascade.referenced, self.config, self.most)
        own, referenced = ({column.name: column.arrow for column in table.columns} for table in (self, parent))
        if any(own[name] != referenced[of] for name, of in zip(cascade.columns, cascade.referenced, strict=True)):
            raise LeftToSpark(f"the foreign key {cascade.key!r} joins columns of two types")
        events = parent.logged_events(number, cascade)
        if step.parents:
            places = [parent.followed.index(name) for name in cascade.referenced]
            changes = parent.played().changes
            events += [event for change in changes for event in events_of(number, cascade, places, change)]
        return [event for event in events if event.at[:2] >= self.life.low.order]

    def logged_events(self, number: int, cascade: Cascade) -> list[ParentEvent]:
        """Return what the log deleted, or gave another key, as a foreign key's events."""
        if self.mutations is None:
            return []
        deleted = pc.and_(pc.equal(self.mutations["op"], DELETE), cascade.on_delete)
        updated = pc.and_(moved(cascade.referenced, self.mutations), cascade.on_update)
        numbers = np.flatnonzero(pc.or_(deleted, updated).to_numpy())
        _check_played(len(numbers))
        rows = self.mutations.take(pa.array(numbers))
        referenced = self.made.only(cascade.referenced)
        old, new = (values_of(referenced.rows(rows, image), cascade.referenced) for image in ("before", "after"))
        gone = pc.equal(rows["op"], DELETE).to_pylist()
        return [
            ParentEvent(self.place_of(2 * int(place)), number, is_gone, before, after)
            for place, is_gone, before, after in zip(numbers, gone, old, new, strict=True)
            if is_gone or before != after
        ]

    # the effects ----------------------------------------------------------------------------------------------------
    def played(self) -> _Played:
        """Return the changes that foreign keys made to the rows.

        A table's effects on itself, by its own changed rows, are known once these were played: then more of its rows
        are looked for, and all is played again.
        """
        given, acting = self._events(), self._acting()
        names = [mutations.cascade.columns for mutations in self.step.parents]
        lake = self._lake(names)
        asked: dict[int, set[JoinedValues]] = defaultdict(set)
        parts = [pa.schema([pa.field(column.name, column.arrow) for column in self.columns]).empty_table()]
        more = _take_unasked(given, asked)
        while True:
            if more:
                parts.append(lake.referring(more))
            images = self._images(pa.concat_tables(parts))
            stretches = np.flatnonzero(may_refer(images.rows, names, asked))
            _check_played(len(stretches) + len(given))
            changes, own = changes_of(self.life.name, self._stretches(images, stretches), given, acting)
            more = _take_unasked(own, asked)
            if not more:
                return _Played(images, stretches, changes)

    def _lake(self, names: Sequence[Sequence[str]]) -> ReferringRows:
        version = self.life.delta_version
        if version is None:
            raise LeftToSpark("it isn't known how its rows were before the batch")
        return ReferringRows(
            self.config.table_path(self.life.name), version, self.step.schema, self.columns, names,
            self.config.merge.without_spark_bytes, self.most,
        )  # fmt: skip

    @cached_property
    def _logged(self) -> tuple[pa.Table, pa.Table, NDArray[np.int64]]:
        """Return the log's part: the images that came, the keys of these and behind them of those that went, and the
        numbers of both. It stays the same however often the rows are played."""
        assert self.mutations is not None
        key = self.step.schema.key
        is_delete = pc.equal(self.mutations["op"], DELETE)
        came = np.flatnonzero(pc.invert(is_delete).to_numpy())
        went = np.flatnonzero(pc.or_(is_delete, moved(key, self.mutations)).to_numpy())
        rows = self.made.rows(self.mutations.take(pa.array(came)), "after")
        gone = self.made.only(key).rows(self.mutations.take(pa.array(went)), "before")
        keys = pa.concat_tables([rows.select(key), gone.select(key)])
        return rows, keys, np.concatenate([2 * came + 1, 2 * went])

    def _images(self, of_lake: pa.Table) -> _Images:
        """Return the images of these rows of the lake and of the log's."""
        rows, numbers = [of_lake], [np.full(of_lake.num_rows, _FIRST)]
        keys = [of_lake.select(self.step.schema.key)]
        if self.mutations is not None:
            came, changed, places = self._logged
            rows.append(came)
            keys.append(changed)
            numbers.append(places)
        every, all_keys = np.concatenate(numbers).astype(np.int64), pa.concat_tables(keys)
        of_key, by_key = _numbered_keys(all_keys)
        ends = np.full(len(every), _LAST)
        order = np.lexsort((every, of_key))
        followed = of_key[order[1:]] == of_key[order[:-1]]
        ends[order[:-1][followed]] = every[order[1:][followed]]
        return _Images(pa.concat_tables(rows), every, of_key, ends, by_key)

    def _stretches(self, images: _Images, chosen: NDArray[np.int64]) -> list[RowStretch]:
        """Return chosen images as they are played."""
        values = values_of(images.rows.select(self.followed).take(pa.array(chosen)), self.followed)
        since, upto = ([self.place_of(int(number)) for number in of[chosen]] for of in (images.numbers, images.ends))
        return [RowStretch(*stretch) for stretch in zip(since, upto, values, strict=True)]

    def newest(self) -> tuple[pa.Table, pa.Table]:
        """Return the keys that changed, and the rows that remain at the end."""
        played = self.played()
        images = played.images
        changes: dict[int, RowChange] = {}
        for change in played.changes:
            key = int(images.keys[played.stretches[change.stretch]])
            if key not in changes or change.at > changes[key].at:
                changes[key] = change
        is_logged = images.numbers != _FIRST
        is_last = is_logged & (images.ends == _LAST)
        last = {int(images.keys[row]): int(row) for row in np.flatnonzero(is_last)}
        derived = {
            key: change
            for key, change in changes.items()
            if key not in last or change.at > self.place_of(int(images.numbers[last[key]]))
        }
        changed = np.union1d(images.keys[is_logged], np.fromiter(derived, np.int64, len(derived)))
        stand = [row for key, row in last.items() if key not in derived and images.numbers[row] % 2]
        rows = images.rows.take(pa.array(stand, pa.int64()))
        return images.by_key.take(pa.array(changed)), pa.concat_tables([rows, self._derived(played, derived.values())])

    def _derived(self, played: _Played, changes: Iterable[RowChange]) -> pa.Table:
        """Return the rows as foreign keys left them."""
        stand = [change for change in changes if not change.gone]
        rows = played.images.rows.take(
            pa.array([int(played.stretches[change.stretch]) for change in stand], pa.int64())
        )
        for name in dict.fromkeys(name for mutations in self.step.parents for name in mutations.cascade.columns):
            place, index = self.followed.index(name), rows.schema.get_field_index(name)
            kind = rows.schema.field(index)
            rows = rows.set_column(index, kind, pa.array([change.after[place] for change in stand], kind.type))
        return rows


def _take_unasked(events: Iterable[ParentEvent], asked: dict[int, set[JoinedValues]]) -> dict[int, set[JoinedValues]]:
    """Return the values by which rows are still to be looked for, by foreign key; they count as looked for from now on.
    Nothing refers to NULL."""
    more: dict[int, set[JoinedValues]] = defaultdict(set)
    for event in events:
        if None not in event.old and event.old not in asked[event.number]:
            asked[event.number].add(event.old)
            more[event.number].add(event.old)
    return dict(more)


def _numbered_keys(keys: pa.Table) -> tuple[NDArray[np.int64], pa.Table]:
    """Return a number for each key, the same for equal ones, and the keys by their numbers."""
    codes = []
    for column in keys.columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        codes.append(encoded.indices.to_numpy())
    if not keys.num_rows:
        return np.zeros(0, np.int64), keys
    _, first, numbers = np.unique(np.column_stack(codes), axis=0, return_index=True, return_inverse=True)
    return numbers.reshape(-1).astype(np.int64), keys.take(pa.array(first))
