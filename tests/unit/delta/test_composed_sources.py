"""A composed table that two sources fill: each composes its own parts, and the others' stay."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from binlake.delta import composed_table, delta_commits, plain_tables
from binlake.delta.composed_parts import TablePart
from binlake.delta.composed_sources import NOTE, PartSources, hours_in, notes_in
from binlake.delta.composed_table import Composed, compose
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import DeltaSchema
from binlake.delta.plain_tables import OwnCommit
from binlake.errors import LakeTableChanged

Row = dict[str, Any]
KINDS = {"INT": pa.int32(), "BIGINT": pa.int64(), "STRING": pa.string(), "DECIMAL(5,2)": pa.decimal128(5, 2)}


class Companies:
    """Tables of the sources eu and us, and the one that shows them."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "orders")
        self.sources = ["eu", "us"]

    def part(self, source: str, tenant: str, **more: Any) -> TablePart:
        return TablePart(f"{tenant}.orders", f"region={source}.tenant={tenant}", tenant, **more)

    def create(self, source: str, tenant: str, columns: Mapping[str, str], *rows: Row) -> None:
        """Make a part's table, or replace it by another of other columns."""
        schema = pa.schema([(name, KINDS[kind]) for name, kind in columns.items()])
        data = pa.Table.from_pylist([*rows], schema)
        path = f"{self.path}/{self.part(source, tenant).folder}"
        if DeltaTable.is_deltatable(path):
            write_deltalake(path, data, mode="overwrite", schema_mode="overwrite")
            return
        own = OwnCommit("WRITE", 1, {}, {}, {})
        plain_tables.create(LakeLog(path, tenant), DeltaSchema((*columns.items(),), tenant), own, data)

    def shown(self, source: str, *parts: str | TablePart) -> Composed:
        asked = [self.part(source, part) if isinstance(part, str) else part for part in parts]
        sources = PartSources("region", source, self.sources, 24.0)
        composed = compose(self.path, "tenant", asked, {"binlake": {"source": source}}, sources=sources)
        assert composed is not None
        return composed

    def rows(self) -> list[Row]:
        table = QueryBuilder().register("t", DeltaTable(self.path)).execute("SELECT * FROM t").read_all()
        rows: list[Row] = pa.table(table).to_pylist()
        return sorted(rows, key=lambda row: (row["region"], row["tenant"], str(row.get("id"))))

    def compact(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.rows()]


@pytest.fixture
def companies(tmp_path: Path) -> Companies:
    return Companies(tmp_path)


def test_equal_shards_of_two_sources_are_two(companies: Companies) -> None:
    for source in ("us", "eu"):
        companies.create(source, "7", {"id": "INT", "v": "STRING"}, {"id": 1, "v": f"of {source}"})
        companies.shown(source, "7")
    assert companies.compact() == [("eu", "7", 1, "of eu"), ("us", "7", 1, "of us")]
    assert DeltaTable(companies.path).metadata().partition_columns == ["region", "tenant"]
    assert not companies.shown("eu", "7").changed
    assert not companies.shown("us", "7").changed


def test_a_part_that_is_gone_takes_no_row_of_the_other_source(companies: Companies) -> None:
    for source in ("us", "eu"):
        for tenant in ("7", "8"):
            companies.create(source, tenant, {"id": "INT"}, {"id": 1})
        companies.shown(source, "7", "8")
    companies.shown("eu", "8", companies.part("eu", "7", is_gone=True))
    assert companies.compact() == [("eu", "8", 1), ("us", "7", 1), ("us", "8", 1)]
    companies.shown("eu")
    assert companies.compact() == [("us", "7", 1), ("us", "8", 1)]


def test_columns_are_those_of_both_and_go_with_the_last_that_has_them(companies: Companies) -> None:
    companies.create("eu", "7", {"id": "INT", "v": "STRING"}, {"id": 1, "v": "x"})
    companies.create("us", "7", {"id": "INT", "w": "STRING"}, {"id": 1, "w": "y"})
    companies.shown("eu", "7")
    companies.shown("us", "7")
    assert companies.rows() == [
        {"region": "eu", "tenant": "7", "id": 1, "v": "x", "w": None},
        {"region": "us", "tenant": "7", "id": 1, "v": None, "w": "y"},
    ]
    version = companies.shown("eu", "7").version
    companies.create("us", "7", {"id": "INT"}, {"id": 2})
    companies.shown("us", "7")
    assert [[*row] for row in companies.rows()] == [["region", "tenant", "id", "v"]] * 2
    assert companies.shown("eu", "7").version == version + 1, "it had nothing to do"


