"""Shards of merged tables that stand still, or have another shape than the others: what the status says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from binlake.config import PipelineConfig
from binlake.planner.steps import Life
from binlake.records import merged_standstills, watermarks
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
    """A merged table. shards: their number. differences: of single ones, each a sentence."""

    table: str
    shards: int
    differences: tuple[str, ...]


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
        MergedStatus(str(name), len(lives), tuple(_differences(config, lives))) for name, lives in by_name.items()
    )


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
