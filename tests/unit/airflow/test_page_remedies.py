"""Remedies on the page name its own buttons, which are offered beside them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_page import add, get, viewer
from binlake import errors
from binlake.records import failures, watermarks
from binlake.schema.table import TableName
from binlake.store.metadata import now_us
from binlake_airflow.page.app import STATIC
from binlake_airflow.page.remedies import BUTTONS, Answer, Fix, on_the_page

ORDERS = TableName("shop", "orders")
PLAIN = ("shop.orders",)


@pytest.mark.parametrize(
    ("remedy", "words", "fixes"),
    [
        ("run binlake sync to finish it, then resume", "“Sync now” to finish it, then resume", [Fix("sync")]),
        (errors.snapshot_again(ORDERS), "snapshot this table again: “Snapshot now”", [Fix("bootstrap", PLAIN)]),
        (errors.resume_command(ORDERS), "“Resume”", [Fix("resume", PLAIN)]),
        (errors.resnapshot_again(ORDERS), "snapshot it again: “Snapshot at next sync”", [Fix("resnapshot", PLAIN)]),
        (
            errors.repair_command(ORDERS),
            "“Repair”; where it can't, “Snapshot now”",
            [Fix("repair", PLAIN), Fix("bootstrap", PLAIN)],
        ),
        (
            errors.catch_up_again(ORDERS),
            "read what it missed while the server has it: “Resume”; or snapshot this table again: “Snapshot now”",
            [Fix("resume", PLAIN), Fix("bootstrap", PLAIN)],
        ),
        ("patterns are database.table; binlake status lists the tables",
         "patterns are database.table; this page lists the tables", []),
        ("at once with: binlake unlock --config FILE --why …", "at once with: “Unlock”", [Fix("unlock")]),
        ("first: binlake versions unpin --config FILE before", "first: “Unpin” before", [Fix("unpin")]),
        # What no button does stays a command.
        ("binlake replay --config FILE --in-place", "binlake replay --config FILE --in-place", []),
        ("binlake snapshot --config FILE --begin", "binlake snapshot --config FILE --begin", []),
        ("run binlake synchronize", "run binlake synchronize", []),
        ("binlake help yaml shows a whole file", "binlake help yaml shows a whole file", []),
        ("binlake feed --feed f --restart-from lake", "binlake feed --feed f --restart-from lake", []),
    ],
)  # fmt: skip
def test_commands_become_buttons(remedy: str, words: str, fixes: list[Fix]) -> None:
    assert on_the_page(remedy) == (words, tuple(fixes))


@pytest.mark.parametrize("table", ["a b", "it's", "x; y", "a,b", "50%", "--keys", "tab\tle", "a*b", "back\\slash"])
def test_odd_names_leave_nothing_of_a_command(table: str) -> None:
    name = TableName("shop", table)
    for remedy in (errors.snapshot_command(name), errors.resume_command(name)):
        words, (fix,) = on_the_page(f"{remedy}, then look")
        assert re.fullmatch("“(Snapshot now|Resume)”, then look", words)
        assert fix.tables in ((), (str(name),))


def test_a_placeholder_is_no_table() -> None:
    assert on_the_page(errors.DIFFERING_REMEDY)[1] == (Fix("repair"),)
    assert on_the_page("binlake snapshot --config FILE --tables DATABASE.TABLE")[1] == (Fix("bootstrap"),)


def test_remedies_are_found_at_any_depth() -> None:
    sync = {"do": "sync", "tables": []}
    said = Answer({"a": [{"remedy": "run binlake sync", "b": ({"remedy": None},)}], "remedy": "wait"})
    assert json.loads(bytes(said.body)) == {
        "a": [{"remedy": "“Sync now”", "fixes": [sync], "b": [{"remedy": None}]}], "remedy": "wait",
    }  # fmt: skip


def test_buttons_have_the_words_of_the_page() -> None:
    scripts = [(STATIC / name).read_text() for name in ("actions.js", "source_actions.js")]
    for _, words in BUTTONS.values():
        assert any(f'"{words}"' in script for script in scripts)


def test_a_stopped_tables_buttons_are_those_that_fix_its_reason(server: Any, folder: Path) -> None:
    past = add(folder).write()
    row = next(row for row in watermarks.read(past.metadata) if row.table == "table_0001")
    stopped = {"status": "stopped", "reason": "its key is gone", "remedy": errors.snapshot_again(row.name)}
    watermarks.write(past.metadata, [replace(row, **stopped)])  # type: ignore[arg-type]
    user = viewer(server)
    tables = {row["table"]: row for row in get(user, "sources/shop/tables")["tables"]}
    shown = {key: tables["shop.table_0001"][key] for key in ("remedy", "fixes")}
    assert shown == {
        "remedy": "snapshot this table again: “Snapshot now”",
        "fixes": [{"do": "bootstrap", "tables": ["shop.table_0001"]}],
    }
    failures.note(
        past.metadata, "merge", f"it can't be read\n  → fix it, then: {errors.resume_command(row.name)}", now_us()
    )
    (failed,) = [line for line in get(user, "sources/shop")["advice"] if "failed in merge" in line["what"]]
    assert (failed["remedy"], failed["fixes"]) == (
        "fix it, then: “Resume”", [{"do": "resume", "tables": ["shop.table_0001"]}]
    )  # fmt: skip
    (event,) = get(user, "sources/shop/events?kind=failed")["events"]
    assert event["remedy"] == "fix it, then: “Resume”"
