"""A new source by the page's form: what the server has, the preview, the file, and who may have a server asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.models.connection import Connection
from airflow.models.log import Log
from airflow.secrets import BaseSecretsBackend
from airflow.utils.session import create_session
from sqlalchemy import delete, select

from airflow_page import airflow_server, client, get, post, viewer
from binlake import config
from binlake_airflow.page import source_form
from mirror import on_mysql
from servers import Server

PASSWORD = "p4ss w0rd'%/"


@pytest.fixture(scope="module")
def api() -> Iterator[Any]:
    with airflow_server() as app:
        yield app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of the sources' YAML files; what the form stored in Airflow is gone afterwards."""
    monkeypatch.setenv("AIRFLOW__BINLAKE__PIPELINES", str(tmp_path / "pipelines"))
    monkeypatch.setenv("AIRFLOW__CORE__TEST_CONNECTION", "Enabled")
    yield tmp_path / "pipelines"
    with create_session() as session:
        session.execute(delete(Connection).where(Connection.conn_id.in_(["new_shop_mysql", "web"])))


@pytest.fixture
def address(server: Server, database: str) -> Iterator[dict[str, Any]]:
    server.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY)", "CREATE TABLE `a*b` (id INT PRIMARY KEY)", database=database
    )
    server.create_account("u_form", PASSWORD, ["ALL PRIVILEGES ON *.*"])
    yield {"host": "127.0.0.1", "port": server.port, "login": "u_form", "password": PASSWORD}
    server.execute("DROP USER u_form")


def asked(address: dict[str, Any], database: str, lake: Path, **others: Any) -> dict[str, Any]:
    tables = [f"{database}.orders", f"{database}.a[*]b"]
    return {**address, "name": "new-shop", "include": tables, "lake": str(lake), **others}


@on_mysql
def test_a_source_is_picked_seen_beforehand_and_written(
    api: Any, folder: Path, address: dict[str, Any], database: str, tmp_path: Path
) -> None:
    admin = client(api, "ada", "ADMIN")
    seen = post(admin, "new-source/tables", **address)
    assert "127.0.0.1" in seen["server"]
    picked = {offer["pattern"]: offer["tables"] for offer in seen["offers"] if database in offer["pattern"]}
    assert picked == {f"{database}.*": 2, f"{database}.orders": 1, f"{database}.a[*]b": 1}

    wanted = asked(address, database, tmp_path / "lake")
    preview = post(admin, "new-source/preview", **wanted)
    assert (preview["file"], preview["unwritable"]) == (str(folder / "new-shop.yaml"), None)
    assert PASSWORD not in json.dumps(preview)
    assert [line for line in preview["checks"] if line["ok"] is False] == []
    assert f"table {database}.orders" in {line["name"] for line in preview["checks"]}
    assert not folder.exists(), "nothing is written yet"
    assert not (tmp_path / "lake").exists(), "neither is the lake"

    written = post(admin, "new-source/write", **wanted, server_id=preview["server_id"])
    file = Path(written["file"])
    assert file.read_text() == preview["yaml"]
    assert config.load(file).tables.include == wanted["include"]
    with create_session() as session:
        made = session.scalars(select(Connection).where(Connection.conn_id == "new_shop_mysql")).one()
        assert (made.conn_type, made.host, made.login, made.password) == ("mysql", "127.0.0.1", "u_form", PASSWORD)
        logged = session.scalars(select(Log).where(Log.event == "binlake_write_source")).all()
        assert logged
        assert not [row for row in logged if PASSWORD in str(row.extra) or "p4ss" in str(row.extra)]
    assert "is there already" in post(admin, "new-source/write", 409, **wanted)["detail"]
    file.unlink()
    assert "has a connection 'new_shop_mysql'" in post(admin, "new-source/write", 409, **wanted)["detail"]
    assert not file.exists()
    by_id = {**wanted, "connection": "new_shop_mysql", "name": "web", "host": "", "login": "", "password": ""}
    assert get(admin, "new-source")["connections"] == ["new_shop_mysql"]
    assert "connection: new_shop_mysql" in post(admin, "new-source/write", **by_id)["yaml"]
    edit_with_checks(api, folder / "web.yaml", database)


