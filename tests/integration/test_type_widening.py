"""A table with Delta's type widening, some of whose rows are marked as deleted, is looked at without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from begun_alone import begin_alone
from binlake import pipeline
from binlake.delta import layout, opened_tables
from binlake.report import Report
from binlake_airflow.page import sizes
from feeding import carried, feed, lines
from mirror import Mirror, on_mysql, sync_alone
from no_session import NoSession
from servers import Server


@pytest.fixture
def widened(server: Server, database: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Rows of both types, in two files; one of the first is marked."""
    monkeypatch.setattr(layout, "FEW_BYTES", 0)  # rows are marked, no file is written again
    mirror = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    mirror.options["type_widening"] = True
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, d DECIMAL(5,2))",
        "INSERT INTO t VALUES (1, 1, 1.5), (2, -2147483648, -999.99), (3, NULL, NULL)",
    )
    begin_alone(mirror)
    mirror.execute(
        "ALTER TABLE t MODIFY n BIGINT, MODIFY d DECIMAL(20,4)",
        "INSERT INTO t VALUES (4, 9223372036854775807, 1234567890123456.7891)",
        "DELETE FROM t WHERE id = 1",
    )
    sync_alone(mirror)
    return mirror


@on_mysql
def test_it_is_compared_by_reading(widened: Mirror) -> None:
    verified = pipeline.verify(widened.config, widened.origin, NoSession(), Report(quiet=True))
    assert verified.equal, verified.to_text()
    assert verified.tables[0].lake_rows == 3
    tested = pipeline.self_test(widened.config)
    assert not tested.tables[0].missed, tested.to_text()


@on_mysql
def test_it_is_measured_and_looked_after(widened: Mirror) -> None:
    path = widened.path("t")
    assert layout.deleted_rows(opened_tables.opened(path), path).total() == 1
    size = sizes.measure(path, 1 << 20)
    assert size is not None
    assert (size.files, size.rows) == (2, 3)
    with pytest.raises(pytest.fail.Exception, match=r"Spark was asked for: .* of its data files are put together"):
        pipeline.maintain(widened.config, NoSession(), Report(quiet=True))


@on_mysql
def test_a_feed_begins_with_its_rows(widened: Mirror) -> None:
    made = {"type": "debezium", "topic": "rows", "schema_changes": False, "decimals": "string"}
    carried(widened, feed(widened, begin="lake", format=made))
    sent: list[dict[str, Any]] = [json.loads(line)["after"] for line in lines(widened.folder / "out", "rows")]
    assert sorted((row["id"], row["n"], row["d"]) for row in sent if row["n"]) == [
        (2, -2147483648, "-999.9900"), (4, 9223372036854775807, "1234567890123456.7891"),
    ]  # fmt: skip
    assert len(sent) == 3
