"""Tables that a snapshot refuses, each with its error."""

from __future__ import annotations

from binlake.config import PipelineConfig
from binlake.errors import TAKEN_REMEDY, ServerSettingError, TableError
from binlake.planner.rules import ROWS_REMEDY, Rules
from binlake.planner.steps import Standstill
from binlake.schema.cascades import CASCADE_REMEDY, cascading
from binlake.schema.engines import ENGINE_REMEDY
from binlake.schema.table import TableName
from binlake.schema.virtual import UNLOGGED_COLUMN_REMEDY, generated_columns
from binlake.source.catalog import read_tables
from binlake.source.collations import no_condition
from binlake.source.gaps import log_gaps
from binlake.source.server import Source
from binlake.source.unlogged_cascades import unlogged_cascades
from binlake.source.unlogged_engines import refused_engines


def refused_tables(config: PipelineConfig, source: Source, names: list[TableName]) -> dict[TableName, TableError]:
    """Return an error for each table that can't be followed as the YAML asks. Raises ServerSettingError."""
    return (
        refused_for_names(config, names)
        | refused_for_modes(config, source, names)
        | refused_for_gaps(source, names)
        | refused_for_engines(source, names)
        | refused_for_cascades(config, source, names)
        | refused_for_unnamed_columns(config, source, names)
    )


def refused_for_cascades(config: PipelineConfig, source: Source, names: list[TableName]) -> dict[TableName, TableError]:
    """Return errors for tables whose rows foreign keys change without the log, if the policy can't make up for it."""
    all_rows = Rules.of(config).has_all_rows
    return {
        cascade.child: TableError(f"{cascade.child}: {cascading(cascade)}", remedy=CASCADE_REMEDY)
        for cascade in unlogged_cascades(source, [name.database for name in names]) or ()
        if cascade.child in names
        and (config.policies.of(cascade.child).on_unlogged_cascade == "stop" or not all_rows(cascade.parent))
    }


def refused_for_unnamed_columns(
    config: PipelineConfig, source: Source, names: list[TableName]
) -> dict[TableName, TableError]:
    """Return errors for tables with columns that the log doesn't contain, if the policy is to stop such tables."""
    strict = [name for name in names if config.policies.of(name).on_untold_column == "stop"]
    schemas = read_tables(source, strict, config.excluding) if strict else {}
    return {
        name: TableError(
            f"{name}: {'; '.join(generated_columns(table.schema).left_out.values())}", remedy=UNLOGGED_COLUMN_REMEDY
        )
        for name, table in schemas.items()
        if table.schema.untold
    }


def refused_for_names(config: PipelineConfig, names: list[TableName]) -> dict[TableName, TableError]:
    """Return errors for tables whose place in the lake is that of a table beside a mirror."""
    return {name: TableError(f"{name}: {why}", remedy=TAKEN_REMEDY) for name in names if (why := config.taken_by(name))}


def refused_for_modes(config: PipelineConfig, source: Source, names: list[TableName]) -> dict[TableName, TableError]:
    """Return errors for tables that can't have a mode that the YAML asks for."""
    wanted = [
        name
        for name in names
        if config.history(name)
        or config.mirror_modes(name).tell_of_rows
        or config.row_condition(name)
        or config.snapshot_condition(name)
    ]
    schemas = read_tables(source, wanted, config.excluding) if wanted else {}
    rules = Rules.of(config)
    refused = {name: rules.refused_mode(name, table.schema) for name, table in schemas.items()}
    for name, table in schemas.items():
        if refused[name] is None and (why := no_condition(source, name, table.schema)):
            refused[name] = Standstill(f"its row filter can't be worked out: {why}", ROWS_REMEDY)
    return {
        name: TableError(f"{name}: {standstill.reason}", remedy=standstill.remedy)
        for name, standstill in refused.items()
        if standstill
    }


def refused_for_engines(source: Source, names: list[TableName]) -> dict[TableName, TableError]:
    """Return errors for tables whose engine changes rows without logging them."""
    refused = refused_engines(source)
    return {name: TableError(f"{name}: {refused[name]}", remedy=ENGINE_REMEDY) for name in names if name in refused}


def refused_for_gaps(source: Source, names: list[TableName]) -> dict[TableName, TableError]:
    """Return errors for tables of databases that the server doesn't log. Raises ServerSettingError if it may be any."""
    refused: dict[TableName, TableError] = {}
    for gap in log_gaps(source, {name.database for name in names}):
        if not gap.is_certain:
            continue
        if gap.databases is None:
            raise ServerSettingError(gap.reason, remedy=gap.remedy)
        for name in names:
            if name.database in gap.databases:
                refused[name] = TableError(f"{name}: {gap.reason}", remedy=gap.remedy)
    return refused