def edit_with_checks(api: Any, file: Path, database: str) -> None:
    """The server is asked for those alone who may use its connection; nothing is written before it is saved."""
    admin, editor, before = client(api, "ada", "ADMIN"), client(api, "web", "USER"), file.read_text()
    given = {**get(admin, "sources/web/yaml"), "text": before.replace(f"{database}.orders", f"{database}.nowhere")}
    asked = {"text": given["text"], "mark": given["mark"]}
    answer = post(admin, "sources/web/yaml/check", **asked)
    assert [line["name"] for line in answer["checks"] if line["ok"] is False] == [f"table {database}.nowhere"]
    assert (answer["unasked"], answer["problems"], answer["changed"]) == (None, [], ["tables.include"])
    narrower = {**asked, "text": before + "merge: {without_spark_mb: 1}\n"}
    unasked = post(editor, "sources/web/yaml/check", **narrower)
    assert (unasked["unasked"], unasked["checks"]) == ("you may not use the connection 'new_shop_mysql'", [])
    assert file.read_text() == before
    assert post(editor, "sources/web/yaml/write", **narrower)["diff"][-1] == "+merge: {without_spark_mb: 1}"
    assert config.load(file).merge.without_spark_mb == 1


def test_errors_are_said_by_field(api: Any, folder: Path, tmp_path: Path) -> None:
    address = {"host": "192.0.2.1", "port": 3306, "login": "root", "password": "x"}
    settings = {
        "tables.exclude": ["d.a", "b"],
        "airflow.lag_minutes": -1,
        "policies.on_truncate": "never",
        "verify.schedule": "x\ny",
    }
    wanted = asked(address, "d", tmp_path, schedule="hourly", settings=settings)
    fields = post(client(api, "ada", "ADMIN"), "new-source/preview", 422, **wanted)["fields"]
    assert fields.keys() == {"schedule", *settings}
    assert fields["tables.exclude"] == "'b' has no dot; write database.table, such as shop.*"
    assert fields["airflow.lag_minutes"] == "found -1; wanted a number not below 0"
    wanted = {**asked(address, "d", tmp_path), "name": "a b", "lake": "a\nb", "login": "", "odd": 1}
    fields = post(client(api, "ada", "ADMIN"), "new-source/write", 422, **wanted)["fields"]
    assert fields == {
        "name": "found 'a b'; wanted a name: a letter, then letters, digits, _ or -, 63 of them at most",
        "lake": "write it in one line, without control characters",
        "odd": "there is no such field",
    }
    assert post(client(api, "ada", "ADMIN"), "new-source/tables", 422, host="h")["fields"].keys() == {"login"}
    assert not folder.exists()


@on_mysql
def test_where_the_folder_cant_be_written_the_text_is_given_and_nothing_stored(
    api: Any, folder: Path, address: dict[str, Any], database: str, tmp_path: Path
) -> None:
    folder.write_text("a file in the folder's place")
    admin, wanted = client(api, "ada", "ADMIN"), asked(address, database, tmp_path / "lake")
    preview = post(admin, "new-source/preview", **wanted)
    assert "may not write" in preview["unwritable"]
    assert "include: [" in preview["yaml"]
    assert "may not write" in post(admin, "new-source/write", 409, **wanted)["detail"]
    with create_session() as session:
        assert not session.scalars(select(Connection).where(Connection.conn_id == "new_shop_mysql")).all()


