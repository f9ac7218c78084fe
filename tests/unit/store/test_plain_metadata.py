"""Metadata that is read and written without a query engine is what deltalake would have read and written."""

import random
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet  # what is plain is so where it is imported
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from binlake.delta import checkpoints
from binlake.errors import LakeError, WrittenMeanwhile
from binlake.store import known_files, plain_conditions, plain_rows
from binlake.store.metadata import Metadata
from binlake.store.table_schemas import SCHEMAS

KINDS = ("sync", "it's", None)


@pytest.fixture
def metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Metadata:
    monkeypatch.setattr(checkpoints, "_SECONDS", 3600)  # after a minute deltalake would write one with its next commit
    return Metadata(str(tmp_path / "_binlake"))


def by_deltalake(metadata: Metadata, name: str, where: str | None = None) -> list[dict[str, Any]]:
    table = DeltaTable(metadata.location(name))
    asked = f" WHERE {where}" if where else ""
    rows = QueryBuilder().register("rows", table).execute(f"SELECT * FROM rows{asked}").read_all()
    return sorted_rows(pyarrow.table(rows).to_pylist())


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(({name: row[name] for name in sorted(row)} for row in rows), key=repr)


def condition(chance: random.Random) -> str:
    def number() -> int:
        return chance.randrange(-1, 9)

    def one() -> str:
        compared = chance.choice(("=", "<", ">", "<=", ">="))
        return chance.choice(
            (
                f"batch {compared} {number()}",
                f"batch IN ({number()}, {number()})",
                "\"kind\" = 'it''s'",
                f"kind {compared} 'sync'",
                "kind IN ('it''s', 'none')",
                "kind IS NULL",
                "kind IS NOT NULL",
                "batch IS NULL",
            )
        )

    return " AND ".join(one() for _ in range(chance.randrange(1, 4)))


def row(chance: random.Random) -> dict[str, Any]:
    batch = chance.choice((None, *range(8)))
    return {"run": f"{chance.random()}", "kind": chance.choice(KINDS), "batch": batch, "message": "'\n' AND ("}


def test_rows_are_chosen_and_replaced_as_by_deltalake(metadata: Metadata) -> None:
    chance = random.Random(1)
    metadata.append("runs", [row(chance)])
    for number in range(60):
        where = condition(chance)
        assert plain_conditions.comparisons(where) is not None
        expected = by_deltalake(metadata, "runs", where)
        assert sorted_rows(metadata.read("runs", where=where)) == expected, where
        assert metadata.count("runs", where) == len(expected)
        before, added = by_deltalake(metadata, "runs"), [row(chance) for _ in range(chance.randrange(3))]
        if number % 3:
            metadata.append("runs", added)
            gone: list[dict[str, Any]] = []
        else:
            metadata.replace("runs", where, added)
            gone = expected
        empty = dict.fromkeys(SCHEMAS["runs"].names)
        left = [*(one for one in before if one not in gone), *({**empty, **one} for one in added)]
        assert by_deltalake(metadata, "runs") == sorted_rows(left), where
        if number % 20 == 19:
            DeltaTable(metadata.location("runs")).optimize.compact()


@pytest.mark.parametrize(
    "where",
    [
        "batch = 1 OR batch = 2", "(batch = 1)", "batch = 1 AND (kind = 'a' OR batch = 2)", "kind LIKE 'a%'",
        "batch = 1.5", "kind <> 'a'", "batch = 1 AND", "NOT batch = 1", "batch", "batch = 1; x",
        "lower(kind) = 'a'", "batch = kind",
    ],
)  # fmt: skip
def test_other_conditions_are_left_to_deltalake(where: str) -> None:
    assert plain_conditions.comparisons(where) is None


def test_what_others_commit_is_known(metadata: Metadata) -> None:
    def known() -> known_files.KnownFiles | None:
        return known_files.known(metadata.location("pins"), SCHEMAS["pins"])

    assert known() is None
    for batch in range(25):
        metadata.append("pins", [{"name": f"{batch}", "batch": batch}])
        if batch % 7 == 3:
            DeltaTable(metadata.location("pins")).update({"who": "'other'"}, predicate=f"batch = {batch}")
        if batch % 9 == 5:
            DeltaTable(metadata.location("pins")).optimize.compact()
        table, seen = DeltaTable(metadata.location("pins")), known()
        assert seen is not None
        assert seen.version == table.version()
        added = table.get_add_actions()
        told = dict(zip(added["path"].to_pylist(), added["num_records"].to_pylist(), strict=True))
        assert {path: file.rows for path, file in seen.files.items()} == told
        least = dict(zip(added["path"].to_pylist(), added["min"].to_pylist(), strict=True))
        assert {path: file.least["batch"] for path, file in seen.files.items()} == {
            path: values["batch"] for path, values in least.items()
        }
    assert {one["batch"] for one in metadata.read("pins", where="who = 'other'")} == {3, 10, 17, 24}


