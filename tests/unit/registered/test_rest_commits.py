"""What a commit to an Iceberg REST catalog asks for, and a token that is got for a client's secret."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from binlake.config.catalogs_config import RestCatalogConfig
from binlake.errors import LakeError
from binlake.iceberg.table_metadata import normal_address
from binlake.registered.rest_client import RestClient
from binlake.registered.rest_commits import commit_of, continues, is_published_by_us, registered


def column(number: int, kind: str) -> dict[str, Any]:
    return {"id": number, "name": f"c{number}", "required": False, "type": kind}


def metadata(*snapshots: int, **more: Any) -> dict[str, Any]:
    """A table's metadata with snapshots of these ids."""
    return {
        "table-uuid": "u", "format-version": 3, "last-column-id": 1, "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [column(1, "int")]}],
        "properties": {"binlake.delta-table-id": "d"}, "last-sequence-number": max(snapshots, default=0),
        "snapshots": [
            {"snapshot-id": number, "sequence-number": number, "manifest-list": f"m{number}", "schema-id": 0,
             "summary": {"delta-version": str(number - 1)}} for number in snapshots
        ],
        "refs": {"main": {"snapshot-id": snapshots[-1], "type": "branch"}} if snapshots else {}, **more,
    }  # fmt: skip


def actions(commit: dict[str, Any] | None) -> list[str]:
    return [update["action"] for update in commit["updates"]] if commit else []


def test_what_is_there_needs_no_commit() -> None:
    there = metadata(1, 2)
    assert commit_of(there, {**there, "properties": registered(there, "file:///x")["properties"]}) is None


def test_a_commit_holds_for_what_was_read() -> None:
    commit = commit_of(metadata(1, 2, 3), metadata(1))
    assert actions(commit) == ["add-snapshot", "add-snapshot", "set-snapshot-ref"]
    assert commit is not None
    assert commit["requirements"] == [
        {"type": "assert-table-uuid", "uuid": "u"},
        {"type": "assert-current-schema-id", "current-schema-id": 0},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
    ]


def test_schemas_have_the_ids_of_the_catalog() -> None:
    later = {"type": "struct", "schema-id": 0, "fields": [column(2, "long")]}
    commit = commit_of(metadata(1, 2, schemas=[later]), metadata(1))
    assert commit is not None
    assert actions(commit) == ["add-schema", "set-current-schema", "add-snapshot", "set-snapshot-ref"]
    assert commit["updates"][0]["schema"]["schema-id"] == 1
    assert commit["updates"][1]["schema-id"] == 1
    assert commit["updates"][2]["snapshot"]["schema-id"] == 1


def test_snapshots_and_tags_that_are_gone_go_there() -> None:
    theirs = metadata(1, 2)
    theirs["refs"]["batch-1"] = {"snapshot-id": 1, "type": "tag"}
    assert actions(commit_of(metadata(2), theirs)) == ["remove-snapshot-ref", "remove-snapshots"]


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
    [
        (metadata(1, 2), metadata(1), True),
        (metadata(1), metadata(1), True),
        (metadata(1), metadata(1, **{"table-uuid": "other"}), False),
        (metadata(1), metadata(1, **{"format-version": 2}), False),
        (metadata(1), metadata(1, 2), False),
        (metadata(3), metadata(1, **{"last-sequence-number": 5}), False),
    ],
    ids=["further", "same", "made again", "other format", "restored", "restored and changed"],
)
def test_another_table_of_the_name_is_no_continuation(
    ours: dict[str, Any], theirs: dict[str, Any], wanted: bool
) -> None:
    assert continues(ours, theirs) is wanted


def test_a_table_that_somebody_else_wrote_is_not_ours() -> None:
    there = metadata(1, 2)
    assert is_published_by_us(there)
    there["snapshots"][1]["summary"] = {"operation": "append"}
    assert not is_published_by_us(there)
    assert not is_published_by_us({**metadata(1), "properties": {}})


