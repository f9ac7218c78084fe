"""What commands about tables say of names: with dots, and of tables that nobody knows."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from begun_source import begin
from binlake.caches import BOUNDS
from binlake.cli import command_line
from binlake.schema.table import TableName
from prometheus_text import parse

TABLES = (TableName("shop", "orders"), TableName("my.db", "orders"))
Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Commands for a source of two tables."""
    yaml = begin(tmp_path, TABLES)
    return lambda command, *options: command_line.run([*command.split(), "--config", str(yaml), *options])


@pytest.mark.parametrize(
    ("pattern", "tables"),
    [("my?db.*", ["my.db.orders"]), ("shop.*", ["shop.orders"]), ("*.orders", ["my.db.orders", "shop.orders"])],
)
def test_status_of_chosen_tables(run: Run, capsys: pytest.CaptureFixture[str], pattern: str, tables: list[str]) -> None:
    assert run("status", "--json", "--tables", pattern) == 0
    assert [row["table"] for row in json.loads(capsys.readouterr().out)["tables"]] == tables


def test_status_of_a_table_that_is_not_there(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("status", "--tables", "shop.*", "shop.ordrs") == 2
    assert "no table matches shop.ordrs" in capsys.readouterr().err
    assert run("status", "--tables", "shop.*", "--state", "stopped") == 0


def test_a_verbose_status_tells_what_caches_keep(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    assert run("status", "--json") == 0
    assert "cache of" not in caplog.text
    with caplog.at_level(logging.DEBUG, "binlake"):  # it is what it was afterwards
        assert run("status", "--json", "--verbose") == 0
    kept = [line for line in caplog.messages if line.startswith("cache of")]
    assert len(kept) == len(BOUNDS)
    assert any(re.fullmatch(r"cache of (answers|data files) of metadata: [1-9]\d* of \d+ \w+", line) for line in kept)


def test_metrics_are_those_of_the_metadata(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The server isn't there, and isn't asked."""
    assert run("metrics") == 0
    of_source = parse(capsys.readouterr().out)
    assert of_source["binlake_tables"].value(source="shop", status="following") == len(TABLES)
    assert run("metrics", "--by-table") == 0
    of_tables = parse(capsys.readouterr().out)
    assert of_tables["binlake_table_status"].value(table="my.db.orders", status="following") == 1
    assert "binlake_table_status" not in of_source


def test_a_file_of_metrics_appears_complete(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Node exporter may read it at any moment, as another user."""
    folder = tmp_path / "textfiles"
    folder.mkdir()
    file = folder / "shop.prom"
    file.write_text("from before\n")
    seen: list[list[str]] = []
    replace = os.replace

    def replaced(partial: str, path: Path) -> None:
        seen.append([entry.name for entry in folder.iterdir() if entry.name.endswith(".prom")])
        assert file.read_text() == "from before\n"
        parse(Path(partial).read_text())
        replace(partial, path)

    monkeypatch.setattr(os, "replace", replaced)
    assert run("metrics", "--output", str(file)) == 0
    assert (seen, [entry.name for entry in folder.iterdir()]) == ([["shop.prom"]], ["shop.prom"])
    assert "binlake_health" in parse(file.read_text())
    mask = os.umask(0)
    os.umask(mask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~mask
    assert capsys.readouterr().out == ""
    assert run("metrics", "--output", str(tmp_path / "nowhere" / "shop.prom")) == 2
    assert "can't write" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["--lake", "--self-test", "--iceberg"])
def test_a_check_of_a_table_that_is_not_there(run: Run, capsys: pytest.CaptureFixture[str], way: str) -> None:
    """The others alone would be found right."""
    assert run("verify", way, "--tables", "shop.orders", "shop.ordrs") == 2
    assert "no table that follows the log matches shop.ordrs" in capsys.readouterr().err


def test_decisions_about_a_table_whose_database_has_a_dot(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("table pause", "--table", "my.db.orders", "--why", "x") == 0
    assert "my.db.orders is paused" in capsys.readouterr().out
    assert run("table resnapshot", "--table", "my.db.orders", "--why", "x") == 0
    assert run("status", "--json", "--state", "resnapshot") == 0
    assert '"table": "my.db.orders"' in capsys.readouterr().out
    assert run("table pause", "--table", "my.db.ordrs", "--why", "x") == 2


@pytest.mark.parametrize("command", ["table pause", "table resnapshot", "history"])
def test_a_command_about_a_table_without_a_snapshot(run: Run, capsys: pytest.CaptureFixture[str], command: str) -> None:
    why = [] if command == "history" else ["--why", "x"]
    assert run(command, "--table", "shop.new", *why) == 2
    said = capsys.readouterr().err
    assert "shop.new isn't known here: the lake has no snapshot of it" in said
    assert "if the server has it, run binlake snapshot --config FILE --tables 'shop.new'" in said


def test_a_name_in_another_case(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("table pause", "--table", "shop.Orders", "--why", "x") == 2
    assert "shop.Orders isn't known here; there is shop.orders\n" in capsys.readouterr().err


def test_the_history_of_a_table_that_nobody_knows(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert [run("history", "--table", name) for name in ("shop.orders", "my.db.orders")] == [0, 0]
    assert run("history", "--table", "shop.ordrs") == 2
    assert "shop.ordrs isn't known here" in capsys.readouterr().err
