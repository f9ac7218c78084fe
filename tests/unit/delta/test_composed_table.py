"""A table that is composed of others: rows of the parts in, rows of the composed table out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyroaring import BitMap64

from binlake.config.units import HOUR_US
from binlake.delta import composed_table, delta_log, log_files, opened_tables, plain_files, plain_tables
from binlake.delta.composed_layout import wider
from binlake.delta.composed_parts import TablePart
from binlake.delta.composed_table import Composed, compose, shown_versions
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import DeltaSchema
from binlake.delta.plain_tables import OwnCommit
from binlake.errors import LakeError, LakeTableChanged, LogUnreadable
from binlake.storage import storage_errors

Row = dict[str, Any]


class Company:
    """Tables a, b … and the table that shows them."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "orders")

    def part(self, name: str, **more: Any) -> TablePart:
        return TablePart(name, f"tenant={name}", name, **more)

    def create(self, name: str, columns: dict[str, str], *rows: Row) -> None:
        kinds = {"INT": pa.int32(), "BIGINT": pa.int64(), "STRING": pa.string()}
        kinds |= {"DECIMAL(20,0)": pa.decimal128(20, 0), "DECIMAL(5,2)": pa.decimal128(5, 2)}
        data = pa.Table.from_pylist([*rows], pa.schema([(key, kinds[kind]) for key, kind in columns.items()]))
        own = OwnCommit("WRITE", 1, {}, {}, {})
        plain_tables.create(self.log(name), DeltaSchema((*columns.items(),), name), own, data)

    def log(self, name: str) -> LakeLog:
        return LakeLog(f"{self.path}/tenant={name}", name)

    def append(self, name: str, *rows: Row) -> None:
        there = DeltaTable(self.log(name).path)
        schema = pa.schema(there.schema().to_arrow())
        write_deltalake(there, pa.Table.from_pylist([*rows], schema), mode="append")

    def hide(self, name: str, *rows: int) -> None:
        """Hide rows of the only data file."""
        log = self.log(name)
        paths = pa.table(log.opened().get_add_actions())["path"].to_pylist()
        (add,) = plain_tables.actions_of(log.opened(), log.path, paths)
        actions = [plain_tables.removed(add), *plain_tables.marked(log.opened(), log.path, [(add, BitMap64(rows))])]
        plain_tables.commit(log, log.opened(), OwnCommit("DELETE", 2, {}, {}, {}), actions)

    def shown(self, *parts: str | TablePart) -> Composed:
        asked = [self.part(part) if isinstance(part, str) else part for part in parts]
        composed = compose(self.path, "tenant", asked, {"binlake": {}})
        assert composed is not None
        return composed

    def rows(self) -> list[Row]:
        table = QueryBuilder().register("t", DeltaTable(self.path)).execute("SELECT * FROM t").read_all()
        rows: list[Row] = pa.table(table).to_pylist()
        return sorted(rows, key=lambda row: (row["tenant"], row["id"]))


@pytest.fixture
def company(tmp_path: Path) -> Company:
    return Company(tmp_path)


def test_rows_of_the_parts_are_those_of_the_table(company: Company) -> None:
    company.create("a", {"id": "INT", "v": "STRING"}, {"id": 1, "v": "x"}, {"id": 2, "v": "y"}, {"id": 3, "v": "z"})
    company.create("b", {"id": "INT", "v": "STRING"})
    company.hide("a", 1)
    assert company.shown("a", "b").version == 0
    company.append("b", {"id": 1, "v": "of b"})
    assert company.shown("a", "b").version == 1
    assert company.rows() == [
        {"tenant": "a", "id": 1, "v": "x"},
        {"tenant": "a", "id": 3, "v": "z"},
        {"tenant": "b", "id": 1, "v": "of b"},
    ]


def test_a_repetition_commits_nothing(company: Company) -> None:
    company.create("a", {"id": "INT"}, {"id": 1})
    assert company.shown("a").changed
    again = company.shown("a")
    assert (again.changed, again.version) == (False, 0)


def test_without_a_part_there_is_no_table(company: Company) -> None:
    assert compose(company.path, "tenant", [company.part("a")], {}) is None


def test_a_part_that_stands_still_is_shown_as_it_was(company: Company) -> None:
    for name in ("a", "b"):
        company.create(name, {"id": "INT"}, {"id": 1})
    company.shown("a", "b")
    for name in ("a", "b"):
        company.append(name, {"id": 2})
    company.shown("a", company.part("b", follows=False))
    assert [(row["tenant"], row["id"]) for row in company.rows()] == [("a", 1), ("a", 2), ("b", 1)]
    company.shown("a", "b")
    assert len(company.rows()) == 4


