"""Chunks and rows of two sides, compared."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from binlake.errors import CheckFailed
from binlake.position import Position
from binlake.schema.table import TableName
from binlake.verify import verify
from binlake.verify.hashing import differences
from binlake.verify.hashing.hashes import ChunkSum, chunk_count
from binlake.verify.hashing.server_side import KeyedHash
from binlake.verify.result import MOST_ROWS, DifferingRow, TableRepair, TableResult, VerifyReport


def row(key: str, row_hash: str) -> KeyedHash:
    return KeyedHash(key, row_hash, (key,))


def test_parts_add_up_by_chunk() -> None:
    parts = [{0: ChunkSum(2, 10), 1: ChunkSum(1, 5)}, {1: ChunkSum(3, 7)}]
    assert differences.total(parts) == {0: ChunkSum(2, 10), 1: ChunkSum(4, 12)}


def test_a_chunk_on_one_side_alone_differs() -> None:
    assert differences.differing({0: ChunkSum(1, 1), 1: ChunkSum(1, 1)}, {1: ChunkSum(1, 1), 2: ChunkSum(1, 9)}) == [
        0,
        2,
    ]


def test_looking_into_chunks_is_bounded() -> None:
    big = {number: ChunkSum(differences.MOST_FETCHED // 2, 1) for number in range(5)}
    assert differences.to_look_into([0, 1, 2, 3], big, {}) == [0, 1]
    assert differences.to_look_into([0], {0: ChunkSum(differences.MOST_FETCHED * 3, 1)}, {}) == [0]


def test_kinds_of_difference() -> None:
    source = [row("1", "a"), row("2", "b"), row("3", "c"), row("4", "d")]
    lake = [row("1", "a"), row("2", "x"), row("4", "d"), row("4", "d"), row("5", "e")]
    assert differences.differing_rows(source, lake, ["id"]) == {
        "2": DifferingRow("changed", (("id", "2"),)),
        "3": DifferingRow("missing", (("id", "3"),)),
        "4": DifferingRow("extra", (("id", "4"),)),
        "5": DifferingRow("extra", (("id", "5"),)),
    }


def test_named_rows_are_bounded() -> None:
    source = [row(str(number), "a") for number in range(10 * MOST_ROWS)]
    assert len(differences.differing_rows(source, [], ["id"])) == MOST_ROWS


def test_columns_of_a_changed_row() -> None:
    differing = {"2": DifferingRow("changed", (("id", "2"),))}
    named = differences.name_columns(differing, ["id", "v", "w"], {"2": ["2", "x", "N"]}, {"2": ["2", "x", ""]})
    assert named == (DifferingRow("changed", (("id", "2"),), columns=("w",)),)


def test_chunks_of_small_and_huge_tables() -> None:
    assert (chunk_count(0), chunk_count(5_000), chunk_count(10**10)) == (1, 5, 1 << 14)


def test_a_verification_that_compared_nothing_is_not_equal() -> None:
    position = Position("server", "log.000001", 4, 0)

    def report(*tables: TableResult) -> VerifyReport:
        return VerifyReport("v", position, 3, 1.0, tables)

    name = TableName("d", "t")
    good = TableResult(name, "compared", True, 1, 1, 1, 0)
    assert report(good, TableResult(name, "paused"), TableResult(name, "dropped")).equal
    assert not report(TableResult(name, "dropped")).equal
    stopped = report(good, TableResult(name, "stopped"))
    assert not stopped.equal
    assert "1 of 1 tables equal, 1 not compared, at log.000001:4" in stopped.to_text()
    with pytest.raises(CheckFailed, match=r"not compared with the server: d[.]t"):
        stopped.refuse_unequal()
    assert not report(good, TableResult(name, "resnapshot")).equal
    assert not report(good, TableResult(name, "failed", reason="behind")).equal
    assert not report(good, TableResult(name, "compared", False, 1, 0, 1, 1)).equal
    assert report(good).to_json()["tables"][0]["name"] == "d.t"


def test_a_repair_is_noted_with_what_it_found_and_what_the_comparison_behind_it_found() -> None:
    name = TableName("d", "t")
    rows = (DifferingRow("changed", (("id", "2"),)), DifferingRow("extra", (("id", "3"),)))
    repaired = TableRepair("repaired", {"changed": 5, "extra": 1}, 8)
    found = TableResult(name, "compared", False, 9, 10, 1, 1, rows, delta_version=7)
    report = VerifyReport("v", None, None, 1.0, (replace(found, repair=repaired),))
    before, after = verify._rows(report, with_keys=True)
    assert [(row.equal, row.differing_rows, row.lake_rows) for row in (before, after)] == [
        (False, 6, 10), (True, None, 9)
    ]  # fmt: skip
    assert (before.delta_version, after.delta_version, after.at_us - before.at_us) == (7, 8, 1)
    shown = {"kind": "changed", "count": 1, "columns": [], "key": {"id": "2"}}
    assert (json.loads(before.rows)[0], json.loads(after.rows)) == (shown, [])
    without, _ = verify._rows(report, with_keys=False)
    assert [row["key"] for row in json.loads(without.rows)] == [{}, {}]
    assert report.headline.startswith("1 of 1 tables equal, repaired d.t: 5 changed, 1 extra, at the position")
    refused = VerifyReport("v", None, None, 1.0, (replace(found, repair=TableRepair("refused", {})),))
    assert [(row.equal, row.differing_rows) for row in verify._rows(refused, with_keys=False)] == [(False, 2)]
    assert refused.headline.startswith("0 of 1 tables equal at the position")


def test_text_shows_keys_unharmed_by_control_characters() -> None:
    rows = (DifferingRow("missing", (("k", "a\x1b[2J\nb"),)),)
    text = TableResult(TableName("d", "t"), "compared", False, 1, 0, 1, 1, rows).to_text()
    assert 'missing: k="a\\u001b[2J\\nb"' in text


def test_a_log_counts_differing_rows_and_masks_their_keys() -> None:
    rows = (
        *(DifferingRow("changed", (("email", f"{who}@example.org"),), columns=("v",)) for who in ("ann", "bob")),
        DifferingRow("missing", (("email", "carl@example.org"),)),
    )
    table = TableResult(TableName("d", "t"), "compared", False, 3, 2, 1, 1, rows)
    report = VerifyReport("v", Position("s", "log.000001", 4, 1), 1, 0.5, (table,))
    text = report.to_text_without_keys()
    assert "example.org" not in text
    assert 'changed x2: email="***" in v' in text
    assert 'missing: email="***"' in text
    assert "ann@example.org" in report.to_text()


def test_masked_columns_of_keys_are_masked_for_everybody() -> None:
    key = (("Email", "ann@example.org"), ("n", "7"))
    row = DifferingRow("extra", key).masked({"email"})
    assert row.key == (("Email", "***"), ("n", "7"))
    without = DifferingRow("extra", (("row hash", "0123"),))
    assert without.masked() == without
