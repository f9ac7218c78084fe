"""Every type at every odd value, on every path: the server's own value is the snapshot's, the binlog's and Delta's.

The matrix is the registry's: each entry times its samples (odd_values.py) times insert, old and new image of an update,
and delete. One table a server holds them all, so that one snapshot and one sync bring everything; what the server held
at each moment was read by plain SELECTs that share nothing with the engine (comparison.py).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

import comparison
from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.schema import datatypes
from binlake.schema.invalid import KEEP_DATES
from binlog_slices import State, Values, by_column, image, read_all, transports, written
from mirror import Mirror
from odd_values import SAMPLES, SampleTable
from servers import Kind, Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE, TABLE = "fidelity", "samples"
BLOCK = 1000
"""Keys between two copies of the samples: what is done to a row depends on its block."""
KEPT, UPDATED, DELETED, INSERTED, INSERTED_UPDATED, INSERTED_DELETED = range(6)


@dataclass(frozen=True)
class Journey:
    """What the samples were on the server at four moments, and what each path made of them.

    images: by path of the binlog, by (op, side).
    """

    table: SampleTable
    kinds: dict[str, str]
    copied: State
    inserted: State
    updated: State
    final: State
    snapshot: State
    delta: State
    images: dict[str, dict[tuple[int, str], State]]
    verified: str


def travel(server: Server, mirror: Mirror) -> Journey:
    table = SampleTable.of(server.kind, TABLE, invalid_dates=True)
    names = ", ".join(table.columns)

    def state() -> State:
        return by_column(*comparison.read_server(server, DATABASE, TABLE))

    def copy(*blocks: int) -> list[str]:
        return [f"INSERT INTO {TABLE} SELECT id + {block * BLOCK}, {names} FROM {TABLE} WHERE id < {BLOCK}"
                for block in blocks]  # fmt: skip

    def blocks(*wanted: int) -> str:
        return f"{TABLE}.id DIV {BLOCK} IN ({', '.join(map(str, wanted))})"

    server.execute(f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}")
    table.create(server, DATABASE)
    lenient = "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
    server.execute(lenient, *copy(UPDATED, DELETED), database=DATABASE)
    columns, _ = comparison.read_server(server, DATABASE, TABLE)
    copied = state()
    mirror.snapshot()
    snapshot = by_column(columns, comparison.read_lake(mirror.path(TABLE), columns))
    with written(server) as made:
        server.execute(lenient, *copy(INSERTED, INSERTED_UPDATED, INSERTED_DELETED), database=DATABASE)
        inserted = state()
        server.execute(
            lenient,
            f"CREATE TEMPORARY TABLE following SELECT * FROM {TABLE} WHERE id < {BLOCK}",
            f"UPDATE {TABLE} JOIN following ON following.id = ({TABLE}.id % {BLOCK} + 1) % {table.rows} "
            f"SET {', '.join(f'{TABLE}.{name} = following.{name}' for name in table.columns)} "
            f"WHERE {blocks(UPDATED, INSERTED_UPDATED)}",
            database=DATABASE,
        )
        updated = state()
        server.execute(f"DELETE FROM {TABLE} WHERE {blocks(DELETED, INSERTED_DELETED)}", database=DATABASE)
        final = state()
    mirror.sync()
    images = {}
    for path, transport in transports(server).items():
        emitted = read_all(transport, made.part, DATABASE, invalid=KEEP_DATES)
        sides = ((INSERT, "after"), (UPDATE, "before"), (UPDATE, "after"), (DELETE, "before"))
        images[path] = {(op, side): image(columns, emitted, op, side) for op, side in sides}
    delta = by_column(columns, comparison.read_lake(mirror.path(TABLE), columns))
    report = mirror.verify()
    return Journey(
        table,
        {column.name: column.type for column in columns},
        copied,
        inserted,
        updated,
        final,
        snapshot,
        delta,
        images,
        "" if report.equal else report.to_text(),
    )


@pytest.fixture(scope="module")
def journeys() -> dict[str, Journey]:
    return {}


@pytest.fixture
def journey(
    server: Server,
    spark: SparkSession,
    journeys: dict[str, Journey],
    tmp_path_factory: pytest.TempPathFactory,
) -> Journey:
    """Made once a server."""
    if server.kind not in journeys:
        lake: Path = tmp_path_factory.mktemp(f"fidelity-{server.kind}")
        mirror = Mirror(server, DATABASE, lake, spark, options={"invalid_dates": "keep_text"})
        journeys[server.kind] = travel(server, mirror)
        server.execute(f"DROP DATABASE {DATABASE}")
    return journeys[server.kind]


def some(state: State, column: str, *blocks: int) -> Values:
    return {key: value for key, value in state[column].items() if key // BLOCK in blocks}


def test_the_registry_and_the_samples_name_the_same_types() -> None:
    assert {sample.type for sample in SAMPLES} == set(datatypes.REGISTRY)
    for sample in SAMPLES:
        assert len(set(sample.literals)) > 1, f"{sample.declared} has no second value to be updated to"


def test_each_sample_is_of_the_type_it_stands_for(journey: Journey) -> None:
    for name, sample in zip(journey.table.columns, journey.table.samples, strict=True):
        assert journey.kinds[name] == sample.type, sample.declared


@pytest.mark.parametrize("kind", sorted(datatypes.REGISTRY))
def test_value_is_the_same_on_every_path(journey: Journey, server: Server, kind: str) -> None:
    named = dict(zip(journey.table.columns, journey.table.samples, strict=True))
    names = [name for name, sample in named.items() if sample.type == kind]
    elsewhere = {sample.only for sample in SAMPLES if sample.type == kind} - {server.kind}
    if not names:
        assert elsewhere <= set(get_args(Kind)), f"no sample of {kind}"
        return
    for name in names:
        what = named[name].declared
        stored = some(journey.copied, name, KEPT)
        assert len(stored) == journey.table.rows
        assert None in stored.values(), what
        assert len(set(map(repr, stored.values()))) > 2, what
        assert journey.snapshot[name] == journey.copied[name], f"{what}: the snapshot"
        for path, images in journey.images.items():
            new = (INSERTED, INSERTED_UPDATED, INSERTED_DELETED)
            after = images[INSERT, "after"][name]
            assert after == some(journey.inserted, name, *new), f"{what}: insert, by {path}"
            changed, gone = (UPDATED, INSERTED_UPDATED), (DELETED, INSERTED_DELETED)
            old, fresh = images[UPDATE, "before"][name], images[UPDATE, "after"][name]
            assert old == some(journey.inserted, name, *changed), f"{what}: old image of an update, by {path}"
            assert fresh == some(journey.updated, name, *changed), f"{what}: new image of an update, by {path}"
            before = images[DELETE, "before"][name]
            assert before == some(journey.updated, name, *gone), f"{what}: delete, by {path}"
        assert journey.delta[name] == journey.final[name], f"{what}: Delta"


@pytest.mark.parametrize("kind", ["float", "double"])
def test_floats_are_the_literals_bits(journey: Journey, server: Server, kind: str) -> None:
    """The server prints floats rounded, so its own text can't be the only witness.

    Most releases of MariaDB take -0.0 for 0.0, however it is written; 11.4.5 doesn't.
    """
    layout = "<f" if kind == "float" else "<d"
    has_negative_zero = server.execute("SELECT CONCAT(-0e0)") == [("-0",)]
    for place, sample in enumerate(journey.table.samples):
        if sample.type != kind:
            continue
        texts = [journey.table.literal(place, row) for row in range(journey.table.rows)]
        numbers = [None if text == "NULL" else float(text) for text in texts]
        if not has_negative_zero:
            numbers = [None if number is None else number or 0.0 for number in numbers]
        bits = [None if number is None else struct.pack(layout, number) for number in numbers]
        for state in (journey.snapshot, journey.delta):
            assert [state[f"c{place}"][row] for row in range(journey.table.rows)] == bits, sample.declared


def test_verify_agrees(journey: Journey) -> None:
    assert not journey.verified
