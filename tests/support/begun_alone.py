"""Tables that are copied into a lake without Spark, so that quick tests have a lake that follows its server."""

from __future__ import annotations

import uuid

import pyarrow as pa

from binlake.delta import plain_tables
from binlake.delta.delta_log import LakeLog, overtaking
from binlake.delta.delta_schema import DeltaSchema
from binlake.delta.plain_tables import OwnCommit
from binlake.lease import lease
from binlake.planner.steps import Life
from binlake.records import watermarks
from binlake.schema.lake_columns import lake_columns
from binlake.snapshot import jdbc, resultset
from binlake.snapshot.restore_arrow import Restored
from binlake.source.catalog import read_tables
from binlake.source.listed_tables import included_tables
from binlake.source.server import Source
from mirror import Mirror


def begin_alone(mirror: Mirror) -> None:
    """Copy all included tables, which nobody may write meanwhile, and follow the log from here on."""
    mirror.follow_from_here()
    config = mirror.config
    with lease.held(mirror.metadata) as held, Source.open(mirror.endpoint) as source:
        state = held.control().recorded_state
        assert state is not None
        tables = read_tables(source, included_tables(source, config), config.excluding)
        lives = []
        for name, table in tables.items():
            life = Life(uuid.uuid4().hex, name, table.schema, state.position, state.position)
            restored = Restored(table.schema, config.invalid)
            query = jdbc.chunk_query(name, table.schema, None, None)
            answer = resultset.answer(source.connection, query, len(table.schema.mirrored))
            rows = pa.Table.from_batches(map(restored.batch, answer), restored.arrow)
            note = {"binlake": {"life": life.id, "batch": state.batch}}
            own = OwnCommit("WRITE", overtaking(state.batch), note, {"mode": "ErrorIfExists"}, {})
            schema = DeltaSchema.of(lake_columns(table.schema, config.invalid), life.id)
            plain_tables.create(LakeLog.of(config, name, life.id), schema, own, rows)
            lives.append(life)
        watermarks.started(held.metadata, lives, batch=state.batch, versions={life.id: 0 for life in lives})
        held.read_under(config.reading)