def test_a_table_with_other_columns_is_left_to_deltalake(metadata: Metadata) -> None:
    metadata.append("pins", [{"name": "a", "batch": 1}])
    rows = {name: [1 if name in ("batch", "at_us") else "b"] for name in SCHEMAS["pins"].names}
    more = pyarrow.table({**rows, "newer": ["kept"]})
    write_deltalake(metadata.location("pins"), more, mode="append", schema_mode="merge")
    assert known_files.known(metadata.location("pins"), SCHEMAS["pins"]) is None
    metadata.replace("pins", "name = 'a'", [])
    assert [(one["name"], one["newer"]) for one in by_deltalake(metadata, "pins")] == [("b", "kept")]


def test_a_replacement_that_another_was_quicker_than_changes_nothing(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata.append("pins", [{"name": "a", "batch": 1}])

    def another_is_quicker() -> None:
        monkeypatch.setattr(late, "check", lambda: None)
        metadata.replace("pins", "name = 'a'", [{"name": "a", "batch": 2}])

    late = metadata.guarded(another_is_quicker)
    late.replace("pins", "name = 'b'", [{"name": "b", "batch": 3}])
    assert sorted((one["name"], one["batch"]) for one in metadata.read("pins")) == [("a", 2), ("b", 3)]

    def lost() -> None:
        raise WrittenMeanwhile("the lease is lost", remedy="run again")

    with pytest.raises(WrittenMeanwhile):
        metadata.guarded(lost).replace("pins", "name = 'a'", [])
    assert metadata.count("pins", "name = 'a'") == 1


def test_rows_that_were_replaced_are_forgotten(metadata: Metadata) -> None:
    location = metadata.location("lease")
    metadata.create_with("lease", [{"batch": 0}])
    for batch in range(20):
        assert metadata.swap("lease", f"batch = {batch}", {"batch": batch + 1, "plan": "a plan"})
    assert (
        len([place for _, place in plain_rows._kept._kept if place[0] == location]) <= 2
    )  # deltalake's own commits among them


def test_of_a_lost_table_nothing_is_remembered(metadata: Metadata, tmp_path: Path) -> None:
    metadata.append("pins", [{"name": "a", "batch": 1}])
    assert metadata.count("pins", "name = 'a'") == 1
    (tmp_path / "_binlake").rename(tmp_path / "away")
    assert metadata.read("pins") == []
    metadata.append("pins", [{"name": "b", "batch": 1}])
    assert [one["name"] for one in metadata.read("pins")] == ["b"]


def test_without_pyarrow_deltalake_reads_and_writes(metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyarrow.parquet")
    metadata.append("pins", [{"name": "a", "batch": 1}])
    metadata.replace("pins", "batch = 1", [{"name": "b", "batch": 1}])
    assert metadata.read("pins", ["name"], where="batch = 1") == [{"name": "b"}]
    assert {action["operation"] for action in DeltaTable(metadata.location("pins")).history()} == {
        "CREATE TABLE", "WRITE",
    }  # fmt: skip


def test_a_damaged_file_is_said(metadata: Metadata) -> None:
    metadata.append("pins", [{"name": "a", "batch": 1}])
    [file] = Path(metadata.location("pins")).glob("*.parquet")
    file.write_bytes(bytes(file.stat().st_size))
    plain_rows.forget(metadata.location("pins"), [file.name])
    with pytest.raises(LakeError, match="can't read the metadata table"):
        metadata.read("pins")
    with pytest.raises(LakeError, match="can't write the metadata table") as caught:
        metadata.replace("pins", "name = 'a'", [{"name": "a", "batch": 2}])
    assert "restore it from a backup" in caught.value.remedy
    assert f"move {metadata.location('pins')} away: pin them again" in caught.value.remedy
