"""Tables whose earlier versions have values, or rows, that a policy withholds by now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from binlake.config import PipelineConfig
from binlake.config.column_policies import masks_of
from binlake.config.units import HOUR_US
from binlake.maintain import purge_look
from binlake.maintain.purge_obstacles import Look, Obstacle, obstacles
from binlake.moment import moment_text
from binlake.planner.steps import Life
from binlake.records import watermarks
from binlake.records.former_shapes import shows_more
from binlake.schema.table import TableName, TableSchema
from binlake.store.metadata import Metadata, now_us


@dataclass(frozen=True)
class FormerValues:
    """A table that has former values. what: is kept, and until when. command: removes all of it at once, where no
    obstacle is in its way. Feeds that wait for staging aren't among these: the command looks for them."""

    table: str
    what: str
    command: str
    obstacles: tuple[Obstacle, ...]


def former_values(config: PipelineConfig, metadata: Metadata, only: TableName | None = None) -> list[FormerValues]:
    """Return the tables that have former values, in the order of their names. only: the table that is asked for.
    Raises LakeError."""
    if not config.withholds:
        return []
    lives = watermarks.read_lives(metadata)
    asked = [life for life in sorted(lives, key=lambda life: life.name) if only in (None, life.name)]
    asked = [life for life in asked if _is_copied(config, life)]
    if not asked:
        return []
    look = purge_look.look_at(config, metadata, lives, (), asked[0] if only else None)
    if look.shapes_by_life.keys() <= look.living.keys():
        return []  # no table was copied again: the lake's versions needn't be read for former names
    return [_of(look, life) for life in asked if _has_former_values(look, life)]


def _of(look: Look, life: Life) -> FormerValues:
    return FormerValues(
        str(life.name),
        "earlier versions have values of columns, or rows, that are withheld since; data files of theirs are kept until"
        f" {moment_text(_until_us(look, life))}",
        f"binlake purge --config FILE --tables {life.name}",
        tuple(obstacles(look, purge_look.before_copy(look, life))),
    )


def _until_us(look: Look, life: Life) -> int:
    return look.since_us(life.id) + int(look.config.maintain.history_hours * HOUR_US)


def _is_copied(config: PipelineConfig, life: Life) -> bool:
    """Return whether something of a table is withheld now, and its newest copy has nothing of that."""
    hidden = config.withheld(life.name)
    return life.status == "following" and bool(hidden or life.schema.where) and not _shows(life.schema, hidden)


def _has_former_values(look: Look, life: Life) -> bool:
    """Return whether a table that was copied with what is withheld now had more before, also under other names."""
    if look.is_purged(life) or _until_us(look, life) <= now_us():
        return False
    _, ended = look.past_of(life)
    earlier = (row.shape for key in ended for row in look.shapes_by_life.get(key, ()))
    masks = masks_of(look.config.columns, life.name.database, life.name.table)
    return any(shows_more(shape, life.schema, masks) for shape in earlier)


def _shows(shape: TableSchema, hidden: Collection[str]) -> bool:
    """Return whether the lake had values of one of some columns under a shape."""
    return any(column.mask is None and column.served_name.lower() in hidden for column in shape.mirrored)