def test_a_wider_type_converts_the_files_of_the_other_source(companies: Companies) -> None:
    for source in ("us", "eu"):
        companies.create(source, "7", {"id": "INT"}, {"id": 1})
        companies.shown(source, "7")
    companies.create("us", "7", {"id": "BIGINT"}, {"id": 1 << 40})
    companies.shown("us", "7")
    assert companies.compact() == [("eu", "7", 1), ("us", "7", 1 << 40)]
    assert not companies.shown("eu", "7").changed
    companies.create("eu", "7", {"id": "BIGINT"}, {"id": 1 << 41})
    companies.shown("eu", "7")
    assert companies.compact() == [("eu", "7", 1 << 41), ("us", "7", 1 << 40)]


@pytest.mark.parametrize("first", ["eu", "us"])
def test_the_last_source_that_gets_another_type_shows_the_parts_of_all(companies: Companies, first: str) -> None:
    last = "us" if first == "eu" else "eu"
    for source in ("us", "eu"):
        for tenant in ("7", "8"):
            companies.create(source, tenant, {"id": "INT", "v": "INT"}, {"id": 1, "v": 7})
        companies.shown(source, "7", "8")
    companies.create(first, "7", {"id": "INT", "v": "STRING"}, {"id": 2, "v": "x"})
    companies.create(first, "8", {"id": "INT", "v": "STRING"}, {"id": 3, "v": "y"})
    before = companies.rows()
    assert {*companies.shown(first, "7", "8").standing} == {"7.orders", "8.orders"}
    assert companies.rows() == before
    companies.create(last, "7", {"id": "INT", "v": "STRING"}, {"id": 4, "v": "z"})
    assert [*companies.shown(last, "7", "8").standing] == ["7.orders"]
    assert companies.rows() == before
    companies.create(last, "8", {"id": "INT", "v": "STRING"}, {"id": 5, "v": "z"})
    assert not companies.shown(last, "7", "8").standing
    expected = [(first, "7", 2, "x"), (first, "8", 3, "y"), (last, "7", 4, "z"), (last, "8", 5, "z")]
    assert companies.compact() == sorted(expected)
    composed = companies.shown(first, "7", "8")
    assert (composed.changed, composed.standing) == (False, {})


def test_a_source_that_is_taken_out_has_no_row_and_no_column(companies: Companies) -> None:
    companies.create("eu", "7", {"id": "INT"}, {"id": 1})
    companies.create("us", "7", {"id": "INT", "w": "STRING"}, {"id": 1, "w": "y"})
    companies.shown("eu", "7")
    companies.shown("us", "7")
    companies.sources = ["eu"]
    companies.shown("eu", "7")
    assert companies.rows() == [{"region": "eu", "tenant": "7", "id": 1}]
    assert [*notes_in(DeltaTable(companies.path).metadata().configuration)] == ["eu"]
    companies.sources = ["eu", "us"]
    companies.shown("us", "7")
    assert companies.compact() == [("eu", "7", 1, None), ("us", "7", 1, "y")]


def test_who_loses_the_race_composes_behind_the_other(companies: Companies, monkeypatch: pytest.MonkeyPatch) -> None:
    companies.create("eu", "7", {"id": "INT", "v": "STRING"}, {"id": 1, "v": "x"})
    companies.create("us", "7", {"id": "BIGINT", "w": "INT"}, {"id": 1, "w": 3})
    commit, tries = composed_table._commit, list[int]()

    def late(*arguments: Any) -> None:
        if not tries:
            tries.append(1)
            companies.shown("us", "7")
        commit(*arguments)

    monkeypatch.setattr(composed_table, "_commit", late)
    companies.shown("eu", "7")
    assert companies.compact() == [("eu", "7", 1, None, "x"), ("us", "7", 1, 3, None)]


