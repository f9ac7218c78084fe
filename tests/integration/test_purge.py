"""Secrets that a lake has from before a column was withheld: once the table was copied again, a purge leaves none of
them, wherever it is killed. Nothing here starts Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from binlake import pipeline
from binlake.errors import UsageError
from binlake.faults import FaultPoint
from binlake.lake.lake_versions import lake_versions, version_at
from binlake.maintain.former_values import former_values
from binlake.maintain.purge import PurgeReport, purge
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.store.metadata import now_us
from binlake.store.rows import DecisionRow, QuarantineRow
from binlake.store.run_rows import RunRow
from binlake_airflow.page import tables
from iceberg_readers import assert_same
from mirror import Mirror, in_the_soak, sync_alone
from object_store import ObjectStore
from planted_secrets import found_in
from without_spark import no_spark, put, repair, rows, verify

if TYPE_CHECKING:
    from servers import Server

POINTS: tuple[FaultPoint, ...] = ("past left", "past removed", "staging purged", "rows purged", "metadata purged")
COLUMNS = (
    "id INT PRIMARY KEY, email VARCHAR(80) DEFAULT 'zq01-in-a-default' COMMENT 'zq02-in-a-comment', phone VARCHAR(30),"
    " born DATE, card BIGINT, token TEXT, kind ENUM('zq03-in-a-member', 'b'), password VARBINARY(60),"
    " plain VARCHAR(40), loud VARCHAR(99) AS (CONCAT(email, 'zq04-in-a-formula')) STORED"
)
NAMES = "id, email, phone, born, card, token, kind, password, plain"
TEXTS = [f"zq0{number}-in-" for number in range(1, 7)]


def row(number: int) -> str:
    """Values of a row whose secrets have its number, from 10 on."""
    return (
        f"{number}, 'zq{number}-email@mail', '555-zq{number}-1234', '1987-06-{number}', 918273645000{number},"
        f" 'zq{number}-is-the-token', 'zq03-in-a-member', 'zq{number}-is-the-password', 'plain {number}'"
    )


def secrets() -> list[Any]:
    found: list[Any] = list(TEXTS)
    for n in range(10, 20):
        found += [f"zq{n}-email", f"555-zq{n}", f"zq{n}-is-the-token", f"zq{n}-is-the-password", f"1987-06-{n}"]
        found += [f"918273645000{n}", int(f"918273645000{n}")]
    return found


SECRETS = secrets()


def where_found(mirror: Mirror, folder: Path) -> set[str]:
    """The kinds of places where secrets are."""
    places = ("_iceberg", "_delta_log", "_staging", "_binlake", mirror.database)
    return {next(place for place in places if f"/{place}/" in hit) for hit in found_in(folder, SECRETS)}


def begun(mirror: Mirror) -> None:
    """Carry secrets through all that keeps some."""
    mirror.options = {"iceberg": {"every": "batch"}, "maintain": {"staging_hours": 24}, "page": {"show_values": True}}
    mirror.execute(
        f"CREATE TABLE people ({COLUMNS})", f"INSERT INTO people ({NAMES}) VALUES ({row(10)}), ({row(11)})",
        "CREATE TABLE pets (id INT PRIMARY KEY, name VARCHAR(20))", "INSERT INTO pets VALUES (1, 'rex')",
    )  # fmt: skip
    copy(mirror)
    for statements in (
        [f"INSERT INTO people ({NAMES}) VALUES ({row(12)}), ({row(13)})", "DELETE FROM people WHERE id = 10"],
        ["ALTER TABLE people ALTER email SET DEFAULT 'zq05-in-a-default', ADD more INT",
         "INSERT INTO pets VALUES (2, 'tom')"],
        ["UPDATE people SET email = 'zq14-email@mail', token = 'zq14-is-the-token' WHERE id = 11"],
    ):  # fmt: skip
        mirror.execute(*statements)
        sync_alone(mirror)
    copy(mirror, "people")  # as the next copy, at the same position
    wrong = [{**each, "email": "zq15-email@mail"} for each in rows(mirror, "people").to_pylist()]
    put(mirror, "people", pa.Table.from_pylist(wrong, rows(mirror, "people").schema))
    assert not verify(mirror).equal
    repair(mirror, keep_values=True)
    assert verify(mirror).equal
    raw = QuarantineRow(
        batch=2, database=mirror.database, table="people", reason="zq06-in-a-reason", raw=b"zq16-email", at_us=now_us()
    )
    QuarantineRow.append(mirror.metadata, [raw, replace(raw, database=None, table=None)])


def copy(mirror: Mirror, *tables: str) -> None:
    asked = [f"{mirror.database}.{table}" for table in tables] or None
    pipeline.bootstrap(mirror.config, mirror.origin, no_spark, Report(quiet=True), tables=asked)


def withhold(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_PII_KEY", json.dumps({"password": "a key that nobody knows"}))
    people = f"{mirror.database}.people"
    mirror.options["columns"] = [
        {"columns": f"{people}.email", "hash": {"key": "pii_key", "length": 32}},
        {"columns": f"{people}.card", "hash": {"key": "pii_key", "length": 32}},
        {"columns": f"{people}.phone", "mask": {"keep_last": 4}}, {"columns": f"{people}.born", "truncate": "year"},
        {"columns": f"{people}.token", "null": True}, {"columns": f"{people}.kind", "null": True},
        {"columns": f"{people}.password", "exclude": True},
    ]  # fmt: skip


def purged(mirror: Mirror) -> PurgeReport:
    reason = Reason("ann", "they asked for it")
    return purge(mirror.config, Report(quiet=True), [f"{mirror.database}.people"], reason, patience=0)


def carried_through(mirror: Mirror, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(mirror)
    assert where_found(mirror, folder) == {"_iceberg", "_delta_log", "_staging", "_binlake", mirror.database}
    withhold(mirror, monkeypatch)
    with pytest.raises(UsageError, match="it wasn't copied under the settings of the YAML yet"):
        purged(mirror)
    assert former_values(mirror.config, mirror.metadata) == []
    sync_alone(mirror)  # it is copied again
    (former,) = former_values(mirror.config, mirror.metadata)
    assert (former.table, former.obstacles) == (f"{mirror.database}.people", ())
    assert former.command == f"binlake purge --config FILE --tables {mirror.database}.people"
    answer = tables.table(mirror.config, former.table)
    assert answer
    assert answer["former"]["command"] == former.command
    mirror.execute(f"INSERT INTO people ({NAMES}) VALUES ({row(17)})", "DELETE FROM people WHERE id = 12")
    sync_alone(mirror)
    assert where_found(mirror, folder) == {"_iceberg", "_delta_log", "_staging", "_binlake", mirror.database}
    for point in POINTS:
        with mirror.cut_off_at(point):
            purged(mirror)
    assert [table.table for table in purged(mirror).purged] == [f"{mirror.database}.people"]
    assert not found_in(folder, SECRETS), "\n".join(found_in(folder, SECRETS))


@pytest.mark.parametrize("server", ["mariadb", *in_the_soak("mysql")], indirect=True)
def test_a_purge_leaves_nothing_of_what_is_withheld_by_now(
    server: Server, database: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = Mirror(server, database, lake, None, reader="direct")  # type: ignore[arg-type]
    carried_through(mirror, lake, monkeypatch)
    assert_same(mirror.path("people"))
    assert verify(mirror).equal
    newest = lake_versions(mirror.metadata)[-1]
    assert newest.readable
    assert newest.tables[f"{database}.people"] == DeltaTable(mirror.path("people")).version()
    with pytest.raises(UsageError, match=rf"{database}.people was purged .* by ann") as refused:
        version_at(lake_versions(mirror.metadata), batch=2).refuse_unreadable(lake_versions(mirror.metadata))
    assert f"take batch {newest.batch}, which is the nearest" in refused.value.remedy
    assert {row.who for row in DecisionRow.read(mirror.metadata) if row.action == "purge"} == {"ann"}
    assert len(RunRow.read(mirror.metadata, where="kind = 'purge'")) == 1
    version = DeltaTable(mirror.path("people")).version()
    assert purged(mirror).purged == ()
    assert DeltaTable(mirror.path("people")).version() == version
    mirror.execute("UPDATE people SET plain = 'other' WHERE id = 11", "INSERT INTO pets VALUES (3, 'ada')")
    sync_alone(mirror)
    assert verify(mirror).equal
    assert_same(mirror.path("people"))
    assert found_in(lake, SECRETS) == []
    assert former_values(mirror.config, mirror.metadata) == []
    pipeline.maintain(mirror.config, no_spark, Report(quiet=True))
    assert verify(mirror).equal


@pytest.mark.soak
@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_a_purge_leaves_nothing_in_an_object_store(
    server: Server, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ObjectStore(tmp_path / "s3") as store:
        for key, value in store.environment.items():
            monkeypatch.setenv(key, value)
        lake = tmp_path / "yaml"
        lake.mkdir()
        mirror = Mirror(server, database, lake, None, url="s3://lake/mirrors", reader="direct")  # type: ignore[arg-type]
        carried_through(mirror, store.folder / "lake", monkeypatch)
        assert verify(mirror).equal
