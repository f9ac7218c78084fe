"""The DDL history that a batch writes, with the server's shapes of tables."""

from __future__ import annotations

from contextlib import suppress

from binlake.ddl import statements
from binlake.errors import ConfigurationError, SchemaMismatch, UnfollowedStatement
from binlake.planner.noted_statements import WAITS, NotedStatement
from binlake.planner.shape_changes import PlacedStatement
from binlake.planner.steps import TableSteps
from binlake.planner.walk import BatchInputs, Walk
from binlake.schema.lake_forms import server_shape
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import dumps


class BatchHistory:
    """The rows of the DDL history that the statements of a batch leave in its walk. server_shapes: see BatchInputs."""

    def __init__(self, batch: int, walk: Walk, inputs: BatchInputs) -> None:
        self._batch = batch
        self._walk = walk
        self._rules = inputs.rules
        self._flavour = inputs.range.stop.flavour
        self.server_shapes = dict(inputs.server_shapes)

    def server_shape(self, table: TableSteps | None) -> TableSchema | None:
        """Return the table's shape at the server; None if it isn't known."""
        if table is None or table.life.status == "following":
            return table.life.schema if table else None
        return self.server_shapes.get(table.life.id, table.life.schema)

    def shape_after(
        self, here: PlacedStatement, table: TableSteps | None, change: statements.Change, before: TableSchema | None
    ) -> TableSchema | None:
        """Return the server's shape after a statement that the lake's table doesn't follow; None if it isn't known."""
        if table is None:
            return None
        after = None
        if before is not None and isinstance(change, statements.AlterTable):
            with suppress(UnfollowedStatement, SchemaMismatch, ConfigurationError):
                evolved = statements.evolve(server_shape(before.unmasked), change, flavour=self._flavour).after
                after = self._rules.excluding(table.life.name, here.as_logged(evolved))
        elif (
            isinstance(change, statements.TruncateTable | statements.NoShapeChange | statements.RowsChanged)
            or here.parsed.kind == "DML"
        ):
            after = before
        self.server_shapes[table.life.id] = after
        return after

    def note(
        self,
        here: PlacedStatement,
        name: TableName,
        table: TableSteps | None,
        action: str,
        reason: str,
        shapes: tuple[TableSchema | None, TableSchema | None] = (None, None),
    ) -> None:
        """Add a row. action: what became of the table, see planner/walk.py. shapes: the server's before and after the
        statement."""
        rules, (before, after) = self._rules, shapes
        excluded = rules.excluding(name, TableSchema(())).excluded.union(
            rules.withheld(name), *(shape.excluded.union(server_shape(shape).masks) for shape in shapes if shape)
        )
        life = table.life.id if table else None
        held = self._walk.held.get(life) if life and action == WAITS else None
        statement = here.statement
        row = NotedStatement(
            batch=self._batch,
            file=statement.file,
            offset=statement.offset,
            position=str(here.position),
            gtid=statement.gtid,
            committed_us=statement.committed_us,
            database=name.database,
            default_database=statement.database,
            sql_mode=statement.sql_mode,
            statement=here.logged_text(excluded, self._flavour),
            kind=here.parsed.kind,
            table=name.table,
            table_id=life,
            action=action,
            reason=reason or None,
            before=dumps(before) if before else None,
            after=dumps(after) if after else None,
            held=dumps(held) if held else None,
        )
        self._walk.history.append(row)