def test_other_source_columns_are_refused(companies: Companies) -> None:
    companies.create("eu", "7", {"id": "INT"}, {"id": 1})
    companies.shown("eu", "7")
    with pytest.raises(LakeTableChanged, match="has the source columns region, tenant, and is to have server, tenant"):
        compose(companies.path, "tenant", [], {}, sources=PartSources("server", "eu", ["eu"], 1.0))


def test_a_former_column_of_the_other_source_does_not_come_back(companies: Companies) -> None:
    companies.create("us", "7", {"id": "INT", "v": "STRING"}, {"id": 1, "v": "old"})
    path = f"{companies.path}/{companies.part('us', '7').folder}"
    companies.shown("us", "7")
    table = DeltaTable(path)
    fields = [field for field in plain_tables.fields_of(table) if field["name"] != "v"]
    metadata = {
        "id": str(table.metadata().id), "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
        "schemaString": json.dumps({"type": "struct", "fields": [
            {**field, "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": field["name"]}}
            for field in fields
        ]}),
        "configuration": {**table.metadata().configuration, "delta.columnMapping.mode": "name"}, "createdTime": 0,
    }  # fmt: skip
    log = LakeLog(path, "7")
    plain_tables.commit(log, table, OwnCommit("ALTER", 3, {}, {}, {}), [{"metaData": metadata}])
    companies.shown("us", "7")
    assert companies.rows() == [{"region": "us", "tenant": "7", "id": 1}]
    companies.create("eu", "7", {"id": "INT", "v": "STRING"}, {"id": 1, "v": "new"})
    companies.shown("eu", "7")
    assert companies.compact() == [("eu", "7", 1, "new"), ("us", "7", 1, None)]


SHAPES: tuple[dict[str, str], ...] = (
    {"id": "INT", "v": "INT"},
    {"id": "INT", "v": "STRING"},
    {"id": "BIGINT", "v": "INT", "w": "STRING"},
    {"id": "DECIMAL(5,2)", "w": "STRING"},
    {"id": "INT", "v": "BIGINT", "x": "INT"},
)


@pytest.mark.parametrize("seed", range(6))
def test_each_part_is_shown_as_it_is_or_as_it_was_however_shapes_change(companies: Companies, seed: int) -> None:
    chance = random.Random(seed)
    newest: dict[tuple[str, str], list[Row]] = {}
    asked: dict[tuple[str, str], list[Row]] = {}
    shown: dict[tuple[str, str], list[Row]] = {}
    for number in range(25):
        source = chance.choice(companies.sources)
        for tenant in chance.sample("789", 2):
            newest[source, tenant] = drawn(companies, chance, source, tenant, chance.choice(SHAPES), number)
        own = [place for place in newest if place[0] == source]
        gone = [place for place in own if chance.random() < 0.05]
        parts = [companies.part(*place, is_gone=place in gone) for place in own]
        standing = companies.shown(source, *parts).standing
        for place in own:
            asked[place] = [] if place in gone else newest[place]
            if f"{place[1]}.orders" not in standing:
                shown[place] = asked[place]
        there = by_part(companies)
        for place in shown:
            if place[0] != source and there.get(place, []) == asked[place]:
                shown[place] = asked[place]  # it waited, and this source was the last
            assert there.get(place, []) == shown[place], f"{place} in round {number}, by {source}"
    for place in newest:
        newest[place] = drawn(companies, chance, *place, SHAPES[1], 99)
    for source in (*companies.sources, *companies.sources):
        composed = companies.shown(source, *(place[1] for place in newest if place[0] == source))
    assert (composed.changed, composed.standing) == (False, {})
    assert by_part(companies) == newest
    assert [field.name for field in DeltaTable(companies.path).schema().fields] == ["region", "tenant", "id", "v"]


def drawn(
    companies: Companies, chance: random.Random, source: str, tenant: str, columns: Mapping[str, str], number: int
) -> list[Row]:
    """Replace a part's table; return its rows, without NULLs."""
    texts = {"INT": number, "BIGINT": number << 33, "STRING": f"{source} {number}", "DECIMAL(5,2)": Decimal(number)}
    row = {name: texts[kind] for name, kind in columns.items() if name == "id" or chance.random() < 0.8}
    companies.create(source, tenant, columns, row)
    return [row]