def test_a_part_that_is_gone_has_no_row_and_none_of_its_versions_is_shown(company: Company) -> None:
    for name in ("a", "b"):
        company.create(name, {"id": "INT"}, {"id": 1})
    first = company.shown("a", "b").version
    later = company.shown("a", company.part("b", is_gone=True)).version
    assert [row["tenant"] for row in company.rows()] == ["a"]
    assert [len(shown_versions(company.path, version)) for version in (first, later)] == [2, 1]
    company.shown("a", "b")  # a table of the name is created again
    assert [row["tenant"] for row in company.rows()] == ["a", "b"]


def test_a_column_that_a_part_lacks_is_null_and_goes_with_the_last_that_has_it(company: Company) -> None:
    company.create("a", {"id": "INT", "v": "STRING"}, {"id": 1, "v": "x"})
    company.create("b", {"id": "INT", "w": "STRING"}, {"id": 1, "w": "y"})
    assert company.shown("a", "b").lacking == {"a": ["w"], "b": ["v"]}
    assert company.rows() == [
        {"tenant": "a", "id": 1, "v": "x", "w": None},
        {"tenant": "b", "id": 1, "v": None, "w": "y"},
    ]
    company.shown("a", company.part("b", is_gone=True))
    assert company.rows() == [{"tenant": "a", "id": 1, "v": "x"}]


def test_numbers_of_several_sizes_have_the_type_that_holds_all(company: Company) -> None:
    company.create("a", {"id": "INT"}, {"id": 1}, {"id": 2})
    company.hide("a", 0)
    company.create("b", {"id": "BIGINT"}, {"id": 1 << 40})
    company.shown("a", "b")
    assert company.rows() == [{"tenant": "a", "id": 2}, {"tenant": "b", "id": 1 << 40}]
    company.create("c", {"id": "DECIMAL(20,0)"}, {"id": Decimal((1 << 64) - 1)})
    company.shown("a", "b", "c")
    assert [row["id"] for row in company.rows()] == [2, 1 << 40, (1 << 64) - 1]


def test_types_that_do_not_go_together_leave_the_later_part_as_it_was(company: Company) -> None:
    company.create("a", {"id": "INT", "v": "INT"}, {"id": 1, "v": 7})
    company.shown("a")
    company.create("b", {"id": "INT", "v": "STRING"}, {"id": 1, "v": "x"})
    assert company.shown("a", "b").standing == {"b": "its column 'v' is string, and integer in others"}
    assert company.rows() == [{"tenant": "a", "id": 1, "v": 7}]
    company.shown("b", company.part("a", is_gone=True))
    assert company.rows() == [{"tenant": "b", "id": 1, "v": "x"}]


