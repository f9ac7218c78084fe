"""A server that was killed, and may have lost what its log has: the next verification is a whole one."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Literal

import pytest

from binlake import pipeline
from binlake.phases.verification import VerifyRequest
from binlake.records import verified
from binlake.report import Report
from mirror import Mirror
from no_session import NoSession
from servers import Kind, Server


@pytest.mark.parametrize(
    ("kind", "flushed", "after_crash"), [("mariadb", 2, "all"), ("mysql", 2, "as_ever"), ("mariadb", 1, "all")]
)
def test_a_server_that_is_killed(
    kind: Kind, flushed: int, after_crash: Literal["all", "as_ever"], lake: Path, new_server: type[Server]
) -> None:
    with new_server(kind, innodb_flush_log_at_trx_commit=flushed, sync_binlog=1) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
        mirror = Mirror(server, "d", lake, spark=None, reader="direct")  # type: ignore[arg-type]
        mirror.options = {"merge": {"without_spark_mb": 16}, "verify": {"after_crash": after_crash}}
        mirror.snapshot()
        mirror.execute("INSERT INTO t VALUES (2)")
        mirror.sync()
        pipeline.verify(mirror.config, mirror.origin, NoSession(), Report(), VerifyRequest())
        known = verified.read(mirror.metadata).through
        assert known
        server.kill()
        server.start()
        mirror.execute("INSERT INTO t VALUES (3)")
        said = io.StringIO()
        pipeline.sync(mirror.config, mirror.origin, NoSession(), Report(said))
        mirror.assert_equal("t")
        assert ("ends without ROTATE or STOP" in said.getvalue()) == (flushed != 1)
        is_forgotten = flushed != 1 and after_crash == "all"
        assert verified.read(mirror.metadata).through == ({} if is_forgotten else known)
        server.restart()
        mirror.execute("INSERT INTO t VALUES (4)")
        said = io.StringIO()
        pipeline.sync(mirror.config, mirror.origin, NoSession(), Report(said))
        assert "ROTATE" not in said.getvalue(), "it was stopped in order"
