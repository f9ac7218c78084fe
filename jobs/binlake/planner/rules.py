"""The YAML's rules for tables, and what becomes of a life whose rows were read under other settings.

Only settings that change a table's rows or columns in the lake count: whether the table is read at all, which of its
columns, and what becomes of invalid values. Patterns that are written differently and choose the same aren't a change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from binlake.config import PipelineConfig, Policy
from binlake.config.schema_change_tools import has_tools_name, is_copy_of
from binlake.config.schema_changes import FOLLOW_ALL, SchemaChangePolicy
from binlake.config.table_modes import BesideMode, HistoryMode
from binlake.errors import SNAPSHOTTED_BY_ITSELF, TAKEN_REMEDY, catch_up_again, snapshot_again
from binlake.planner.steps import LEFT_GHOST, LEFT_OUT, Life, Standstill
from binlake.planner.tool_tables import is_alike
from binlake.schema.invalid import FAIL, InvalidValues
from binlake.schema.lake_columns import lake_columns, own_columns, side_columns
from binlake.schema.lake_forms import lake_form, server_shape
from binlake.schema.row_condition import CONDITION_REMEDY, conditions_of, refusal
from binlake.schema.table import Column, TableName, TableSchema
from binlake.schema.virtual import UNLOGGED_COLUMN_REMEDY, generated_columns
from binlake.schema.withheld_values import shows_members

HISTORY_REMEDY = "leave the table out of the patterns in tables.modes that ask for a history, or give it log: {} there"
NO_ROWS_REMEDY = "set on_unlogged_cascade to stop or resnapshot for the table, or give it a mirror"
ROWS_REMEDY = f"correct the table's condition in rows: {CONDITION_REMEDY}"
SOURCE_COLUMN_REMEDY = "give merge_tables another source_column or source_name_column, and snapshot the shards again"
OWN_COLUMNS_REMEDY = "leave the table out of the patterns in tables.modes that ask for soft_delete or row_metadata"


@dataclass(frozen=True)
class Rules:
    """The YAML's rules for tables, as functions of a table's name.

    included: returns whether it is mirrored. ghost: returns whether its name is that of a copy which an online schema
    change tool fills for a mirrored table. left_ghost: returns whether it was taken for one, and is excluded.
    excluding: returns a shape with the columns that aren't mirrored noted in it; may raise ConfigurationError.
    can_snapshot: there is a server to take a snapshot from. goes_when_dropped: returns whether the folder of a dropped
    table is removed once the batch is recorded. invalid: which invalid values the lake keeps. beside: returns the modes
    that keep a table beside the mirror. history: returns how its history is kept. taken_by: returns the one of them
    that has the table's name; empty if none has. soft_delete: returns whether deleted rows stay. schema_changes:
    returns what becomes of it when its columns change. filtered: returns whether the lake has only some of its rows, by
    a condition. withheld: returns the columns that are excluded or masked, in lower case. confidential: returns those
    of them that nobody's no left out.
    """

    included: Callable[[TableName], bool]
    ghost: Callable[[TableName], bool] = lambda name: False
    excluding: Callable[[TableName, TableSchema], TableSchema] = lambda name, schema: schema
    policy: Callable[[TableName], Policy] = lambda name: Policy()
    can_snapshot: bool = True
    goes_when_dropped: Callable[[TableName], bool] = lambda name: False
    invalid: InvalidValues = FAIL
    beside: Callable[[TableName], Collection[BesideMode]] = lambda name: ()
    history: Callable[[TableName], HistoryMode | None] = lambda name: None
    taken_by: Callable[[TableName], str] = lambda name: ""
    soft_delete: Callable[[TableName], bool] = lambda name: False
    left_ghost: Callable[[TableName], bool] = lambda name: False
    schema_changes: Callable[[TableName], SchemaChangePolicy] = lambda name: FOLLOW_ALL
    filtered: Callable[[TableName], bool] = lambda name: False
    withheld: Callable[[TableName], frozenset[str]] = lambda name: frozenset()
    confidential: Callable[[TableName], frozenset[str]] = lambda name: frozenset()

    @classmethod
    def of(cls, config: PipelineConfig) -> Rules:
        """Return the rules of a YAML."""
        return cls(
            config.included,
            config.ghost,
            config.excluding,
            config.policies.of,
            can_snapshot=not config.source.is_files,
            goes_when_dropped=config.goes_when_dropped,
            invalid=config.invalid,
            beside=config.beside,
            history=config.history,
            taken_by=config.taken_by,
            soft_delete=lambda name: config.mirror_modes(name).soft_delete,
            left_ghost=lambda name: config.in_ghosts(name) and not config.ghost(name),
            schema_changes=config.schema_changes,
            filtered=lambda name: bool(config.row_condition(name)),
            withheld=config.withheld,
            confidential=config.confidential,
        )

    def has_all_rows(self, name: TableName) -> bool:
        """Return whether every mutation of the table is staged."""
        return self.included(name) and not self.filtered(name)

    def followed(self, name: TableName) -> bool:
        """Return whether the table's rows are read: it is mirrored, or a ghost table of a mirrored one."""
        return self.included(name) or self.ghost(name)

    def refusal(self, name: TableName, schema: TableSchema) -> str:
        """Return why a table with columns whose values the log lacks isn't mirrored; empty if it is."""
        refused = schema.untold and self.policy(name).on_untold_column == "stop"
        return f"{'; '.join(generated_columns(schema).left_out.values())} (on_untold_column: stop)" if refused else ""

    def refused_mode(self, name: TableName, schema: TableSchema) -> Standstill | None:
        """Return why a table can't have a mode that the YAML asks for, and what to do; None where it can.

        schema: as ``excluding`` returns it.
        """
        history = self.history(name)
        if history and (why := no_history(schema, history, self.invalid)):
            return Standstill(why, HISTORY_REMEDY)
        if own_columns(schema) and (why := no_own_columns(schema, self.policy(name), self.invalid)):
            return Standstill(why, OWN_COLUMNS_REMEDY)
        if schema.shard and (why := no_source_column(schema, self.invalid)):
            return Standstill(why, SOURCE_COLUMN_REMEDY)
        if schema.without_rows and self.policy(name).on_unlogged_cascade == "derive":
            why = "mutations are derived from the rows of a mirror (on_unlogged_cascade: derive), and it has none"
            return Standstill(why, NO_ROWS_REMEDY)
        if why := no_row_filter(schema, self.policy(name)):
            return Standstill(f"its row filter can't be worked out: {why}", ROWS_REMEDY)
        return None

    def lacks_deleted_rows(
        self, old: TableName, schema: TableSchema, new: TableName, replaced: TableSchema | None = None
    ) -> bool:
        """Return whether a table that is renamed takes the place of one whose deleted rows stay, without having these.

        schema: of the table, which was called ``old``. replaced: of the table that had the new name before the
        statement, and has another one since.
        """
        if not self.soft_delete(new):
            return False
        swapped = replaced is not None and has_tools_name(old.table) and is_alike(schema, replaced)
        return not schema.soft_delete or is_copy_of(old, new) or swapped

    def unfollowable(self, life: Life, standstill: Standstill, remedy: str = "") -> Life:
        """Return the life with the status of a table that the log alone can't keep equal to the server's.

        It waits for a new snapshot if the policy says so and there is a server to take it from; else it stops.
        remedy: what to do about a table that stopped; by default, a snapshot.
        """
        wanted = self.policy(life.name).on_unfollowable == "resnapshot"
        if wanted and self.can_snapshot and self.included(life.name):
            return replace(life, status="resnapshot", standstill=replace(standstill, remedy=SNAPSHOTTED_BY_ITSELF))
        stopped = replace(standstill, remedy=remedy or snapshot_again(life.name))
        return replace(life, status="stopped", standstill=stopped)

    def under(self, life: Life) -> Life:
        """Return the life with the status that it has under these rules; itself if they change nothing about it.

        The shape of a life that follows gets the columns that are read under these rules. A life that waits or stopped
        keeps the shape that it was read under. Raises ConfigurationError for an excluded column of its key.
        """
        if not self.followed(life.name):
            if life.status != "dropped" and self.left_ghost(life.name):
                return replace(life, status="dropped", standstill=LEFT_GHOST)
            leaves = life.status in ("following", "stopped", "resnapshot")
            return replace(life, status="excluded", standstill=LEFT_OUT) if leaves else life
        if life.status == "excluded":
            why = "the YAML left it out for a while, and what changed meanwhile wasn't read"
            return self.unfollowable(life, Standstill(why), catch_up_again(life.name))
        if life.status != "following":
            return life
        if why := self.refusal(life.name, life.schema):
            return replace(life, status="stopped", standstill=Standstill(why, UNLOGGED_COLUMN_REMEDY))
        if why := self.taken_by(life.name):
            return replace(life, status="stopped", standstill=Standstill(why, TAKEN_REMEDY))
        now = self.excluding(life.name, life.schema)
        if refused := self.refused_mode(life.name, now):
            return replace(life, status="stopped", standstill=refused)
        if why := self._difference(life.schema, now):
            return self.unfollowable(life, Standstill(why))
        # A column that the lake goes without anyway may be excluded, too.
        same = now.excluded == life.schema.excluded or now.logged == life.schema.logged
        return life if same and not shows_members(life.schema) else replace(life, schema=now)

    def reads_otherwise(self, name: TableName, schema: TableSchema) -> str:
        """Return what these rules change in the lake about a table whose rows were read under ``schema``.

        Returns an empty text if they change nothing. Raises ConfigurationError for an excluded column of its key.
        """
        return self._difference(schema, self.excluding(name, schema))

    def _difference(self, schema: TableSchema, now: TableSchema) -> str:
        """Return the difference as a text. now: the shape under these rules. See ``reads_otherwise``."""
        same_rows = schema.invalid in (None, self.invalid) and own_columns(now) == own_columns(schema)
        same_rows = same_rows and conditions_of(now) == conditions_of(schema) and now.where == schema.where
        same_rows = same_rows and now.shard == schema.shard
        same_columns = now.excluded == schema.excluded and now.masks == schema.masks
        same_columns = same_columns and lake_form(now) == lake_form(schema)
        if same_columns and same_rows and now.without_rows == schema.without_rows:
            return ""  # the common case, made cheap for thousands of tables
        pairs = list(zip(schema.columns, now.columns, strict=True))
        forms = [
            f"the YAML (columns) calls column {each.served_name!r} {each.name!r}, and the lake {there.name!r}"
            for there, each in pairs
            if there.name != each.name
        ]
        forms += [
            f"for column {each.served_name!r} the YAML (columns) asks for {_type_of(each)}, and the lake has"
            f" {_type_of(there)}"
            for there, each in pairs
            if there.lake_type != each.lake_type and there.mask == each.mask
        ]
        schema, now = server_shape(schema), server_shape(now)
        changed = sorted(
            name
            for name in now.masks.keys() | schema.masks.keys()
            if now.masks.get(name) != schema.masks.get(name) and name not in now.excluded | schema.excluded
        )
        masks = [
            f"for column {name!r} the YAML (columns) asks for {_shown(now, name)}, and the lake has"
            f" {_shown(schema, name)}"
            for name in changed
        ]
        schema, now = schema.unmasked, now.unmasked
        before, after = schema.logged, now.logged
        gone = _column_names(column for column in schema.mirrored if column not in after)
        back = _column_names(column for column in now.mirrored if column not in before)
        reasons = [f"tables.exclude_columns leaves out {gone}, which the lake still has"] if gone else []
        reasons += forms + masks
        reasons += [f"tables.exclude_columns no longer leaves out {back}: older values weren't read"] if back else []
        if now.soft_delete != schema.soft_delete:
            stay = "stay" if now.soft_delete else "go"
            reasons.append(
                f"deleted rows are to {stay} (tables.modes, soft_delete), and it was snapshotted before that"
            )
        if now.without_rows != schema.without_rows:
            rows = "no row" if now.without_rows else "the table's rows"
            reasons.append(f"the mirror is to have {rows} (tables.modes, mirror), and it was snapshotted before that")
        if now.where != schema.where:
            have = f"the rows with {now.where}" if now.where else "all rows"
            have += ", and no deleted ones of before" if now.where and schema.soft_delete else ""
            reasons.append(f"the lake is to have {have} (rows), and it was snapshotted with other rows")
        if now.snapshot_where != schema.snapshot_where:
            have = f"the rows with {now.snapshot_where}" if now.snapshot_where else "all rows"
            reasons.append(f"a snapshot is to copy {have} (rows, snapshot_where), and it was snapshotted with others")
        if now.shard != schema.shard:
            reasons.append(
                f"merge_tables makes it {_place(now.shard)}, and it was snapshotted as {_place(schema.shard)}"
            )
        if now.row_metadata != schema.row_metadata:
            reasons.append("tables.modes asks for other row_metadata than it was snapshotted with")
        return "; ".join([*reasons, *_policies_changed(now, schema.invalid, self.invalid)])