def test_who_comes_late_looks_again(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    company.create("a", {"id": "INT"}, {"id": 1})
    company.shown("a")
    company.append("a", {"id": 2})
    commit = composed_table._commit
    tries: list[int] = []

    def late(*arguments: Any) -> None:
        if not tries:
            tries.append(1)
            commit(*arguments)  # by another
            raise CommitFailedError("it is there")
        commit(*arguments)

    monkeypatch.setattr(composed_table, "_commit", late)
    assert not company.shown("a").changed
    assert [row["id"] for row in company.rows()] == [1, 2]


def test_many_commits_can_be_read_by_a_checkpoint(company: Company) -> None:
    company.create("a", {"id": "INT"}, {"id": 0})
    for number in range(1, 13):
        company.shown("a")
        company.append("a", {"id": number})
    company.shown("a", company.part("b", is_gone=True))
    assert log_files.read_hint(company.path) is not None
    assert len(company.rows()) == 13
    company.shown(company.part("a", is_gone=True))
    assert company.rows() == []


def test_old_versions_are_known_behind_a_checkpoint(company: Company) -> None:
    company.create("a", {"id": "INT"}, {"id": 0})
    versions = [company.shown("a").version]
    for number in range(1, 13):
        company.append("a", {"id": number})
        versions.append(company.shown("a").version)
    assert [list(shown_versions(company.path, version).values()) for version in versions] == [[v] for v in versions]


def test_a_part_that_stands_still_gets_columns_though_its_table_went_on(company: Company) -> None:
    for name in ("a", "b"):
        company.create(name, {"id": "INT"}, {"id": 0})
    company.shown("a", "b")
    company.append("b", {"id": 1})
    DeltaTable(company.log("b").path).create_checkpoint()
    company.create("c", {"id": "INT", "v": "INT"}, {"id": 1, "v": 7})
    company.shown("a", company.part("b", follows=False), "c")
    assert company.rows() == [
        {"tenant": "a", "id": 0, "v": None},
        {"tenant": "b", "id": 0, "v": None},
        {"tenant": "c", "id": 1, "v": 7},
    ]


def break_log(company: Company, name: str) -> None:
    log = sorted(Path(company.log(name).path, "_delta_log").glob("*.json"))
    log[-1].write_text("{no JSON")


def break_file(company: Company, name: str) -> None:
    for file in Path(company.log(name).path).glob("*.parquet"):
        file.write_bytes(b"no Parquet")


def test_a_part_whose_log_is_broken_stays_as_it_was_and_the_others_go_on(company: Company) -> None:
    for name in ("a", "b"):
        company.create(name, {"id": "INT"}, {"id": 1})
    company.hide("b", 0)
    company.append("b", {"id": 2})
    company.shown("a", "b")
    for name in ("a", "b"):
        company.append(name, {"id": 3})
    company.create("c", {"id": "BIGINT", "v": "STRING"}, {"id": 3, "v": "x"})
    break_log(company, "b")
    assert [*company.shown("a", "b", "c").broken] == ["b"]
    assert [(row["tenant"], row["id"], row["v"]) for row in company.rows()] == [
        ("a", 1, None), ("a", 3, None), ("b", 2, None), ("c", 3, "x"),
    ]  # fmt: skip


def test_a_part_whose_folder_is_lost_holds_nobody_back(company: Company) -> None:
    for name in ("a", "b"):
        company.create(name, {"id": "INT"}, {"id": 1})
    company.shown("a", "b")
    company.append("a", {"id": 2})
    Path(company.log("b").path).rename(Path(company.path).parent / "moved")
    assert company.shown("a", "b").standing == {"b": "its folder isn't there"}
    table = QueryBuilder().register("t", DeltaTable(company.path))
    rows = pa.table(table.execute("SELECT id FROM t WHERE tenant = 'a' ORDER BY id").read_all()).to_pylist()
    assert rows == [{"id": 1}, {"id": 2}]


def refuse(monkeypatch: pytest.MonkeyPatch, *folders: str) -> None:
    """Let this account read nothing in these folders."""
    there = opened_tables.newest

    def newest(path: str) -> DeltaTable:
        if any(path.endswith(folder) for folder in folders):
            raise OSError(f"Permission denied (os error 13): {path}/_delta_log")
        return there(path)

    monkeypatch.setattr(opened_tables, "newest", newest)


def test_what_is_withheld_by_now_goes_with_a_part_that_can_not_be_read(company: Company) -> None:
    for name in "ab":
        company.create(name, {"id": "INT"}, {"id": 1})
    company.shown("a", "b")
    company.append("b", {"id": 2})
    Path(f"{company.log('b').path}/_delta_log/{1:020}.json").write_text("{no JSON")
    for is_withheld, tenants in ((False, {"a", "b"}), (True, {"a"})):
        part = company.part("b", app="of a later life", hides=lambda since_us, is_withheld=is_withheld: is_withheld)
        composed = company.shown("a", part)
        assert {row["tenant"] for row in company.rows()} == tenants
        assert (bool(composed.hidden), "withheld by now" in composed.standing["b"]) == (is_withheld, is_withheld)


def masked_since(company: Company, hour: int) -> TablePart:
    """Return the part b, copied ahead of the position, that had more up to an hour since 1970."""
    return company.part("b", follows=False, hides=lambda since_us: since_us < hour * HOUR_US)


def copied_later(company: Company) -> None:
    """Show b as it was at hour 10; a copy of it followed at hour 20."""
    for name in "ab":
        company.create(name, {"id": "INT"}, {"id": 1})
    set_time(company, 0, 10)
    company.shown("a", "b")
    for hour, note in ((15, {}), (20, {"snapshot": 1}), (25, {})):
        company.append("b", {"id": hour})
        set_time(company, int(DeltaTable(company.log("b").path).version()), hour, **note)


def set_time(company: Company, version: int, hour: int, **note: Any) -> None:
    """Let a commit of b say an hour since 1970, and a note."""
    path = Path(f"{company.log('b').path}/_delta_log/{version:020}.json")
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    said = {"timestamp": hour * HOUR_US // 1000, "userMetadata": json.dumps({"binlake": note})}
    for action in actions:
        action.get("commitInfo", {}).update(said)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


@pytest.mark.parametrize("removed", [(), (1,), (1, 2), (0, 1)])
def test_a_part_is_hidden_for_what_it_had_since_it_was_shown(company: Company, removed: tuple[int, ...]) -> None:
    copied_later(company)
    opened_tables.newest(company.log("b").path).create_checkpoint()
    for version in removed:
        Path(f"{company.log('b').path}/_delta_log/{version:020}.json").unlink()
    for hour, is_hidden in ((5, 0 in removed), (11, True)):
        composed = company.shown("a", masked_since(company, hour))
        assert (hour, [*composed.hidden]) == (hour, ["b"] if is_hidden else [])


def test_a_log_is_read_only_for_a_part_of_which_something_is_withheld(company: Company) -> None:
    copied_later(company)
    with mock.patch.object(delta_log, "_commit_info", wraps=delta_log._commit_info) as read:
        for hides, versions in ((None, []), (lambda _: False, [0]), (lambda _: True, [0, 3, 2, 1])):
            read.reset_mock()
            company.shown("a", company.part("b", follows=False, hides=hides))
            own = [call.args for call in read.call_args_list]
            assert [version for path, version in own if path == company.log("b").path] == versions


def test_a_part_that_may_not_be_read_holds_nobody_back(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        company.create(name, {"id": "INT"}, {"id": 1})
    company.shown("a", "b")
    for name in ("a", "b"):
        company.append(name, {"id": 2})
    refuse(monkeypatch, "tenant=b")
    (why,) = company.shown("a", "b").standing.values()
    assert "Permission denied" in why
    assert [(row["tenant"], row["id"]) for row in company.rows()] == [("a", 1), ("a", 2), ("b", 1)]


def test_where_no_part_may_be_read_the_storage_is_at_fault(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        company.create(name, {"id": "INT"}, {"id": 1})
    company.shown("a", "b")
    refuse(monkeypatch, "tenant=a", "tenant=b")
    with pytest.raises(LakeError, match=r"composing .* failed: .*Permission denied") as failed:
        company.shown("a", "b")
    assert failed.value.remedy == storage_errors.ALLOW
    Path(company.log("b").path).rename(Path(company.path).parent / "moved")
    with pytest.raises(LakeError, match=r"composing .* failed: .*Permission denied"):
        company.shown("a", "b")


def test_a_file_of_its_own_that_cannot_be_written_is_no_fault_of_a_part(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    company.create("a", {"id": "INT"}, {"id": 1})
    company.create("b", {"id": "BIGINT"}, {"id": 1})

    def refused(*_: Any) -> None:
        raise OSError("Permission denied (os error 13)")

    monkeypatch.setattr(plain_files, "write_named", refused)
    with pytest.raises(LakeError, match=r"composing .* failed: Permission denied") as failed:
        company.shown("a", "b")
    assert failed.value.remedy == storage_errors.ALLOW


def test_a_part_whose_log_was_mended_is_shown_again(company: Company) -> None:
    for name in ("a", "b"):
        company.create(name, {"id": "INT"}, {"id": 1})
    company.shown("a", "b")
    company.append("b", {"id": 2})
    newest = sorted(Path(company.log("b").path, "_delta_log").glob("*.json"))[-1]
    whole = newest.read_text()
    newest.write_text("{no JSON")
    assert [*company.shown("a", "b").broken] == ["b"]
    newest.write_text(whole)
    assert not company.shown("a", "b").standing
    assert [(row["tenant"], row["id"]) for row in company.rows()] == [("a", 1), ("b", 1), ("b", 2)]


def test_a_part_whose_data_files_cannot_be_converted_holds_nobody_back(company: Company) -> None:
    company.create("a", {"id": "INT"}, {"id": 1})
    company.shown("a")
    company.create("b", {"id": "BIGINT"}, {"id": 1})
    company.create("c", {"id": "INT"}, {"id": 1})
    break_file(company, "c")
    composed = company.shown("a", "b", "c")
    assert [*composed.broken] == ["c"]
    assert [(row["tenant"], row["id"]) for row in company.rows()] == [("a", 1), ("b", 1)]


def test_files_that_are_shown_and_cannot_be_converted_stop_the_table(company: Company) -> None:
    company.create("a", {"id": "INT"}, {"id": 1})
    company.shown("a")
    company.create("b", {"id": "BIGINT"}, {"id": 1})
    break_file(company, "a")
    with pytest.raises(LakeTableChanged, match=r"other columns, and files of a that it shows can't be read"):
        company.shown("a", "b")


def test_a_log_that_cannot_be_read_stops_the_table(company: Company) -> None:
    company.create("a", {"id": "INT"}, {"id": 1})
    company.shown("a")
    (commit,) = Path(company.path, "_delta_log").glob("*.json")
    commit.write_text("{no JSON")
    with pytest.raises(LogUnreadable, match="can't be read"):
        company.shown("a")
    Path(company.path, "_delta_log").rename(Path(company.path).parent / "moved")
    assert company.shown("a").version == 0
    assert company.rows() == [{"tenant": "a", "id": 1}]


class Lives:
    """A part whose commits carry transactions of a life."""

    def __init__(self, company: Company) -> None:
        self.company, self.app = company, "binlake:shop:1"
        company.create("a", {"id": "INT"}, {"id": 0})
        company.create("b", {"id": "INT"}, {"id": 0})

    def step(self, number: int) -> None:
        log = LakeLog(self.company.log("a").path, self.app)
        schema = pa.schema([("id", pa.int32())])
        write_deltalake(
            DeltaTable(log.path),
            pa.table({"id": [number]}, schema),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(self.app, number)]),
        )

    def shown(self, version: int | None = None) -> Composed:
        part = replace(self.company.part("a"), app=self.app, delta_version=version)
        return self.company.shown(part, "b")

    def copy_to(self, place: Path) -> None:
        shutil.copytree(self.company.log("a").path, place)

    def restore(self, place: Path) -> None:
        shutil.rmtree(Path(self.company.log("a").path, "_delta_log"))
        shutil.copytree(place, self.company.log("a").path, dirs_exist_ok=True)


def test_a_part_that_was_restored_from_a_backup_is_shown_as_it_was(company: Company, tmp_path: Path) -> None:
    lives = Lives(company)
    lives.step(1)
    lives.shown(1)
    lives.copy_to(tmp_path / "backup")
    lives.step(2)
    lives.shown(2)
    lives.restore(tmp_path / "backup")
    company.append("b", {"id": 9})
    composed = lives.shown(2)
    assert composed.lost == {"a"}
    assert "it is at Delta version 1, 2 was shown: commits are lost" in composed.standing["a"]
    assert [(row["tenant"], row["id"]) for row in company.rows()] == [
        ("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 9),
    ]  # fmt: skip
    company.append("a", {"id": 7})  # by another, who takes the number of what is lost
    assert "others have their numbers" in lives.shown(2).standing["a"]
    lives.step(3)
    assert not lives.shown(3).standing, "its life went on behind what was shown"
    assert [row["id"] for row in company.rows() if row["tenant"] == "a"] == [0, 1, 3, 7]


def test_a_part_that_was_set_back_knowingly_is_shown_as_it_is(company: Company, tmp_path: Path) -> None:
    lives = Lives(company)
    lives.copy_to(tmp_path / "backup")
    lives.step(1)
    lives.shown(1)
    lives.restore(tmp_path / "backup")
    assert not lives.shown(0).standing
    assert [row["id"] for row in company.rows() if row["tenant"] == "a"] == [0]


@pytest.mark.parametrize(
    ("kinds", "holds_all"),
    [
        (("byte", "short"), "short"), (("integer", "long"), "long"), (("float", "double"), "double"),
        (("long", "decimal(20,0)"), "decimal(20,0)"), (("decimal(5,2)", "decimal(6,1)"), "decimal(7,2)"),
        (("integer", "decimal(5,2)"), "decimal(12,2)"), (("long", "decimal(38,20)"), None),
        (("integer", "string"), None), (("integer", "double"), None), (("date", "timestamp_ntz"), None),
    ],
)  # fmt: skip
def test_the_wider_of_two_types(kinds: Sequence[str], holds_all: str | None) -> None:
    assert wider(*kinds) == wider(*reversed(kinds)) == holds_all


def test_a_part_that_is_shown_stays_though_an_earlier_one_gets_a_type_that_does_not_go_with_its(
    company: Company,
) -> None:
    company.create("a", {"id": "INT"}, {"id": 1})
    company.create("b", {"id": "DECIMAL(5,2)"}, {"id": Decimal(2)})
    company.shown("a", "b")
    shutil.rmtree(company.log("a").path)
    company.create("a", {"id": "STRING"}, {"id": "x"})
    assert [*company.shown("a", "b").standing] == ["a"]
    assert {row["tenant"] for row in company.rows()} >= {"b"}