@on_mysql
@pytest.mark.parametrize("place", ["environment", "backend", "backend of workers", "broken backend"])
def test_a_name_that_resolves_anywhere_is_no_new_connection(
    api: Any,
    folder: Path,
    address: dict[str, Any],
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    """The source would be read by that account, which the user may not use."""
    if place == "environment":
        monkeypatch.setenv("AIRFLOW_CONN_NEW_SHOP_MYSQL", "mysql://somebody:else@127.0.0.1/")
    elif place == "broken backend":
        monkeypatch.setattr(source_form, "ensure_secrets_loaded", lambda: [BrokenBackend()])
    else:
        section = "WORKERS" if "workers" in place else "SECRETS"
        (tmp_path / "connections.json").write_text('{"new_shop_mysql": "mysql://somebody:else@127.0.0.1/"}')
        kind = "airflow.secrets.local_filesystem.LocalFilesystemBackend"
        kwargs = "SECRETS_BACKEND_KWARGS" if section == "WORKERS" else "BACKEND_KWARGS"
        name = "SECRETS_BACKEND" if section == "WORKERS" else "BACKEND"
        monkeypatch.setenv(f"AIRFLOW__{section}__{name}", kind)
        given = json.dumps({"connections_file_path": str(tmp_path / "connections.json")})
        monkeypatch.setenv(f"AIRFLOW__{section}__{kwargs}", given)
    admin, wanted = client(api, "ada", "ADMIN"), asked(address, database, tmp_path / "lake")
    expected, said = (
        (503, "doesn't say whether") if place == "broken backend" else (409, "secrets backend has a connection")
    )
    for step in ("preview", "write"):
        assert said in post(admin, f"new-source/{step}", expected, **wanted)["detail"]
    assert not folder.exists()


class BrokenBackend(BaseSecretsBackend):
    def get_connection(self, conn_id: str, team_name: str | None = None) -> Connection | None:
        raise RuntimeError("the vault is sealed")


def test_a_large_request_is_refused_before_anybody_is_asked_who_he_is(api: Any, folder: Path) -> None:
    nobody = client(api, None)
    answer = nobody.post("/binlake/api/new-source/write", content=b"[" * (3 << 20))
    assert answer.status_code == 413
    pieces = (b"[" * (1 << 20) for _ in range(100))
    answer = nobody.post("/binlake/api/new-source/write", content=pieces)
    assert answer.status_code == 413


def test_nobody_else_has_a_server_asked(
    api: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server that is asked would be a failure of its own: nothing may listen where it is said to be."""
    monkeypatch.setattr("binlake_airflow.page.source_form.Source", None)
    monkeypatch.setattr("binlake.cli.new_source.Source", None)
    address = {"host": "192.0.2.1", "port": 3306, "login": "root", "password": "x"}
    for path, body in (("tables", address), *((step, asked(address, "d", tmp_path)) for step in ("preview", "write"))):
        for user in (viewer(api), client(api, "u", "USER"), client(api, "nobody", None)):
            post(user, f"new-source/{path}", 403, **body)
        post(client(api, None), f"new-source/{path}", 401, **body)
        by_cookie = client(api, None)
        by_cookie.cookies.set("_token", client(api, "ada", "ADMIN").headers["authorization"].removeprefix("Bearer "))
        answer = by_cookie.post(f"/binlake/api/new-source/{path}", json=body, headers={"sec-fetch-site": "cross-site"})
        assert (answer.status_code, answer.json()["detail"]) == (403, "this was asked by a page of another site")
        monkeypatch.setenv("AIRFLOW__CORE__TEST_CONNECTION", "Disabled")
        refused = post(client(api, "ada", "ADMIN"), f"new-source/{path}", 409, **body)
        assert "test_connection" in refused["detail"]
        assert "TEST_CONNECTION=Enabled" in refused["remedy"]
        monkeypatch.setenv("AIRFLOW__CORE__TEST_CONNECTION", "Enabled")
    assert not folder.exists()
    for user in (viewer(api), client(api, "u", "USER")):
        get(user, "new-source", 403)
    assert get(viewer(api), "sources")["may_add"] is False


@pytest.mark.parametrize(
    "odd",
    [
        {"name": "../shop"}, {"name": "shop\nspark: {master: x}"}, {"connection": "file:///etc"},
        {"lake": "/lake\nspark: {}"}, {"schedule": "@hourly\nfeeds: []"}, {"include": []}, {"include": ["a.b\n: c"]},
        {"host": "h\nx"}, {"port": 0}, {"server_id": 0}, {"extra": {"ssl": {"ca": "/etc/passwd"}}},
        {"settings": {"spark.jars": ["/x.jar"]}}, {"settings": {"verify.connection": "x"}},
        {"settings": {"verify": {"connection": "x"}}}, {"settings": {"airflow.notify": []}},
        {"settings": {"page.show_values": True}}, {"settings": {"source.name": "x"}}, {"settings": {"schedule": "x"}},
        {"settings": {"verify": 1, "verify.repair": "auto"}}, {"settings": {"a: b\nspark": 1}},
        {"settings": {"tables": {"include": ["a.b"]}}},
    ],
)  # fmt: skip
def test_what_cant_stand_in_the_file_is_refused(api: Any, folder: Path, odd: dict[str, Any], tmp_path: Path) -> None:
    address = {"host": "192.0.2.1", "port": 3306, "login": "root", "password": "x"}
    post(client(api, "ada", "ADMIN"), "new-source/write", 422, **{**asked(address, "d", tmp_path), **odd})
    assert not folder.exists()
