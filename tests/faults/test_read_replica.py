"""Verification on a replica: at the place in the source's log to which the replica has come, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from begun_alone import begin_alone
from binlake import pipeline
from binlake.doctor.server_checks import replica_checks
from binlake.errors import ConnectionFailed, SourceError
from binlake.lake.opened_lake import open_lake
from binlake.phases.verification import VerifyRequest
from binlake.report import Report
from binlake.source import read_replica
from binlake.source.endpoint import Endpoint
from binlake.spark.starting import no_session
from binlake.verify.result import VerifyReport
from mirror import Mirror
from replication import catch_up, replicate
from servers import KINDS, Server

DATABASE = "d"


@pytest.fixture(params=KINDS)
def primary(request: pytest.FixtureRequest, new_server: type[Server]) -> Iterator[Server]:
    with new_server(request.param) as server:
        server.execute(f"CREATE DATABASE {DATABASE}")
        yield server


@pytest.fixture
def replica(primary: Server) -> Iterator[Server]:
    """Follows the primary, and logs nothing of what it executes."""
    name = "log_replica_updates" if primary.kind == "mysql" else "log_slave_updates"
    with Server(primary.kind, server_id=2, **{name: False}) as server:
        replicate(server, primary)
        yield server


def apply_nothing(replica: Server) -> None:
    replica.execute(f"STOP {'REPLICA' if replica.kind == 'mysql' else 'SLAVE'} SQL_THREAD")


def apply_again(replica: Server, primary: Server) -> None:
    replica.execute(f"START {'REPLICA' if replica.kind == 'mysql' else 'SLAVE'} SQL_THREAD")
    catch_up(replica, primary)


def endpoint_of(server: Server) -> Endpoint:
    return Endpoint("127.0.0.1", server.port, "root", "")


def verify(mirror: Mirror, replica: Server) -> VerifyReport:
    return pipeline.verify(
        mirror.config, mirror.origin, no_session, Report(), VerifyRequest(replica=endpoint_of(replica))
    )


def counts(report: VerifyReport) -> list[tuple[bool | None, int | None, int | None]]:
    return [(table.equal, table.source_rows, table.lake_rows) for table in report.tables]


def sync(mirror: Mirror) -> str:
    return pipeline.sync(mirror.config, mirror.origin, no_session, Report()).position


def test_the_lake_is_compared_where_the_replica_stands(
    primary: Server, replica: Server, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = Mirror(primary, DATABASE, lake, None)  # type: ignore[arg-type]
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(30))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    begin_alone(mirror)
    mirror.execute("INSERT INTO t VALUES (3, 'c')", "FLUSH BINARY LOGS", "DELETE FROM t WHERE id = 1")
    catch_up(replica, primary)
    apply_nothing(replica)
    mirror.execute("UPDATE t SET v = 'the replica lacks it' WHERE id = 2")
    assert {check.ok for check in replica_checks(mirror.config, mirror.origin, endpoint_of(replica))} == {True}

    report = verify(mirror, replica)
    assert counts(report) == [(True, 2, 2)]
    lake_rows = open_lake(mirror.config).at().arrow(f"{DATABASE}.t").sort_by("id").to_pylist()
    assert lake_rows == [{"id": 2, "v": "b"}, {"id": 3, "v": "c"}]
    assert sync(mirror) != str(report.position)

    monkeypatch.setattr(read_replica, "PATIENCE", 0.2)
    with pytest.raises(ConnectionFailed, match="hasn't executed what the lake holds"):
        verify(mirror, replica)
    (behind,) = [c for c in replica_checks(mirror.config, mirror.origin, endpoint_of(replica)) if c.ok is not True]
    assert (behind.name, behind.ok) == ("replica's position", "warn")
    apply_again(replica, primary)
    assert counts(verify(mirror, replica)) == [(True, 2, 2)]

    replica.execute("SET sql_log_bin = 0", "INSERT INTO t VALUES (9, 'planted')", database=DATABASE)
    assert counts(verify(mirror, replica)) == [(False, 3, 2)]
    replica.execute("INSERT INTO t VALUES (10, 'written on the replica')", database=DATABASE)
    with pytest.raises(SourceError, match="it has transactions of its own"):
        verify(mirror, replica)
