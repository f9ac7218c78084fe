"""Shards of merged tables that don't move, or have another shape than the others, for the status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.config.shards import MergedTable
from binlake.planner.steps import Life
from binlake.records import merged_standstills, watermarks
from binlake.report import counted
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata


@dataclass(frozen=True)
class ProblemBeside:
    """A problem of a table beside a mirror. table: its own name."""

    table: str
    problem: str
    remedy: str


@dataclass(frozen=True)
class MergedStatus:
    """A merged table. shards: the number of this source's. differences: of single ones, each a sentence. others: of the
    other sources that fill it, each a sentence."""

    table: str
    shards: int
    differences: tuple[str, ...]
    others: tuple[str, ...] = ()


def merged_shapes(config: PipelineConfig, metadata: Metadata) -> tuple[MergedStatus, ...]:
    """Return the merged tables of a lake. Raises LakeError."""
    merged = config.tables.merge_tables
    if not merged:
        return ()
    by_name: dict[TableName, list[Life]] = {entry.name: [] for entry in merged}
    for life in sorted(watermarks.read_lives(metadata), key=lambda life: life.name):
        place = config.shard_of(life.name)
        if place is not None and life.status != "dropped":
            by_name[place.into].append(life)
    return tuple(
        MergedStatus(
            str(entry.name),
            len(by_name[entry.name]),
            tuple(_differences(config, by_name[entry.name])),
            tuple(_of_others(config, entry, by_name[entry.name])) if entry.folder else (),
        )
        for entry in merged
    )


def _of_others(config: PipelineConfig, entry: MergedTable, lives: Sequence[Life]) -> Iterable[str]:
    """Yield what a merged table shows of the other sources, as they noted it."""
    from binlake.delta import opened_tables
    from binlake.delta.composed_sources import notes_in
    from binlake.schema.lake_columns import mirror_columns

    try:
        path = config.table_path(entry.name)
        notes = notes_in(opened_tables.newest(path).metadata().configuration) if opened_tables.is_table(path) else {}
    except (DeltaError, OSError):
        yield "its log can't be read"
        return
    own = {column.name.lower() for life in lives for column in mirror_columns(life.schema, config.invalid)}
    for source in (name for name in entry.sources if name != config.source.name):
        note = notes.get(source)
        if note is None:
            yield f"{source}: no table yet; its YAML needs the same lake.path and the same entry of merge_tables"
            continue
        yield f"{source}: {counted(len(note.shown) + len(note.waiting), 'table')}"
        theirs = {field["name"].lower() for fields in note.columns for field in fields}
        if lives and (more := sorted(theirs - own)):
            yield f"{source} has {', '.join(more)}, {config.source.name} hasn't"
        if theirs and (less := sorted(own - theirs)):
            yield f"{source} lacks {', '.join(less)}"
        for part in note.waiting:
            yield f"{part.name} of {source} isn't shown as it is: its types don't go together with those of others"


def problems_of_merged(config: PipelineConfig, metadata: Metadata) -> Iterable[ProblemBeside]:
    """Yield why merged tables are stopped, and why shards aren't shown as they are. Raises LakeError."""
    noted = merged_standstills.read(metadata) if config.tables.merge_tables else {}
    for entry in config.tables.merge_tables:
        known = noted.get(entry.name, merged_standstills.NOTHING)
        if known.own:
            yield ProblemBeside(str(entry.name), f"it is stopped: {known.own.reason}", known.own.remedy)
        for shard, why in known.shards.items():
            yield ProblemBeside(shard, f"it isn't shown as it is in {entry.name}: {why.reason}", why.remedy)


def _differences(config: PipelineConfig, lives: Sequence[Life]) -> Iterable[str]:
    """Yield what is so of shards that differ from the others. Most of a column's types counts as that of the others."""
    from binlake.schema.lake_columns import mirror_columns  # imports pyarrow, which a status needs for this alone

    shapes = {
        life.name: {column.name.lower(): column for column in mirror_columns(life.schema, config.invalid)}
        for life in lives
    }
    kinds: dict[str, Counter[str]] = {}
    for shape in shapes.values():
        for name, column in shape.items():
            kinds.setdefault(name, Counter())[column.delta] += 1
    for life in lives:
        if life.status != "following":
            yield f"{life.name} is {life.status}; its rows are those of before"
        shape = shapes[life.name]
        if lacks := [name for name in kinds if name not in shape]:
            yield f"{life.name} lacks {', '.join(lacks)}"
        for name, column in shape.items():
            usual, _ = kinds[name].most_common(1)[0]
            if column.delta != usual:
                yield f"{life.name} has {column.name} as {column.delta}, others as {usual}"