@pytest.mark.parametrize(
    ("address", "normal"),
    [
        ("file:///l/t", "file:///l/t"), ("file:/l/t/", "file:///l/t"), ("file://l/t", "file:///l/t"), ("/l/t/", "/l/t"),
        ("/l/t:x", "/l/t:x"), ("s3://b/t", "s3://b/t"), ("s3a://b/t/", "s3://b/t"), ("s3n://b/t", "s3://b/t"),
        ("gs://b/t", "gs://b/t"), ("", ""),
    ],
)  # fmt: skip
def test_an_address_has_one_form(address: str, normal: str) -> None:
    assert normal_address(address) == normal
    assert normal_address(normal) == normal


def test_manifests_at_addresses_of_another_form_are_the_same() -> None:
    ours, theirs = metadata(1), metadata(1)
    ours["snapshots"][0]["manifest-list"], theirs["snapshots"][0]["manifest-list"] = "file:///l/m", "file:/l/m"
    assert continues(ours, theirs)
    theirs["snapshots"][0]["manifest-list"] = "file:/l/other"
    assert not continues(ours, theirs)


class _Issuer(BaseHTTPRequestHandler):
    """Gives a token for a client's secret, and its settings to who has the token."""

    asked: list[bytes]

    def do_POST(self) -> None:
        self.asked.append(self.rfile.read(int(self.headers["Content-Length"])))
        right = b"client_secret=s3cret" in self.asked[-1]
        self._answer(200 if right else 401, {"access_token": "tok"} if right else {"error": "invalid_client"})

    def do_GET(self) -> None:
        self._answer(200 if self.headers["Authorization"] == "Bearer tok" else 403, {"overrides": {"prefix": "p q"}})

    def _answer(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def issuer() -> Iterator[str]:
    _Issuer.asked = []
    server = HTTPServer(("127.0.0.1", 0), _Issuer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("secret", ["s3cret", "wrong"])
def test_a_token_is_got_for_a_secret(issuer: str, monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_C", json.dumps({"login": "me", "password": secret, "extra": {"scope": "PRINCIPAL"}})
    )
    entry = RestCatalogConfig(kind="rest", name="c", uri=issuer, connection="c")
    if secret == "wrong":
        with pytest.raises(LakeError, match="refused POST /v1/oauth/tokens: 401") as caught:
            RestClient(entry)
        assert secret not in str(caught.value)
        return
    assert RestClient(entry)._prefix == "/p%20q"
    (asked,) = _Issuer.asked
    assert asked == b"grant_type=client_credentials&client_id=me&client_secret=s3cret&scope=PRINCIPAL"


def test_no_answer_is_an_error_that_says_so() -> None:
    with pytest.raises(LakeError, match="didn't answer"):
        RestClient(RestCatalogConfig(kind="rest", name="c", uri="http://127.0.0.1:9"))


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
        b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\n\r\nnull",
        b"HTTP/1.1 200 OK\r\n\r\n{]",
        b"",
    ],
)
def test_an_answer_that_is_not_of_the_protocol_is_an_error_of_the_lake(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(LakeError, match=r"didn't answer|answered what isn't|refused GET"):
            RestClient(RestCatalogConfig(kind="rest", name="c", uri=f"http://127.0.0.1:{listening.getsockname()[1]}"))
        thread.join(10)


@pytest.mark.parametrize("token", ["s3cret\n", "s3 cret", "s3crët"])
def test_a_token_that_can_not_be_sent_is_not_shown(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_C", json.dumps({"extra": {"token": token}}))
    with pytest.raises(LakeError, match="has a blank, a line's end or a letter that no token has") as caught:
        RestClient(RestCatalogConfig(kind="rest", name="c", uri="http://127.0.0.1:9", connection="c"))
    assert "s3" not in str(caught.value)


def test_all_requests_together_have_an_end(issuer: str) -> None:
    with pytest.raises(LakeError, match="took too long"):
        RestClient(RestCatalogConfig(kind="rest", name="c", uri=issuer), seconds=0)
