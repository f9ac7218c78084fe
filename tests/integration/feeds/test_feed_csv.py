"""The CSV logger: every event of chosen databases but for excluded tables, in files by the hour or by their size."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest

from binlake.feeds.formats.csvlog import COLUMNS
from feeding import carried, feed
from mirror import Mirror, on_mysql

if TYPE_CHECKING:
    pass


@pytest.fixture
def mirror(mirror: Mirror) -> Mirror:
    mirror.follow_from_here()
    return mirror


def logged(mirror: Mirror) -> dict[str, list[dict[str, str]]]:
    """Rows by file."""
    folder = mirror.folder / "out" / "tests"
    by_table: dict[str, list[dict[str, str]]] = {}
    for path in sorted(folder.glob("*.log")):
        with path.open(newline="") as file:
            by_table[path.name] = [dict(zip(COLUMNS, row, strict=True)) for row in csv.reader(file)]
    return by_table


@on_mysql
def test_each_event_is_a_line_of_its_hour(mirror: Mirror) -> None:
    config = feed(mirror, format="csv", exclude=[f"{mirror.database}.noise"])
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "CREATE TABLE noise (id INT)",
        "INSERT INTO t VALUES (1, 'a \"quoted\", \\n ä')", "INSERT INTO noise VALUES (1)",
        "UPDATE t SET v = NULL", "DELETE FROM t",
    )  # fmt: skip
    mirror.sync()
    carried(mirror, config)
    files = logged(mirror)
    rows = [row for of_hour in files.values() for row in of_hour]
    assert [row["operation"] for row in rows] == ["create table", "insert", "update", "delete"]
    assert {row["table"] for row in rows} == {"t"}
    before, after = {"id": 1, "v": 'a "quoted", \n ä'}, {"id": 1, "v": None}
    assert [(row["before"], row["after"]) for row in rows[1:]] == [
        ("", json.dumps(before, ensure_ascii=False)),
        (json.dumps(before, ensure_ascii=False), json.dumps(after)),
        (json.dumps(after), ""),
    ]
    assert {row["key"] for row in rows[1:]} == {'{"id": 1}'}
    hours = {row["committed"][:13].replace(" ", "T") for row in rows}
    assert files.keys() == {f"{mirror.database}.{hour}.log" for hour in hours}


@on_mysql
def test_a_file_has_its_size_at_most(mirror: Mirror) -> None:
    sink = {"url": f"file://{mirror.folder}/out", "settings": {"file_mb": 0.002}}
    config = feed(mirror, format={"type": "csv", "topic": "all"}, sink=sink)
    mirror.execute("CREATE TABLE t (id INT)")
    for first in range(0, 40, 10):
        mirror.execute(f"INSERT INTO t VALUES ({'), ('.join(map(str, range(first, first + 10)))})")
        mirror.sync()
        carried(mirror, config)
    files = logged(mirror)
    assert set(files) >= {"all.log", "all.1.log"}
    assert all((mirror.folder / "out" / "tests" / name).stat().st_size <= 2000 for name in files)
    seen = [json.loads(row["after"])["id"] for rows in files.values() for row in rows if row["operation"] == "insert"]
    assert sorted(seen) == list(range(40))