def no_history(schema: TableSchema, mode: HistoryMode, invalid: InvalidValues) -> str:
    """Return why a table of this shape can't have a history; empty where it can."""
    columns = lake_columns(schema, invalid)
    if not schema.key:
        return "it has no key, by which a history distinguishes rows"
    if any(column.is_side and column.source.name in schema.key for column in columns):
        return "its key may hold invalid values, by which a history can't distinguish rows"
    if lists := [column.name for column in columns if column.delta.startswith("ARRAY")]:
        return f"a history can't hold the column {lists[0]!r}"
    own = {name.lower() for name in mode.own.names}
    if taken := [column.name for column in columns if column.name.lower() in own]:
        return f"its column {taken[0]!r} has the name of one of the history's own"
    return ""


def no_own_columns(schema: TableSchema, policy: Policy, invalid: InvalidValues) -> str:
    """Return why the mirror of a table of this shape can't have columns of its own; empty where it can."""
    if not schema.key:
        return "it has no key, by which a row is found again (soft_delete, row_metadata)"
    own = {column.name for column in own_columns(schema)}
    columns = [*(column.name for column in lake_columns(schema, invalid)), *(column.name for column in schema.kept)]
    if taken := [name for name in columns if name.lower() in own]:
        return f"its column {taken[0]!r} has the name of one of the mirror's own"
    if policy.on_unlogged_cascade == "derive":
        return "mutations that are derived from a parent's (on_unlogged_cascade: derive) have no place in its rows"
    return ""


