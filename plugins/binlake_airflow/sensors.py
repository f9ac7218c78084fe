"""Sensor that waits for changes of a source."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from binlake.config import load
from binlake_airflow.compat import BaseSensorOperator
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.links import PageLink
from binlake_airflow.submit import airflow_errors
from binlake_airflow.task_log import LogsHarmlessly

if TYPE_CHECKING:
    from binlake_airflow.compat import Context

_LOOK_AGAIN = timedelta(minutes=1)


class BinlakeSourceChangedSensor(LogsHarmlessly, BaseSensorOperator):
    """Wait, without a worker slot, until the source's log continues after the lake's position.

    The log may continue with changes that aren't mirrored; then a sync merges nothing.

    :param config_file: the source's YAML, on every worker at the same path (templated)
    :param beyond_bytes: how many bytes of log there must be after the lake's position
    """

    template_fields: Sequence[str] = ("config_file",)
    operator_extra_links = (PageLink(),)

    def __init__(self, *, config_file: str, beyond_bytes: int = 1, **kwargs: Any) -> None:
        super().__init__(**{"mode": "reschedule", "poke_interval": _LOOK_AGAIN, **kwargs})
        self.config_file = config_file
        self.beyond_bytes = beyond_bytes

    def poke(self, context: Context) -> bool:
        """Return whether the log continues; also true if it lacks the lake's position, which the sync then reports."""
        from binlake.phases.log_looks import look
        from binlake.position import Position
        from binlake.records.status import read_status
        from binlake.source.log import opened

        with airflow_errors():
            config = load(self.config_file)
            position = read_status(config).position
            if position is None:
                self.log.info("no table has a snapshot yet")
                return False
            with opened(BinlakeHook.origin_of(config)) as log:
                ahead = look(config, log, Position.parse(position))
        self.log.info("the log's end is %s, %s bytes beyond the lake", ahead.head, ahead.bytes)
        return ahead.bytes is None or ahead.bytes >= self.beyond_bytes