def by_part(companies: Companies) -> dict[tuple[str, str], list[Row]]:
    """Return the table's rows by source and tenant, without NULLs."""
    parts: dict[tuple[str, str], list[Row]] = {}
    for row in companies.rows():
        own = {name: value for name, value in row.items() if name not in ("region", "tenant") and value is not None}
        parts.setdefault((row["region"], row["tenant"]), []).append(own)
    return parts


def test_a_late_part_that_cannot_be_read_is_no_fault_of_the_shard_with_its_name(companies: Companies) -> None:
    for source in ("us", "eu"):
        companies.create(source, "7", {"id": "INT", "v": "INT"}, {"id": 1, "v": 7})
        companies.shown(source, "7")
    companies.create("eu", "7", {"id": "INT", "v": "STRING"}, {"id": 2, "v": "x"})
    companies.shown("eu", "7")
    folder = Path(companies.path, companies.part("eu", "7").folder)
    waiting = DeltaTable(str(folder)).file_uris()
    for file in waiting:
        Path(file.removeprefix("file://")).write_bytes(b"no Parquet")
    before = companies.rows()
    companies.create("us", "7", {"id": "BIGINT", "v": "STRING"}, {"id": 3, "v": "y"})  # eu's file is to be converted
    composed = companies.shown("us", "7")
    assert (composed.broken, composed.lost) == (set(), set())
    assert "its column 'v' is string, and integer in others" in composed.standing["7.orders"]
    assert companies.rows() == before
    log = sorted((folder / "_delta_log").glob("*.json"))
    log[-1].write_text("{no JSON")
    assert companies.shown("us", "7").broken == set()
    assert companies.rows() == before


def set_note(companies: Companies, source: str, text: str | None) -> None:
    """Put a text in the place of a source's note."""
    table = DeltaTable(companies.path)
    (actions,) = [json.loads(line) for line in _commits(companies) if '"metaData"' in line][-1:]
    configuration = actions["metaData"]["configuration"]
    configuration.pop(f"{NOTE}{source}")
    if text is not None:
        configuration[f"{NOTE}{source}"] = text
    delta_commits.write(companies.path, table.version() + 1, [actions])


def _commits(companies: Companies) -> list[str]:
    files = sorted(Path(companies.path, "_delta_log").glob("*.json"))
    return [line for file in files for line in file.read_text().splitlines()]


def test_a_note_that_cannot_be_read_stays_and_holds_everything(companies: Companies) -> None:
    companies.create("eu", "7", {"id": "INT", "a": "INT"}, {"id": 1, "a": 2})
    companies.create("us", "7", {"id": "INT"}, {"id": 1})
    companies.shown("eu", "7")
    companies.shown("us", "7")
    set_note(companies, "eu", '{"of": "a newer binlake"}')
    companies.create("us", "7", {"id": "INT", "b": "INT"}, {"id": 1, "b": 3})
    companies.shown("us", "7")
    settings = DeltaTable(companies.path).metadata().configuration
    assert settings[f"{NOTE}eu"] == '{"of": "a newer binlake"}'
    assert hours_in(settings) == {"eu": math.inf, "us": 24.0}
    assert companies.compact() == [("eu", "7", 1, 2, None), ("us", "7", 1, None, 3)]
    companies.shown("eu", "7")
    assert {*notes_in(DeltaTable(companies.path).metadata().configuration)} == {"eu", "us"}


def test_an_own_note_that_is_missing_costs_no_column_of_parts_that_are_kept(companies: Companies) -> None:
    companies.create("eu", "7", {"id": "INT", "a": "INT"}, {"id": 1, "a": 2})
    companies.create("us", "7", {"id": "INT"}, {"id": 1})
    companies.shown("eu", "7")
    companies.shown("us", "7")
    set_note(companies, "eu", None)
    Path(companies.path, companies.part("eu", "7").folder, "_delta_log").rename(Path(companies.path).parent / "moved")
    companies.shown("eu", "7")
    assert companies.compact() == [("eu", "7", 1, 2), ("us", "7", 1, None)]
