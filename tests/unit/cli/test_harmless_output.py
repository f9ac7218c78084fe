"""Names rule no terminal: neither in what a command prints there, nor in a log."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from binlake.cli import command_line, printing, query_output
from binlake.errors import UsageError, resume_command, snapshot_command
from binlake.names import matches, shell_quote
from binlake.report import HarmlessStream, Report, harmless
from binlake.schema.table import TableName
from binlake_airflow.task_log import HarmlessLogger, TaskReport

NAME = "a\x1b[2J\x9b1mb\u202egpj.\u2066exe\u200b\u2028\r\x7f"
SHOWN = r"a\u001b[2J\u009b1mb\u202egpj.\u2066exe\u200b\u2028\u000d\u007f"


class Terminal(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        buffer: Any = self.buffer
        return str(buffer.getvalue().decode())


def test_what_is_harmless_stays() -> None:
    for text in ("line\nline\tand é 漢 😀 עברית العربية", "", "a\\u001b"):
        assert harmless(text) == text
    assert harmless(NAME) == SHOWN
    assert json.loads(f'"{SHOWN}"') == NAME


FORGED = "2026-11-29 00:00:00 forged"


def test_a_line_feed_in_a_name_begins_no_line() -> None:
    name = TableName("d", f"t\n{FORGED}")
    assert f"{name}" == f"d.t\\u000a{FORGED}"
    assert str(name) == f"d.t\n{FORGED}"
    command = snapshot_command(name)
    assert command == f"binlake snapshot --config FILE --tables 'd.t?{FORGED}'"
    assert matches(f"d.t?{FORGED}", name.database, name.table)
    assert "\n" not in resume_command(name)


def test_a_shell_reads_a_quoted_name_as_it_is() -> None:
    name = f"it's\\n a\n{FORGED}\r\t'$(false)'\x7f"
    quoted = shell_quote(name)
    assert "\n" not in quoted
    assert (
        subprocess.run(["bash", "-c", f"printf %s {quoted}"], capture_output=True, check=True).stdout.decode() == name
    )


def test_further_lines_of_an_entry_are_indented(caplog: pytest.LogCaptureFixture) -> None:
    said, shown = f"said\n{FORGED}\n  → nothing\n", f"said\n  {FORGED}\n  → nothing\n"
    stream = io.StringIO()
    Report(stream).say(said)
    assert stream.getvalue() == f"{shown}\n"
    logger = logging.getLogger("test_entries")
    with caplog.at_level(logging.INFO):
        TaskReport(logger).say(said)
        HarmlessLogger(logger).warning("%s", said)
    assert [record.getMessage() for record in caplog.records] == [shown, shown]


def test_a_cell_of_a_table_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    printing.table("", ["table"], [[f"t\n{FORGED}"]])
    assert f"t\\u000a{FORGED}" in capsys.readouterr().out


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """The terminal that standard output is from now on."""
    made = Terminal()
    monkeypatch.setattr(sys, "stdout", made)
    return made


def run(monkeypatch: pytest.MonkeyPatch, work: Any) -> int:
    monkeypatch.setattr(command_line, "_run", lambda _: work())
    return command_line.run([])


def test_a_terminal_gets_names_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)

    def work() -> None:
        print(f"table {NAME}")
        printing.table(NAME, [NAME], [[NAME]])
        printing.as_json({"table": NAME})

    assert run(monkeypatch, work) == 0
    assert NAME not in terminal.text
    assert f"table {SHOWN}" in terminal.text
    assert "\u202e" not in terminal.text
    assert "\x1b[2J" not in terminal.text


def test_a_program_gets_what_is_printed_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, lambda: print(NAME)) == 0
    assert capsys.readouterr().out == f"{NAME}\n"


def test_errors_and_reports_are_escaped_wherever_they_go(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        Report().say(f"copied {NAME}")
        raise UsageError(f"no table {NAME}", remedy=f"exclude {NAME}")

    assert run(monkeypatch, work) == 2
    said = capsys.readouterr().err
    assert f"copied {SHOWN}" in said
    assert f"no table {SHOWN}" in said
    assert NAME not in said


def test_csv_on_a_terminal_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    rows = pa.record_batch({"v": [NAME, "é" * 10_000]})
    assert query_output.write(rows.schema, [rows], "csv", None) == 2
    assert SHOWN in terminal.text
    assert "é" * 10_000 in terminal.text
    assert "\x1b" not in terminal.text


def test_task_logs_are_escaped(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("test_task_logs")
    with caplog.at_level(logging.INFO):
        TaskReport(logger).say(f"said {NAME}")
        HarmlessLogger(logger).warning("%s has %d rows", NAME, 7)
    assert [record.getMessage() for record in caplog.records] == [f"said {SHOWN}", f"{SHOWN} has 7 rows"]


def test_bars_are_drawn_on_the_stream_itself() -> None:
    made = Terminal()
    with Report(HarmlessStream(made)).progress("staged") as progress:  # type: ignore[arg-type]
        progress(1, 2, NAME)
    assert "\x1b[" in made.text
    assert "\u202e" not in made.text
