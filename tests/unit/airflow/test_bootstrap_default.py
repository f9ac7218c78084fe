"""A bootstrap DAG that is triggered without parameters copies what isn't followed yet, and nothing else."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from binlake import config
from binlake.config import PipelineConfig
from binlake.phases import bootstrap
from binlake.schema.table import TableName
from binlake.source.server import Source
from binlake.store.metadata import metadata_of, now_us
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.operators import BinlakeSnapshotOperator
from binlake_airflow.submit import BinlakeSparkOperator
from past import Past

YAML = """
source: {name: shop, connection: shop_mysql, server_id: 4001}
tables: {include: ["shop.*"]}
lake: {path: ./lake}
"""
CONTEXT: Any = {"dag_run": SimpleNamespace(dag_id="d", run_id="r", run_type="manual")}
NEW = TableName("shop", "new")


class Server:
    """A source whose tables are those of the lake, and others that a test adds."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = file
        self.config: PipelineConfig = config.load(file)
        self.tables = list(Past(self.config, now_us()).write().names)
        self.submitted: list[tuple[str, ...]] = []

        def submit(_: object, __: object, *arguments: str, **___: object) -> list[object]:
            self.submitted.append(arguments)
            return []

        monkeypatch.setattr(BinlakeSparkOperator, "submit", submit)
        monkeypatch.setattr(BinlakeHook, "origin_of", lambda _: object())
        monkeypatch.setattr(Source, "open", lambda _: nullcontext(object()))
        monkeypatch.setattr(bootstrap, "included_tables", lambda *_: self.tables)
        monkeypatch.setattr(bootstrap, "list_tables", lambda _: [])

    def copied(self, **asked: Any) -> Any:
        """What a task returns that is asked for these tables."""
        operator = BinlakeSnapshotOperator(task_id="snapshot", config_file=str(self.file), **asked)
        return operator.execute(CONTEXT)

    def names(self, *asked: Any) -> list[TableName]:
        """The tables that the engine copies."""
        return bootstrap.names_to_snapshot(self.config, object(), metadata_of(self.config), *asked)  # type: ignore[arg-type]  # the server isn't asked


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    file = tmp_path / "shop.yaml"
    file.write_text(YAML)
    return Server(file, monkeypatch)


@pytest.mark.parametrize("tables", [None, []])
def test_where_all_tables_are_followed_nothing_is_copied(server: Server, tables: Any) -> None:
    assert server.copied(tables=tables)["tables"] == 0
    assert server.submitted == []


def test_a_table_that_is_not_followed_yet_is_copied_alone(server: Server) -> None:
    server.tables.append(NEW)
    server.copied()
    ((*_, only_new),) = server.submitted
    assert only_new == "--new"
    assert server.names(None, "new") == [NEW]


def test_the_job_copies_nothing_that_another_run_copied_since_it_was_asked(server: Server) -> None:
    assert server.names(None, "new") == []


def test_all_tables_are_copied_again_where_a_parameter_asks_for_it(server: Server) -> None:
    server.copied(tables=["*.*"])
    ((*_, option, pattern),) = server.submitted
    assert (option, pattern) == ("--tables", "*.*")
    assert server.names(["*.*"]) == server.tables


def test_the_command_copies_all_again_where_all_are_followed(server: Server) -> None:
    assert server.names(None) == server.tables
    server.tables.append(NEW)
    assert server.names(None) == [NEW]
