"""A broken YAML is fixed on the page: by whom, what may be changed, and what keeps it from being saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from airflow_page import add, client, get, post, viewer
from binlake import config
from binlake_airflow.page.settable import is_fixable, unfixable_sections

FIXED = "source: {name: bank, connection: bank_mysql, server_id: 4101}\ntables: {include: ['bank.*']}\n"
BROKEN = FIXED + "tabels: {}\n"


@pytest.fixture
def lake(folder: Path) -> str:
    """The line with which each text here ends; beside it a good source."""
    add(folder).write()
    return f"lake: {{path: {folder.parent}/lake}}\n"


@pytest.fixture
def admin(server: Any) -> TestClient:
    return client(server, "ada", "ADMIN")


def fix(user: TestClient, file: Path, text: str) -> list[tuple[str, str]]:
    """Key and text of what is wrong with a new text; if nothing is, it is saved."""
    asked = {"text": text, "mark": get(user, f"broken/{file.name}")["mark"]}
    before = file.read_bytes()
    found = post(user, f"broken/{file.name}/check", **asked)["problems"]
    assert file.read_bytes() == before, "a check writes nothing"
    answer = post(user, f"broken/{file.name}/write", 422 if found else 200, **asked, why="it was misspelt")
    assert file.read_text() == (before.decode() if found else text)
    assert answer.get("problems", []) == found
    return [(problem["key"], problem["text"]) for problem in found]


def test_those_who_may_add_a_source_fix_a_broken_yaml_and_nobody_else(
    server: Any, folder: Path, lake: str, admin: TestClient
) -> None:
    file = folder / "bank.yaml"
    file.write_text(BROKEN + lake)
    shown = {source["file"]: source["may"] for source in get(admin, "sources")["sources"]}
    assert shown["bank.yaml"] == {"fix": True}
    shown = {source["file"]: source["may"] for source in get(viewer(server), "sources")["sources"]}
    assert shown["bank.yaml"] == {"fix": False}
    asked = {"text": FIXED + lake, "mark": get(admin, "broken/bank.yaml")["mark"]}
    others = [(client(server, None), 401), (client(server, "nobody", "USER"), 403), (viewer(server), 403),
              (client(server, "bank", "USER"), 403)]  # fmt: skip
    for user, status in others:
        get(user, "broken/bank.yaml", status)
        for step in ("check", "write"):
            post(user, f"broken/bank.yaml/{step}", status, **asked)
    assert file.read_text() == BROKEN + lake
    assert fix(admin, file, BROKEN.replace("bank.*", "bank.a") + lake)[0][0] == "tabels"
    assert fix(admin, file, FIXED + lake) == []
    assert config.load(file).source.name == "bank"
    for path in ("bank.yaml", "shop.yaml", "nowhere.yaml", "..%2Fshop.yaml"):
        get(admin, f"broken/{path}", 404)


def test_a_doubled_name_is_changed_to_one_that_is_free(folder: Path, lake: str, admin: TestClient) -> None:
    file = folder / "later.yaml"
    file.write_text(FIXED.replace("name: bank", "name: shop") + lake)
    ((key, said),) = fix(admin, file, file.read_text() + "schedule: '0 * * * *'\n")
    assert (key, said) == ("source.name", "'shop' is the source of shop.yaml: give each source a name of its own")
    assert fix(admin, file, FIXED + lake) == []
    assert {source["source"] for source in get(admin, "sources")["sources"]} == {"shop", "bank"}


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("spark: {jars: [/tmp/x.jar]}", "spark.jars"),
        ("airflow: {notify: [{when: [lag], notifier: os.system}]}", "airflow.notify"),
        ("page: {show_values: true}", "page.show_values"),
    ],
)
def test_what_names_code_or_viewers_stays_as_it_is(
    folder: Path, lake: str, admin: TestClient, section: str, key: str
) -> None:
    file = folder / "bank.yaml"
    for before, after in (("", section), (section, "")):
        file.write_text(f"{BROKEN}{before}\n{lake}")
        ((named, said),) = fix(admin, file, f"{FIXED}{after}\n{lake}")
        assert named == key
        assert "isn't changed here" in said
    assert fix(admin, file, f"{FIXED}{section}\n{lake}") == []


def test_of_a_file_that_is_not_yaml_what_cannot_be_compared_is_refused(
    folder: Path, lake: str, admin: TestClient
) -> None:
    file = folder / "bank.yaml"
    file.write_text(FIXED.replace("4101}", "4101") + lake)
    found = fix(admin, file, FIXED.replace("4101}", "4101, allow_cleartext: true}") + lake)
    assert [key for key, _ in found] == ["source.allow_cleartext"]
    assert fix(admin, file, FIXED + lake) == []
    file.write_text(FIXED.replace("4101}", "4101") + "page: {mask_columns: [bank.a.b]}\n" + lake)
    assert [key for key, _ in fix(admin, file, FIXED + lake)] == ["page"]
    file.write_text("{ source: [\n")
    assert fix(admin, file, FIXED + lake)[0][1].startswith("what it holds can't be compared")


def test_a_folder_in_a_connection_s_place_is_not_taken(folder: Path, lake: str, admin: TestClient) -> None:
    file = folder / "bank.yaml"
    file.write_text(BROKEN + lake)
    moved = FIXED.replace("bank_mysql", "file:///etc").replace(", server_id: 4101", "")
    assert "source.connection" in [key for key, _ in fix(admin, file, moved + lake)]


def test_keys_that_are_fixed() -> None:
    of_what_is_read = {"columns", "rows", "merge_tables", "on_schema_change"}
    assert unfixable_sections() == {"airflow", "catalog", "feeds", "iceberg", "page", "spark", *of_what_is_read}
    assert [is_fixable(key) for key in (("lake", "path"), ("lake", "connection"), ("shedule",))] == [True, False, True]