def no_row_filter(schema: TableSchema, policy: Policy) -> str:
    """Return why the rows of a table of this shape can't be chosen by its conditions; empty where they can, and without
    any."""
    if not conditions_of(schema):
        return ""
    if schema.snapshot_where and not schema.key:
        return "it has no key, by which rows that no snapshot copied are recognized (snapshot_where)"
    if policy.on_unlogged_cascade == "derive":
        return "mutations that are derived from a parent's (on_unlogged_cascade: derive) would pass by it"
    return refusal(schema)


def no_source_column(schema: TableSchema, invalid: InvalidValues) -> str:
    """Return why a table of this shape can't be a shard, whose rows have a source column in the lake; empty where it
    can."""
    distinguishing = {"source_column": schema.shard[1]}
    distinguishing |= {"source_name_column": schema.shard[4]} if len(schema.shard) > 3 else {}
    columns = [*(each.name for each in lake_columns(schema, invalid)), *(each.name for each in schema.kept)]
    columns += [each.name for each in own_columns(schema)]
    for key, column in distinguishing.items():
        if taken := [name for name in columns if name.lower() == column.lower()]:
            return f"its column {taken[0]!r} has the name of the {key} of merge_tables"
    return ""


def _place(shard: tuple[str, ...]) -> str:
    if not shard:
        return "a table by itself"
    of_several = f", which several sources fill in {shard[3]}" if len(shard) > 3 else ""
    return "a part of {} with {} = {!r}".format(*shard[:3]) + of_several


def _column_names(columns: Iterable[Column]) -> str:
    names = [repr(column.name) for column in columns]
    return f"column{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


def _type_of(column: Column) -> str:
    return (column.lake_type or column.declared).upper()


def _shown(schema: TableSchema, name: str) -> str:
    mask = schema.masks.get(name)
    return f"{mask}, by the key {mask.key}" if mask and mask.key else str(mask or "the value")


def _policies_changed(schema: TableSchema, before: InvalidValues | None, now: InvalidValues) -> list[str]:
    """Return a text for each policy on invalid values that gives the table other side columns than before."""
    if before is None:
        return []
    changed = [
        ("invalid_dates", before.dates, now.dates, replace(before, dates=now.dates)),
        ("invalid_text", before.text, now.text, replace(before, text=now.text)),
    ]
    return [
        f"{setting} is {is_now} in the YAML, and its rows were read under {was}"
        for setting, was, is_now, other in changed
        if side_columns(schema.mirrored, before) != side_columns(schema.mirrored, other)
    ]
