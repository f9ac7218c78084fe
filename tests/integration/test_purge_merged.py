"""Secrets of shards from before their columns were withheld: a purge of one shard leaves none of it in the table that
shows it, and a purge of that table none of any. Nothing here starts Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from binlake import pipeline
from binlake.delta import layout
from binlake.errors import LakeError, UsageError
from binlake.faults import FaultPoint
from binlake.lake.lake_versions import lake_versions, version_at
from binlake.maintain import purge_look
from binlake.maintain.former_values import former_values
from binlake.maintain.purge import PurgeReport, purge
from binlake.records.decisions import Reason
from binlake.records.status import read_status
from binlake.report import Report
from binlake.store.rows import ReadableRow
from iceberg_readers import assert_same
from mirror import Mirror, in_the_soak, sync_alone
from planted_secrets import COLUMNS, NAMES, SECRETS, found_in, row, secrets_of, withheld
from without_spark import no_spark, verify

if TYPE_CHECKING:
    from servers import Server

POINTS: tuple[tuple[FaultPoint, int], ...] = (
    ("table composed", 0), ("past left", 1), ("past removed", 0), ("past removed", 1),
)  # fmt: skip
"""Points of a purge of one shard, and how often each passes before: the shard is first, the merged table second. Other
points are those of any table."""
OF_SHARDS = {1: range(10, 15), 2: range(15, 20)}
"""The numbers of the secrets of each shard."""


class Company:
    """Two databases of a server, whose tables ``people`` are one table of the lake. Its column n has two types, so that
    data files of one shard are written again for it."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror, self.stem = mirror, f"{mirror.database}_s"
        mirror.include = [f"{self.stem}*.*"]
        mirror.options = {
            "merge_tables": [{"from": f"{self.stem}%.people", "into": "all.people", "source_column": "tenant"}],
            "iceberg": {"every": "batch"}, "maintain": {"staging_hours": 24}, "page": {"show_values": True},
        }  # fmt: skip
        self.path = f"{mirror.config.root}/all/people"

    def execute(self, tenant: int, *statements: str) -> None:
        self.mirror.server.execute(*statements, database=f"{self.stem}{tenant}")

    def begin(self) -> None:
        """Carry secrets through all that keeps some."""
        for tenant, kind in ((1, "INT"), (2, "BIGINT")):
            first, second, third, fourth, fifth = OF_SHARDS[tenant]
            self.execute(
                tenant,
                f"CREATE TABLE people ({COLUMNS}, n {kind})",
                f"INSERT INTO people ({NAMES}, n) VALUES ({row(first)}, 1), ({row(second)}, 2), ({row(third)}, 3)",
            )
        self.execute(1, "CREATE TABLE pets (id INT PRIMARY KEY)")
        self.copy()
        for tenant, numbers in OF_SHARDS.items():
            first, second, third, fourth, fifth = numbers
            self.execute(
                tenant, f"INSERT INTO people ({NAMES}, n) VALUES ({row(fourth)}, 4)",
                f"UPDATE people SET email = 'zq{fifth}-email@mail' WHERE id = {second}",
                f"DELETE FROM people WHERE id = {first}",
                "ALTER TABLE people ALTER email SET DEFAULT 'zq05-in-a-default'",
            )  # fmt: skip
        with mock.patch.object(layout, "FEW_BYTES", 0):  # rows are marked
            sync_alone(self.mirror)

    def copy(self) -> None:
        pipeline.bootstrap(self.mirror.config, self.mirror.origin, no_spark, Report(quiet=True))

    def purge(self, table: str) -> PurgeReport:
        reason = Reason("ann", "they asked for it")
        return purge(self.mirror.config, Report(quiet=True), [table], reason, patience=0)

    def rows(self) -> list[dict[str, Any]]:
        read = QueryBuilder().register("t", DeltaTable(self.path)).execute("SELECT * FROM t").read_all()
        rows: list[dict[str, Any]] = pa.table(read).to_pylist()
        return sorted(rows, key=lambda each: each["id"])

    def hits(self, *numbers: int) -> list[str]:
        return found_in(self.mirror.folder, secrets_of(*numbers))


@pytest.fixture
def company(server: Server, database: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Company]:
    monkeypatch.setenv("AIRFLOW_CONN_PII_KEY", json.dumps({"password": "a key that nobody knows"}))
    made = Company(Mirror(server, database, lake, None, reader="direct"))  # type: ignore[arg-type]
    databases = [f"{made.stem}{tenant}" for tenant in OF_SHARDS]
    server.execute(*(f"CREATE DATABASE {name}" for name in databases))
    yield made
    server.execute(*(f"DROP DATABASE {name}" for name in databases))


def places(company: Company, hits: Sequence[str]) -> set[str]:
    """The folders of the merged table in which secrets are."""
    inside = [hit.removeprefix(f"{company.path}/") for hit in hits if hit.startswith(f"{company.path}/")]
    return {name.partition("/")[0] for name in inside}


