"""What the YAML says of tables, and what becomes of a life whose rows were read under other settings than it has now.

Only what changes a table's rows or columns in the lake counts: whether the table is read at all, which of its columns,
and what becomes of invalid values. Patterns that are written another way and choose the same are no change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from binlake.batch.steps import Life, Standstill
from binlake.config import PipelineConfig, Policy
from binlake.errors import SNAPSHOTTED_BY_ITSELF, catch_up_again, snapshot_again
from binlake.schema.invalid import FAIL, InvalidValues
from binlake.schema.lake_columns import side_columns
from binlake.schema.table import Column, TableName, TableSchema
from binlake.schema.virtual import UNTOLD_REMEDY, judged

LEFT_OUT = Standstill(
    "tables.include and tables.exclude in the YAML leave it out: the lake keeps it as it was then",
    "nothing, unless it is to be mirrored: then include it, and it is brought up to date",
)


@dataclass(frozen=True)
class Rules:
    """What the YAML says of tables.

    included: it is mirrored. ghost: it is a copy that an online schema change tool fills for one that is. excluding:
    adds to a shape which columns aren't mirrored; may raise ConfigurationError. can_snapshot: whether there is a
    server to ask for a new snapshot. goes_when_dropped: its folder is removed once the batch is recorded. invalid:
    which invalid values the lake keeps.
    """

    included: Callable[[TableName], bool]
    ghost: Callable[[TableName], bool] = lambda name: False
    excluding: Callable[[TableName, TableSchema], TableSchema] = lambda name, schema: schema
    policy: Callable[[TableName], Policy] = lambda name: Policy()
    can_snapshot: bool = True
    goes_when_dropped: Callable[[TableName], bool] = lambda name: False
    invalid: InvalidValues = FAIL

    @classmethod
    def of(cls, config: PipelineConfig) -> Rules:
        return cls(
            config.included,
            config.ghost,
            config.excluding,
            config.policies.of,
            can_snapshot=not config.source.is_files,
            goes_when_dropped=config.goes_when_dropped,
            invalid=config.invalid,
        )

    def followed(self, name: TableName) -> bool:
        return self.included(name) or self.ghost(name)

    def refused_for_untold(self, name: TableName, schema: TableSchema) -> str:
        """Why a table isn't mirrored that has columns which the log doesn't tell; empty where it is."""
        refused = schema.untold and self.policy(name).on_untold_column == "stop"
        return f"{'; '.join(judged(schema).untold.values())} (on_untold_column: stop)" if refused else ""

    def unfollowable(self, life: Life, standstill: Standstill, remedy: str = "") -> Life:
        """A life whose rows the log alone can't tell: it waits for a new snapshot, where the policy says so and there
        is a server to take it from; else it stops.

        remedy: of one that stops, where there is another than a snapshot.
        """
        wanted = self.policy(life.name).on_unfollowable == "resnapshot"
        if wanted and self.can_snapshot and self.included(life.name):
            return replace(life, status="resnapshot", standstill=replace(standstill, remedy=SNAPSHOTTED_BY_ITSELF))
        stopped = replace(standstill, remedy=remedy or snapshot_again(life.name))
        return replace(life, status="stopped", standstill=stopped)

    def under(self, life: Life) -> Life:
        """The life as it stands under these rules; itself where they read it as it was read.

        Its shape tells which columns are read now; that of a life that waits or stopped, which it was read under.
        Raises ConfigurationError for an excluded column of its key.
        """
        if not self.followed(life.name):
            leaves = life.status in ("following", "stopped", "resnapshot")
            return replace(life, status="excluded", standstill=LEFT_OUT) if leaves else life
        if life.status == "excluded":
            why = "the YAML left it out for a while, and what changed meanwhile wasn't read"
            return self.unfollowable(life, Standstill(why), catch_up_again(life.name))
        if life.status != "following":
            return life
        if why := self.refused_for_untold(life.name, life.schema):
            return replace(life, status="stopped", standstill=Standstill(why, UNTOLD_REMEDY))
        now = self.excluding(life.name, life.schema)
        if why := self._differs(life.schema, now):
            return self.unfollowable(life, Standstill(why))
        # A column that the lake goes without anyway may be excluded, too.
        same = now.excluded == life.schema.excluded or now.logged == life.schema.logged
        return life if same else replace(life, schema=now)

    def reads_otherwise(self, name: TableName, schema: TableSchema) -> str:
        """What the YAML changed about a table since its rows were read under ``schema``; empty where nothing that
        changes what the lake has of it. Raises ConfigurationError."""
        return self._differs(schema, self.excluding(name, schema))

    def _differs(self, schema: TableSchema, now: TableSchema) -> str:
        """See ``reads_otherwise``; now: the shape under these rules."""
        if now.excluded == schema.excluded and schema.invalid in (None, self.invalid):
            return ""  # of thousands of tables nearly all
        before, after = schema.logged, now.logged
        gone = _names(column for column in schema.mirrored if column not in after)
        back = _names(column for column in now.mirrored if column not in before)
        said = [f"tables.exclude_columns leaves out {gone}, which the lake still has"] if gone else []
        said += [f"tables.exclude_columns no longer leaves out {back}: older values weren't read"] if back else []
        return "; ".join([*said, *_policies_changed(now, schema.invalid, self.invalid)])


def _names(columns: Iterable[Column]) -> str:
    found = [repr(column.name) for column in columns]
    return f"column{'s' if len(found) > 1 else ''} {', '.join(found)}" if found else ""


def _policies_changed(schema: TableSchema, before: InvalidValues | None, now: InvalidValues) -> list[str]:
    """Policies on invalid values that give a table's columns others beside them than they did."""
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
