"""How far behind a lake is, and for how long its server keeps what is read next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from binlake.lease import lease
from binlake.phases.watch import Watched, watch
from binlake.records.record import log_noted
from binlake.records.status import read_status
from binlake.source.retention import RETENTION, headroom_seconds, retention_hours
from binlake.source.server import Source
from binlake.store.rows import LogRow
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.sensors import BinlakeSourceChangedSensor
from mirror import Mirror
from servers import Server


@pytest.fixture
def ten_hours(server: Server) -> Iterator[None]:
    """For that long the log is kept."""
    with server.setting("binlog_expire_logs_seconds", 36_000):
        yield


def test_lag_and_headroom(mirror: Mirror, ten_hours: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(mirror.config, mirror.origin) == Watched(None, None, None, ())
    monkeypatch.setattr(BinlakeHook, "origin", lambda _: mirror.origin)  # Airflow's connections aren't what is tested
    changed = BinlakeSourceChangedSensor(task_id="changed", config_file=str(mirror.write_yaml()))
    assert (changed.mode, changed.poke_interval) == ("reschedule", timedelta(minutes=1).total_seconds())
    assert not changed.poke({})
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    mirror.snapshot()
    mirror.sync()
    with Source.open(mirror.endpoint) as source:
        assert retention_hours(source.variables(RETENTION)) == 10
    watched = watch(mirror.config, mirror.origin)
    assert (watched.lag_seconds, watched.lag_bytes, watched.stopped) == (0, 0, ())
    assert watched.headroom_seconds == 36_000  # the file in use is kept as long as that from when it is closed
    assert not changed.poke({})
    mirror.execute("INSERT INTO t VALUES (1)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (2)")
    seen = log_noted(mirror.metadata)
    assert seen is not None
    LogRow.replace(mirror.metadata, "true", [replace(seen, at_us=0)])
    watched = watch(mirror.config, mirror.origin)
    seen = log_noted(mirror.metadata)
    assert seen is not None
    assert (seen.bytes_ahead, seen.at_us > 0) == (watched.lag_bytes, True), "known without a sync"
    assert watched.lag_bytes
    assert watched.lag_bytes > 100
    assert watched.headroom_seconds is not None
    assert 35_900 < watched.headroom_seconds <= 36_001
    assert changed.poke({})
    quiet_us = read_status(mirror.config).nothing_new_us
    mirror.sync()
    assert read_status(mirror.config).nothing_new_us == quiet_us
    mirror.sync()  # MariaDB may have written that it is done with the former file
    mirror.sync()
    assert (read_status(mirror.config).nothing_new_us or 0) > (quiet_us or 0), "a sync that found nothing is one"
    lag = watch(mirror.config, mirror.origin).lag_seconds  # MariaDB writes to a new file by and by
    assert lag is not None
    assert lag < 30
    recorded_state = lease.read(mirror.metadata).position
    assert recorded_state is not None
    with Source.open(mirror.endpoint) as source:
        assert headroom_seconds(source, replace(recorded_state, file="binlog.000000")) == 0