@pytest.mark.parametrize("server", ["mariadb", *in_the_soak("mysql")], indirect=True)
def test_a_purge_of_a_shard_and_of_the_table_that_shows_it(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror, shard = company.mirror, f"{company.stem}1.people"
    company.begin()
    mirror.options["columns"] = withheld(f"{company.stem}*.people")
    for table in (shard, "all.people"):
        with pytest.raises(UsageError, match="it wasn't copied under the settings of the YAML yet"):
            company.purge(table)
    sync_alone(mirror)  # both are copied again
    assert [each.table for each in former_values(mirror.config, mirror.metadata)] == [shard, shard.replace("1.", "2.")]
    assert places(company, company.hits(*OF_SHARDS[1])) == {"tenant=1", "_converted", "_delta_log", "_iceberg"}
    known = company.rows()

    with monkeypatch.context() as lagging:
        lagging.setattr("binlake.maintain.purge._refuse_shown_as_before", mock.Mock(side_effect=LakeError("late")))
        with pytest.raises(LakeError, match="late"):
            purge(mirror.config, Report(quiet=True), [shard, "*.pets"], Reason("ann", ""), patience=0)
    assert ReadableRow.read(mirror.metadata) == []
    (looked,) = purge_look.look(mirror.config, mirror.metadata, [shard])
    assert any(kept.count and kept.what.endswith("of all.people, with bounds") for kept in looked.kept)
    for point, after in POINTS:
        with mirror.cut_off_at(point, after):
            company.purge(shard)
        assert company.rows() == known, point
    assert [each.table for each in company.purge(shard).purged] == [shard, "all.people"]
    assert company.hits(*OF_SHARDS[1]) == []
    assert places(company, company.hits(*OF_SHARDS[2])) == {"tenant=2"}
    assert company.rows() == known
    assert_readable(company)

    company.execute(1, "UPDATE people SET plain = 'other'")
    company.execute(2, f"INSERT INTO people ({NAMES}, n) VALUES ({row(20)}, 5)")
    sync_alone(mirror)
    assert verify(mirror).equal
    assert [each.table for each in company.purge("all.people").purged] == [shard.replace("1.", "2."), "all.people"]
    assert found_in(Path(mirror.folder), SECRETS) == []
    assert former_values(mirror.config, mirror.metadata) == []
    assert company.purge("all.people").purged == ()
    assert_readable(company)
    pipeline.maintain(mirror.config, no_spark, Report(quiet=True))
    company.execute(2, "DELETE FROM people WHERE id = 20")
    sync_alone(mirror)
    assert verify(mirror).equal
    assert len(company.rows()) == len(known)
    assert_same(company.path)


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_what_is_withheld_is_not_shown_while_the_types_of_shards_differ(company: Company) -> None:
    mirror, shard = company.mirror, f"{company.stem}1.people"
    company.begin()
    company.execute(1, "ALTER TABLE people MODIFY n VARCHAR(20)")
    sync_alone(mirror)
    assert {row["tenant"] for row in company.rows()} == {"1", "2"}, "it is shown as it was"
    with pytest.raises(UsageError, match=r"all\.people doesn't show it as it is"):
        company.purge(shard)
    assert ReadableRow.read(mirror.metadata) == []
    mirror.options["columns"] = withheld(f"{company.stem}*.people")
    sync_alone(mirror)
    sync_alone(mirror)
    shown = repr(company.rows())
    assert not [secret for secret in secrets_of(*range(10, 20)) if str(secret) in shown]
    (problem,) = read_status(mirror.config, mirror.metadata).beside
    assert "what was shown of it is withheld by now" in problem.problem
    company.purge("all.people")
    assert company.hits(*range(10, 20)) == []
    company.execute(2, "ALTER TABLE people MODIFY n VARCHAR(20)")
    sync_alone(mirror)
    sync_alone(mirror)
    assert {row["tenant"] for row in company.rows()} == {"1", "2"}
    assert read_status(mirror.config, mirror.metadata).beside == ()
    assert verify(mirror).equal


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_the_folders_from_before_merge_tables_changed_are_named(company: Company) -> None:
    mirror, shard = company.mirror, f"{company.stem}1.people"
    company.begin()
    mirror.options["columns"] = withheld(f"{company.stem}*.people")
    merged = mirror.options.pop("merge_tables")
    sync_alone(mirror)
    first = former_values(mirror.config, mirror.metadata)[0]
    assert (first.table, [obstacle.why for obstacle in first.obstacles]) == (
        shard, [f"{company.path} is there, where it was before merge_tables changed"],
    )  # fmt: skip
    with pytest.raises(UsageError, match="where it was before merge_tables changed"):
        company.purge(shard)
    shutil.rmtree(company.path)
    company.purge(f"{company.stem}*.people")
    assert company.hits(*range(10, 20)) == []
    mirror.options["merge_tables"] = merged
    sync_alone(mirror)
    with pytest.raises(UsageError, match=rf"{company.stem}1/people is there, where it was before merge_tables"):
        company.purge(shard)


def assert_readable(company: Company) -> None:
    """The newest version of the lake has the table's newest, and says of others who purged it."""
    versions = lake_versions(company.mirror.metadata)
    assert versions[-1].readable
    assert versions[-1].tables["all.people"] == DeltaTable(company.path).version()
    with pytest.raises(UsageError, match=r"all\.people was purged .* by ann"):
        version_at(versions, batch=0).refuse_unreadable(versions)
    assert_same(company.path)
