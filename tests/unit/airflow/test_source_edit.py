"""Editing a source's YAML on the page: who may change what, the difference, the errors, and the file as it is saved."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.models.log import Log
from airflow.utils.session import create_session
from fastapi.testclient import TestClient
from sqlalchemy import delete, select

from airflow_page import add, client, get, post, viewer
from binlake import config
from binlake.config.policies import Policy
from binlake.errors import UsageError
from binlake_airflow.page import edited_yaml
from binlake_airflow.page.app import STATIC
from binlake_airflow.page.settable import changed_keys, is_settable, lets_more_out
from past import Past

COMMENTED = """
# The shop, owned by the web team.
source: {{name: shop, connection: shop_mysql, server_id: 4001}}  # ids up to 4016
tables:
  include: ["shop.*"]
  exclude_columns: [shop.*.password]  # never
lake: {{path: "{lake}"}}
schedule: "0 * * * *"
"""


@pytest.fixture
def past(folder: Path) -> Past:
    past = add(folder).write()
    (folder / "shop.yaml").write_text(COMMENTED.format(lake=folder.parent / "lake"))
    return past


def editor(server: Any) -> TestClient:
    """Who may do all with the DAGs of the shop, and add no source."""
    return client(server, "shop", "USER")


def opened(user: TestClient) -> dict[str, Any]:
    answer = get(user, "sources/shop/yaml")
    return {"text": answer["text"], "mark": answer["mark"]}


def problems(user: TestClient, old: str, new: str) -> list[tuple[int, str, str]]:
    """Line, key and text of what is wrong once ``old`` is ``new``; saving is refused alike, and does nothing."""
    given = opened(user)
    assert old in given["text"]
    edited = {**given, "text": given["text"].replace(old, new, 1)}
    answer = post(user, "sources/shop/yaml/check", **edited)
    refused = post(user, "sources/shop/yaml/write", 422, **edited)
    assert refused["problems"] == answer["problems"] != []
    assert opened(user) == given
    return [(problem["line"], problem["key"], problem["text"]) for problem in answer["problems"]]


def test_an_edit_shows_the_difference_and_keeps_comments(server: Any, folder: Path, past: Past) -> None:
    user, file = editor(server), folder / "shop.yaml"
    file.chmod(0o640)
    given, before = opened(user), file.read_text()
    wanted = {**given, "text": given["text"].replace('"0 * * * *"', '"*/5 * * * *"  # since May')}
    answer = post(user, "sources/shop/yaml/check", **wanted)
    assert answer["diff"] == [
        "--- shop.yaml, as it is", "+++ shop.yaml, edited", "@@ -5,4 +5,4 @@",
        '   include: ["shop.*"]', "   exclude_columns: [shop.*.password]  # never",
        f' lake: {{path: "{folder.parent / "lake"}"}}', '-schedule: "0 * * * *"',
        '+schedule: "*/5 * * * *"  # since May',
    ]  # fmt: skip
    assert (answer["changed"], answer["problems"]) == (["schedule"], [])
    assert "test_connection" in answer["unasked"], "no server is asked where Airflow allows none"
    assert file.read_text() == before, "a check writes nothing"
    with create_session() as session:
        session.execute(delete(Log).where(Log.event == "binlake_edit_source"))
    said = post(user, "sources/shop/yaml/write", **wanted, why="more often")["message"]
    assert "is saved" in said
    assert file.read_text() == before.replace('"0 * * * *"', '"*/5 * * * *"  # since May')
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [path.name for path in folder.iterdir()] == ["shop.yaml"]
    (row,) = past.metadata.read("decisions")
    done = ("edit", "shop", "more often", "changed schedule")
    assert (row["action"], row["who"], row["why"], row["result"]) == done
    with create_session() as session:
        log = session.scalars(select(Log).where(Log.event == "binlake_edit_source")).one()
    assert (log.owner, json.loads(str(log.extra))["changed"]) == ("shop", ["schedule"])
    assert "since May" not in str(log.extra), "the text isn't logged, whose values others may not see"
    event = get(user, "sources/shop/events?kind=decision")["events"][0]
    assert "more often" in json.dumps(event)


def test_a_file_that_was_changed_meanwhile_is_left_alone(server: Any, folder: Path, past: Past) -> None:
    user, file = editor(server), folder / "shop.yaml"
    wanted = {**opened(user), "text": opened(user)["text"] + "merge: {}\n"}
    file.write_text(file.read_text() + "# by another hand\n")
    for step in ("check", "write"):
        refused = post(user, f"sources/shop/yaml/{step}", 409, **wanted)
        assert "was changed since it was opened" in refused["detail"]
    assert file.read_text().endswith("# by another hand\n")
    now = edited_yaml.read(file)
    file.write_text(now.text + "# between the check and the write\n")
    with pytest.raises(UsageError, match="was changed since it was opened"):
        edited_yaml.save(now, "x")
    assert "merge" not in file.read_text()


@pytest.mark.parametrize(
    ("old", "new", "key", "line"),
    [
        ("schedule:", "spark: {jars: [/tmp/x.jar]}\nschedule:", "spark.jars", 8),
        ("schedule:", "spark:\n  conf: {spark.driver.extraJavaOptions: -x}\nschedule:", "spark.conf.spark.driver.", 9),
        ("schedule:", "airflow: {notify: [{when: [lag], notifier: os.system}]}\nschedule:", "airflow.notify", 8),
        ("schedule:", "airflow: {queue: others}\nschedule:", "airflow.queue", 8),
        (
            "schedule:",
            "feeds: [{name: a, include: ['shop.*'], format: text, sink: 'file:///x'}]\nschedule:",
            "feeds",
            8,
        ),
        ("schedule:", "page: {show_values: true}\nschedule:", "page.show_values", 8),
        ("schedule:", "catalog: {metastore: /tmp/x}\nschedule:", "catalog.metastore", 8),
        ("schedule:", "verify: {connection: other}\nschedule:", "verify.connection", 8),
        ("shop_mysql", "bank_mysql", "source.connection", 3),
        ("name: shop", "name: bank", "source.name", 3),
        ("4001}", "4001, allow_cleartext: true}", "source.allow_cleartext", 3),
        ("lake: {path:", "lake: {connection: x, path:", "lake.connection", 7),
        ('/lake"}', '/elsewhere"}', "lake.path", 7),
    ],
)
def test_what_names_code_places_accounts_or_viewers_is_changed_in_the_file_alone(
    server: Any, past: Past, old: str, new: str, key: str, line: int
) -> None:
    admin = client(server, "ada", "ADMIN")
    for user in (editor(server), admin):
        found = problems(user, old, new)
        assert any(named.startswith(key) and at == line for at, named, _ in found), found


def test_more_leaves_the_server_only_by_who_may_add_a_source(server: Any, folder: Path, past: Past) -> None:
    user, admin = editor(server), client(server, "ada", "ADMIN")
    wider = [('["shop.*"]', '["shop.*", "bank.*"]', "tables.include"),
             ("  exclude_columns: [shop.*.password]  # never\n", "", "tables.exclude_columns")]  # fmt: skip
    for old, new, key in wider:
        ((_, named, text),) = problems(user, old, new)
        assert named == key
        assert "lets more leave the server" in text
        given = opened(admin)
        answer = post(admin, "sources/shop/yaml/check", **{**given, "text": given["text"].replace(old, new)})
        assert answer["problems"] == []
    given = opened(user)
    narrower = given["text"].replace('["shop.*"]', '["shop.*"]\n  exclude: [shop.secret]')
    assert post(user, "sources/shop/yaml/check", mark=given["mark"], text=narrower)["problems"] == []


def test_errors_have_their_line_and_key(server: Any, past: Past) -> None:
    user = editor(server)
    assert problems(user, "schedule:", "shedule:") == [
        (8, "shedule", "there is no key 'shedule'; did you mean 'schedule'?")
    ]
    assert problems(user, '"0 * * * *"', "hourly")[0][:2] == (8, "schedule")
    assert problems(user, "shop.*.password]", "shop.*.password, x]")[0][:2] == (6, "tables.exclude_columns.1")
    assert problems(user, "schedule:", "verify: {schedule: [}\nschedule:")[0][0] == 8
    assert problems(user, "schedule:", "schedule: x\nschedule:")[0][0] == 9
    given = opened(user)
    assert post(user, "sources/shop/yaml/check", **given)["diff"] == []
    assert "nothing is changed" in post(user, "sources/shop/yaml/write", 409, **given)["detail"]


def test_nobody_and_viewers_neither_see_nor_save_the_text(server: Any, folder: Path, past: Past) -> None:
    before = (folder / "shop.yaml").read_bytes()
    given = {**opened(editor(server)), "text": "x: y"}
    others = {None: 401, "bank": 403, "nobody": 403, "viewer": 403}
    for name, status in others.items():
        user = viewer(server) if name == "viewer" else client(server, name, "USER")
        get(user, "sources/shop/yaml", status)
        for step in ("check", "write"):
            post(user, f"sources/shop/yaml/{step}", status, **given)
    by_cookie = client(server, None)
    by_cookie.cookies.set("_token", editor(server).headers["authorization"].removeprefix("Bearer "))
    answer = by_cookie.post("/binlake/api/sources/shop/yaml/write", json=given, headers={"sec-fetch-site": "same-site"})
    assert (answer.status_code, answer.json()["detail"]) == (403, "this was asked by a page of another site")
    assert (folder / "shop.yaml").read_bytes() == before


def test_line_ends_links_and_places_that_cant_be_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, linked = tmp_path / "real" / "a.yaml", tmp_path / "a.yaml"
    lines = COMMENTED.format(lake=tmp_path).splitlines()
    real.write_bytes("\r\n".join([*lines, ""]).encode())
    linked.symlink_to(real)
    now = edited_yaml.read(linked)
    new = edited_yaml.edited(now, now.text.replace("\r\n", "\n") + "merge: {without_spark_mb: 1}", may_add=False)
    assert [line for line in new.diff if line[0] in "+-"][2:] == ["+merge: {without_spark_mb: 1}"]
    edited_yaml.save(now, new.text)
    assert linked.is_symlink()
    assert real.read_bytes() == "\r\n".join([*lines, "merge: {without_spark_mb: 1}", ""]).encode()
    assert config.load(linked).merge.without_spark_mb == 1
    (tmp_path / "latin.yaml").write_bytes("# é".encode("latin-1"))
    with pytest.raises(UsageError, match="isn't UTF-8"):
        edited_yaml.read(tmp_path / "latin.yaml")


def test_a_file_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(COMMENTED.format(lake=tmp_path))
    now = edited_yaml.read(file)
    file.unlink()
    with pytest.raises(UsageError, match="can't write"):
        edited_yaml.save(now, "x: y\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("{}", "airflow: {lag_minutes: 5, notify: []}", ["airflow.lag_minutes", "airflow.notify"]),
        ("verify: {connection: a, by: read}", "verify: {by: read}", ["verify.connection"]),
        ("spark: {conf: {spark.a: 1}}", "{}", ["spark.conf.spark.a"]),
        ("follow: {}", "follow: null", ["follow"]),
        ("a: {b: 1}", "a: 1", ["a.b"]),
        ("a: 1", "a: true", ["a"]),
        ("x: &x {p: 1}\nspark: *x", "x: &x {p: 2}\nspark: *x", ["x.p", "spark.p"]),
        ("tables: {include: [a.b, c.d]}", "tables: {include: [c.d, a.b]}", ["tables.include"]),
    ],
)
def test_changed_keys_are_leaves(before: str, after: str, changed: list[str]) -> None:
    keys = changed_keys(yaml.safe_load(before), yaml.safe_load(after))
    assert [".".join(map(str, key)) for key in keys] == changed


def test_a_key_that_is_new_to_the_yaml_isnt_settable_until_it_is_listed() -> None:
    refused = {name for name in config.PipelineConfig.model_fields if not is_settable((name,))}
    of_what_is_read = {"columns", "rows", "merge_tables", "on_schema_change"}
    assert refused == {"source", "lake", "spark", "catalog", "airflow", "page", "feeds", "iceberg", *of_what_is_read}
    assert not is_settable(("verify", "connection"))
    assert lets_more_out({"tables": {"exclude": ["a.b"]}}, {"tables": None}) == [("tables", "exclude")]


def test_each_choice_of_the_form_for_a_new_source_is_in_words(server: Any, folder: Path) -> None:
    begun = get(client(server, "ada", "ADMIN"), "new-source")
    lines = (STATIC / "source_settings.js").read_text().splitlines()
    policies = {f"policies.{name}" for name in Policy.model_fields}
    assert begun["choices"].keys() == {*policies, "verify.repair", "invalid_dates", "invalid_text"}
    for key, values in begun["choices"].items():
        (line,) = (line for line in lines if line.strip().startswith((f'"{key}": [', f"{key}: [")))
        assert set(re.findall(r'(\w+): "', line)) == set(values), key
        assert begun["defaults"][key] in values
        assert is_settable(tuple(key.split(".")))
