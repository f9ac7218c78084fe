"""The choice of ghost tables whose rows are staged: those that the log shows to be copies of included tables.

Their names alone show nothing, and rows of any other table that isn't included must not reach the staging. Ghost tables
that follow already are known before a batch; new ones once the batch's statements are read. Then the slices that hold
their rows are read once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from binlake.binlog.border import Mutations, Statement
from binlake.config import PipelineConfig, TablesConfig
from binlake.config.schema_change_tools import copied_table
from binlake.planner.manifest import GhostSpan, StagedSlice, is_held
from binlake.planner.tool_tables import spans_of
from binlake.position import Flavour, file_number
from binlake.records import watermarks
from binlake.schema.table import TableName, TableSchema
from binlake.staging.staged_files import Items
from binlake.store.metadata import Metadata
from binlake.store.rows import WatermarkRow


@dataclass(frozen=True)
class GhostTables:
    """The ghost tables that are followed.

    before: those that follow before the batch. may_be_ghost: returns whether the YAML admits a name as a ghost table's.
    shape_of: returns the shape of an included table that follows, before the batch; None for others.
    """

    before: tuple[GhostSpan, ...]
    may_be_ghost: Callable[[TableName], bool]
    shape_of: Callable[[TableName], TableSchema | None]

    @classmethod
    def of(cls, config: PipelineConfig, metadata: Metadata) -> GhostTables:
        """Return what metadata hold of them before the open batch."""
        rows = WatermarkRow.read(metadata, "database", "table", "status")
        names = (row.name for row in rows if row.status == "following" and copied_table(row.table))

        @cache
        def shapes() -> dict[TableName, TableSchema]:
            lives = watermarks.read_lives(metadata)
            return {life.name: life.schema for life in lives if life.status == "following"}

        before = tuple(GhostSpan(name) for name in sorted(names) if config.ghost(name))
        return cls(before, config.ghost, lambda name: shapes().get(name) if config.included(name) else None)

    def spans(
        self, slices: Sequence[StagedSlice], flavour: Flavour, *, lower_case_names: bool
    ) -> tuple[GhostSpan, ...]:
        """Return where ghost tables are followed in the log of a batch."""
        return spans_of(
            [span.name for span in self.before],
            (statement for part in slices for statement in part.statements),
            self.may_be_ghost,
            self.shape_of,
            flavour=flavour,
            lower_case_names=lower_case_names,
        )


NO_GHOSTS = GhostTables((), lambda name: False, lambda name: None)


def differs(part: StagedSlice, spans: Sequence[GhostSpan]) -> bool:
    """Return whether a slice was read as if other ghost tables were followed."""
    ghosts = {span.name for span in spans}
    if not ghosts.isdisjoint(part.withheld):
        return True
    return any(file.name in ghosts and not is_held(spans, file.name, file.first[:2]) for file in part.files)


class GhostsWanted:
    """The tables of which a slice's rows are read: the included ones, and ghost tables where these are followed.

    withheld: tables with the name of an included table's ghost that the slice has rows of, and that aren't read.
    """

    def __init__(self, tables: TablesConfig, spans: Sequence[GhostSpan]) -> None:
        self._tables = tables
        self._spans = spans
        self._ghosts = frozenset(span.name for span in spans)
        self.withheld: set[TableName] = set()

    def __call__(self, database: str, table: str) -> bool | frozenset[str]:
        """Return False for a table that isn't read, else its columns that aren't (see border.Wanted)."""
        wanted = self._tables.wanted(database, table, self._ghosts)
        if wanted is False and self._tables.ghost_of(database, table):
            self.withheld.add(TableName(database, table))
        return wanted

    def passing(self, items: Items, start: tuple[int, int]) -> Items:
        """Yield what is read of a slice, without rows under a ghost table's name where another table has it.

        start: place at which the slice starts.
        """
        place = start
        for item in items:
            if isinstance(item, Statement):
                place = file_number(item.file), item.offset
            elif isinstance(item, Mutations) and self._is_anothers(item.name, place):
                continue
            yield item

    def _is_anothers(self, name: TableName, place: tuple[int, int]) -> bool:
        """Return whether a ghost table's name is another table's at a place of the log."""
        return name in self._ghosts and not is_held(self._spans, name, place)
