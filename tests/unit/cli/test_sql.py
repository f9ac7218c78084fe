"""``binlake sql`` and ``binlake views`` on a small lake: queries, statements on standard input, the prompt."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from binlake.cli import command_line
from binlake.cli.sql_prompt import Prompt, cut
from binlake.errors import UsageError
from binlake.lake.opened_lake import open_lake
from recorded_lake import record_lake

Run = Callable[..., int]


@pytest.fixture(scope="module")
def yaml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sql")
    note = pa.field("note", pa.string(), metadata={"comment": "what they said"})
    orders = pa.table([[1, 2], ["a", None]], pa.schema([pa.field("id", pa.int64()), note]))
    record_lake(
        folder / "lake" / "shop",
        {"shop.orders": orders, "shop.Odd name": pa.table({"Mixed": [7]})},
        {"shop.orders": pa.table({"id": [3], "note": ["c"]})},
        {"shop.Odd name": pa.table({"Mixed": [8]})},
    )
    yaml = folder / "shop.yaml"
    yaml.write_text(
        "source: {name: shop, connection: shop_mysql, server_id: 4001}\n"
        f"tables: {{include: ['shop.*']}}\nlake: {{path: {folder}/lake}}\n"
    )
    return yaml


@pytest.fixture
def run(yaml: Path) -> Run:
    return lambda command, *arguments: command_line.run([command, "--config", str(yaml), *arguments])


def test_a_query_is_answered_at_the_newest_batch(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sql", "SELECT id, note FROM shop.orders ORDER BY id") == 0
    assert capsys.readouterr().out == "id | note\n---+-----\n 1 | a\n 2 | NULL\n 3 | c\n(3 rows)\n"


@pytest.mark.parametrize(
    ("version", "rows"),
    [
        ((), 2),
        (("--batch", "1"), 1),
        (("--as-of", "1970-01-01T01:59"), 1),
        (("--as-of", "1970-01-01T02:00:00+00:00"), 2),
    ],
)
def test_a_version_is_chosen(run: Run, capsys: pytest.CaptureFixture[str], version: tuple[str, ...], rows: int) -> None:
    assert run("sql", *version, "--format", "json", 'SELECT count(*) AS n FROM "Odd name"') == 0
    assert json.loads(capsys.readouterr().out) == {"n": rows}


def test_rows_are_written_to_a_file(run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("sql", "--format", "csv", "--output", str(tmp_path / "rows.csv"), "SELECT * FROM shop.orders") == 0
    assert capsys.readouterr().out == ""
    assert sorted((tmp_path / "rows.csv").read_text().splitlines()) == ['"id","note"', '1,"a"', "2,", '3,"c"']


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("SELECT * FROM shop.order",), "there is no table shop.order; did you mean shop.orders?"),
        (("SELECT nothing FROM shop.orders",), "No field named nothing"),
        (("DELETE FROM shop.orders",), "DELETE isn't a query"),
        (("--batch", "9", "SELECT 1"), "batch 9 isn't known as a version"),
        (("--name", "month_end", "SELECT 1"), "month_end"),
        (("--as-of", "1969-12-31", "SELECT 1"), "no version is as old as"),
        (("--as-of", "yesterday", "SELECT 1"), "--as-of 'yesterday' is not a time"),
        (("--as-of", "", "SELECT 1"), "--as-of '' is not a time"),
    ],
)
def test_wrong_use_ends_with_2(
    run: Run, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert run("sql", *arguments) == 2
    output = capsys.readouterr()
    assert said in output.err
    assert output.out == ""


def test_parquet_is_for_files_and_programs(
    run: Run, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("sql", "--format", "parquet", "SELECT id FROM shop.orders ORDER BY id") == 0
    assert parquet.read_table(io.BytesIO(capfdbinary.readouterr().out))["id"].to_pylist() == [1, 2, 3]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run("sql", "--format", "parquet", "SELECT 1") == 2
    assert b"Parquet isn't for a terminal" in capfdbinary.readouterr().err


def test_a_plan_can_be_read(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sql", "EXPLAIN SELECT id FROM shop.orders WHERE id > 1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "logical_plan"
    assert lines[1].startswith("  ")
    assert "physical_plan" in lines


def test_values_are_cut_at_a_width(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sql", "--width", "4", "SELECT 'abcdef' AS a, 'abcd' AS b") == 0
    assert capsys.readouterr().out == "a    | b\n-----+-----\nabc… | abcd\n(1 row; 1 value is cut at 4 characters)\n"


def test_rows_are_shown_expanded(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sql", "--format", "expanded", "SELECT id, note FROM shop.orders WHERE id < 3 ORDER BY id") == 0
    assert capsys.readouterr().out == (
        "-[ row 1 ]-\nid   | 1\nnote | a\n-[ row 2 ]-\nid   | 2\nnote | NULL\n(2 rows)\n"
    )


def test_files_that_are_gone_end_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_lake(tmp_path / "lake" / "shop", {"shop.t": pa.table({"id": [1]})}, {})
    yaml = tmp_path / "shop.yaml"
    yaml.write_text(
        "source: {name: shop, connection: shop_mysql, server_id: 4001}\n"
        f"tables: {{include: ['shop.*']}}\nlake: {{path: {tmp_path}/lake}}\n"
    )
    for file in (tmp_path / "lake/shop/shop/t").glob("*.parquet"):
        file.unlink()
    assert command_line.run(["sql", "--config", str(yaml), "SELECT * FROM shop.t"]) == 3
    said = capsys.readouterr().err
    assert "shop.t: files of its Delta version 0 are gone" in said
    assert "binlake versions" in said


def test_statements_on_standard_input(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = (
        "SELECT ';' AS a\n  FROM shop.orders WHERE id = 1;\n\\at 1\nSELECT count(*) AS n\nFROM `Odd name`;\n\\q\n\\d"
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO(statements))
    assert run("sql", "--format", "csv") == 0
    assert capsys.readouterr().out.splitlines() == [
        '"a"', '";"', "batch 1, with all that was committed by 1970-01-01 01:00:00 UTC", '"n"', "1"
    ]  # fmt: skip
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 1;\nSELECT nothing;\nSELECT 2;"))
    assert run("sql", "--format", "csv") == 2
    assert capsys.readouterr().out.splitlines() == ['"Int64(1)"', "1"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 1 AS a; SELECT 2 AS b; \\at 1\n"))
    assert run("sql", "--format", "csv") == 0
    assert capsys.readouterr().out.splitlines()[:4] == ['"a"', "1", '"b"', "2"]


def test_a_command_of_the_prompt_may_be_an_argument(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sql", "\\d shop.orders") == 0
    assert "│ note   │ string │ what they said │" in capsys.readouterr().out


@pytest.mark.parametrize("written", ["orders", '"shop"."orders"', "shop.`orders`", "`orders`", '"orders";'])
def test_a_table_is_named_as_in_a_query(run: Run, capsys: pytest.CaptureFixture[str], written: str) -> None:
    assert run("sql", f"\\d {written}") == 0
    assert "│ note   │ string │ what they said │" in capsys.readouterr().out
    assert run("sql", "\\d sales.orders") == 2
    assert "there is no table sales.orders; did you mean shop.orders?" in capsys.readouterr().err


def test_a_file_takes_the_rows_of_one_query(yaml: Path, tmp_path: Path) -> None:
    prompt = Prompt(open_lake(yaml), "csv", tmp_path / "rows")
    with pytest.raises(UsageError, match="has the rows of the query before"):
        prompt.run("SELECT 1 AS n;\nSELECT 2 AS n;")
    assert (tmp_path / "rows").read_text() == '"n"\n1\n'


def test_the_prompt_goes_on_after_an_error(
    yaml: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    queries = ["SELECT nothing; SELECT 42;", "", "SELECT 43; SELECT count(*)", "FROM shop.orders;"]
    lines = iter([*queries, "\\nothing", "\\d order", "\\d shop.orders"])
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        for line in lines:
            return line
        raise EOFError

    monkeypatch.setattr("builtins.input", answer)
    Prompt(open_lake(yaml), "table").ask()
    output = capsys.readouterr()
    assert asked[:5] == ["lake=> ", "lake=> ", "lake=> ", "   ... ", "lake=> "]
    assert "       3\n(1 row)" in output.out
    assert output.out.index("      42\n") < output.out.index("      43\n"), "after the one that failed"
    assert "│ note   │ string │" in output.out
    assert "No field named nothing" in output.err
    assert "there is no command \\nothing" in output.err
    assert "there is no table order; did you mean shop.orders?" in output.err
    assert (tmp_path / "binlake" / "sql_history").stat().st_mode & 0o777 == 0o600


def test_commands_of_the_prompt(yaml: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = Prompt(open_lake(yaml), "table")
    prompt.run("\\d\n\\versions\n\\at 1970-01-01T01:30\n\\at\n\\?\n\\x\nSELECT 7 AS n;\\width 3\nhelp;\n")
    output = capsys.readouterr().out
    assert "│ shop.orders   │ 1             │" in output
    assert "binlog.000001:2000" in output
    assert "batch 1, with all" in output
    assert "batch 2, with all" in output
    assert output.count("\\d TABLE") == 2
    assert "-[ row 1 ]-\nn | 7\n" in output
    with pytest.raises(UsageError, match="is no number"):
        prompt.run("\\width wide")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("SEL", "SEL", ["SELECT"]),
        ("sel", "sel", ["SELECT"]),
        ("shop.", "SELECT * FROM shop.", ['shop."Odd name"', "shop.orders"]),
        ("no", "SELECT no FROM shop.orders", ["note"]),
        ("no", "SELECT no", []),
        ("mi", 'SELECT mi FROM shop."Odd name"', ["Mixed"]),
    ],
)
def test_words_are_completed(yaml: Path, text: str, line: str, words: list[str]) -> None:
    assert Prompt(open_lake(yaml), "table").completions(text, line) == words


@pytest.mark.parametrize(
    ("text", "statements", "pending"),
    [
        ("SELECT 1;", ["SELECT 1;"], ""),
        ("SELECT 1 ; \n", ["SELECT 1 ;"], ""),
        ("SELECT 1; -- over", ["SELECT 1;"], ""),
        ("SELECT 1; /* over", ["SELECT 1;"], "/* over"),
        ("SELECT 1; SELECT 2;\n", ["SELECT 1;", "SELECT 2;"], ""),
        ("SELECT 1; SELECT 2", ["SELECT 1;"], "SELECT 2"),
        ("SELECT 1; \\d a\nSELECT 2;", ["SELECT 1;", "\\d a", "SELECT 2;"], ""),
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT ';", [], "SELECT ';"),
        ("SELECT ';'", [], "SELECT ';'"),
        ("SELECT 'it''s;';", ["SELECT 'it''s;';"], ""),
        ('SELECT `;`; SELECT ";";', ["SELECT `;`;", 'SELECT ";";'], ""),
        ('SELECT ";', [], 'SELECT ";'),
        ("SELECT 1 -- ;", [], "SELECT 1 -- ;"),
        ("SELECT /* ;", [], "SELECT /* ;"),
        ("-- of ;\n", [], "-- of ;\n"),
        ("\\d", ["\\d"], ""),
        ("", [], ""),
    ],
)
def test_a_statement_ends_with_a_semicolon_outside_of_quotes(text: str, statements: list[str], pending: str) -> None:
    assert cut(text) == (statements, pending)


def test_views_are_printed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("views", "--dialect", "spark", "--batch", "1", "--tables", "shop.o*") == 0
    comment, database, view = capsys.readouterr().out.splitlines()
    assert comment == "-- server/binlog.000001:1000@1, committed 1970-01-01T01:00:00+00:00"
    assert database == "CREATE DATABASE IF NOT EXISTS `shop__at_1`;"
    assert view.startswith("CREATE OR REPLACE VIEW `shop__at_1`.`orders` AS SELECT * FROM delta.`/")
    assert view.endswith("/lake/shop/shop/orders` VERSION AS OF 1;")


def test_a_query_needs_no_pandas_no_kernels_and_no_spark(yaml: Path) -> None:
    """Each would be a good part of the second that a query may take."""
    program = (
        "import atexit, sys\nfrom binlake.cli import start\n"
        "unneeded = {'pandas', 'numba', 'pyspark', 'pymysql', 'sqlglot', 'airflow'}\n"
        "atexit.register(lambda: print(sorted(unneeded & sys.modules.keys())))\n"
        f"sys.argv = ['binlake', 'sql', '--config', {str(yaml)!r}, 'SELECT now(), * FROM shop.orders']\n"
        "start.main()"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "[]"), ended.stderr
