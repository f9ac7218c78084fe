"""Masks, row filters, shards and schema changes that wait, of the same tables at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from mirror import Mirror, sync_alone
from planted_secrets import found_in
from servers import Server
from without_spark import verify

SECRET = "zq01-nobody@mail"


@pytest.fixture
def tenants(server: Server, database: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """Two databases with a table ``orders`` each."""
    monkeypatch.setenv("AIRFLOW_CONN_PII_KEY", json.dumps({"password": "a key that nobody knows"}))
    with ExitStack() as stack:
        for number in (1, 2):
            name = f"{database}_{number}"
            server.execute(
                f"CREATE DATABASE {name}",
                f"CREATE TABLE {name}.orders (id INT PRIMARY KEY, email VARCHAR(40), status VARCHAR(9), n INT)",
                f"INSERT INTO {name}.orders VALUES (1, '{SECRET}', 'paid', 10), (2, '{SECRET}', 'draft', 20)",
            )
            stack.callback(server.execute, f"DROP DATABASE {name}")
        mirror = Mirror(server, database, lake, None, include=[f"{database}_*.*"], reader="direct")  # type: ignore[arg-type]
        mirror.options = {
            "columns": [{"columns": f"{database}_*.orders.email", "hash": {"key": "pii_key", "length": 16}}],
            "rows": [{"tables": f"{database}_*.orders", "where": "status <> 'draft'"}],
            "merge_tables": [{"from": f"{database}_%.orders", "into": "all.orders", "source_column": "tenant"}],
            "on_schema_change": [{"tables": "*.*", "add": "ask"}],
            "merge": {"without_spark_mb": 16},
        }
        yield mirror


def rows(mirror: Mirror) -> list[tuple[Any, ...]]:
    table = DeltaTable(f"{mirror.config.root}/all/orders")
    read = pa.table(QueryBuilder().register("t", table).execute("SELECT tenant, id, n, email FROM t").read_all())
    hashes = {row["email"] for row in read.to_pylist()}
    assert all(len(text) == 16 for text in hashes)
    return sorted((row["tenant"], row["id"], row["n"], row["email"]) for row in read.to_pylist())


def test_a_shard_shows_what_all_policies_leave(tenants: Mirror) -> None:
    mirror, first, second = tenants, f"{tenants.database}_1.orders", f"{tenants.database}_2.orders"
    mirror.snapshot()
    (_, _, _, hashed), *_ = shown = rows(mirror)
    assert shown == [("1", 1, 10, hashed), ("2", 1, 10, hashed)], "equal values have equal hashes in both shards"
    mirror.server.execute(
        f"UPDATE {first} SET status = 'paid' WHERE id = 2", f"UPDATE {second} SET status = 'draft' WHERE id = 1",
        f"INSERT INTO {second} VALUES (3, '{SECRET}', 'new', 30), (4, '{SECRET}', 'draft', 40)",
    )  # fmt: skip
    sync_alone(mirror)
    assert rows(mirror) == [("1", 1, 10, hashed), ("1", 2, 20, hashed), ("2", 3, 30, hashed)]
    mirror.server.execute(
        f"ALTER TABLE {first} ADD note VARCHAR(20)", f"UPDATE {first} SET n = 11 WHERE id = 1",
        f"UPDATE {second} SET n = 31 WHERE id = 3",
    )  # fmt: skip
    sync_alone(mirror)
    assert rows(mirror) == [("1", 1, 10, hashed), ("1", 2, 20, hashed), ("2", 3, 31, hashed)], "the first one waits"
    assert verify(mirror, f"{tenants.database}_2.*").equal
    assert not found_in(Path(mirror.folder), [SECRET])
