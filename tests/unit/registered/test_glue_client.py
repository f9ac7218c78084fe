"""Requests to AWS Glue: signed as AWS verifies them, with an end, and no error repeats a secret."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from binlake.config.catalogs_config import GlueCatalogConfig
from binlake.errors import ConfigurationError, LakeError
from binlake.registered import glue_client
from binlake.registered.glue_client import GlueClient, GlueRefused
from binlake.registered.timed_client import CatalogSilent
from glue_server import ACCOUNT, REGION

Answer = tuple[int, object]


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler, bytes], Answer]) -> Iterator[str]:
    """A service; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, said = answer(self, self.rfile.read(int(self.headers["Content-Length"])))
            text = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def entry(address: str) -> GlueCatalogConfig:
    return GlueCatalogConfig(kind="glue", name="lake", region=REGION, endpoint=address)


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ACCOUNT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(glue_client, "_session", glue_client._session.__wrapped__)  # type: ignore[attr-defined]


def signature(request: BaseHTTPRequestHandler, body: bytes, secret: str) -> str:
    """The signature that AWS works out for a request. Source: "AWS Signature Version 4 for API requests"."""
    _, credential, signed, _ = request.headers["Authorization"].replace(",", "").split(" ")
    scope = credential.split("/")[1:]
    names = signed.partition("=")[2].split(";")
    headers = "".join(f"{name}:{request.headers[name].strip()}\n" for name in names)
    canonical = f"POST\n{request.path}\n\n{headers}\n{';'.join(names)}\n{hashlib.sha256(body).hexdigest()}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{secret}".encode()
    for part in scope:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    text = f"AWS4-HMAC-SHA256\n{request.headers['X-Amz-Date']}\n{'/'.join(scope)}\n{digest}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def test_requests_are_signed_as_they_are_sent() -> None:
    def answer(request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        wanted = signature(request, body, ACCOUNT["AWS_SECRET_ACCESS_KEY"])
        assert request.headers["X-Amz-Security-Token"] == ACCOUNT["AWS_SESSION_TOKEN"]
        is_signed = request.headers["Authorization"].endswith(f"Signature={wanted}")
        return 200, {"signed": is_signed, "for": request.headers["X-Amz-Target"], "body": json.loads(body)}

    with answering(answer) as address:
        said = GlueClient(entry(address), "/lake").ask("GetTable", DatabaseName="shop", Name="Größe")
    assert said == {"signed": True, "for": "AWSGlue.GetTable", "body": {"DatabaseName": "shop", "Name": "Größe"}}


def test_the_host_is_signed_as_it_is_sent() -> None:
    """In capital letters, and with the port that its scheme has anyway."""
    client = GlueClient(entry("https://VPCE.example:443"), "/lake")
    request = client._signed("GetTable", b"{}")
    assert request.get_header("Host") == "VPCE.example:443"


def test_authorities_that_cannot_be_read_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/nowhere.pem")
    with pytest.raises(ConfigurationError, match="AWS_CA_BUNDLE or ca_bundle names can't be read: FileNotFoundError"):
        GlueClient(entry("https://glue.example"), "/lake")


def test_no_error_repeats_a_secret() -> None:
    def repeating(request: BaseHTTPRequestHandler, _: bytes) -> Answer:
        canonical = f"x-amz-security-token:{request.headers['X-Amz-Security-Token']}"
        return 403, {"__type": "com.amazon#InvalidSignatureException", "message": f"it should have been {canonical}"}

    with answering(repeating) as address, pytest.raises(GlueRefused) as caught:
        GlueClient(entry(address), "/lake").ask("GetTable")
    assert caught.value.message == "the catalog lake refused GetTable: InvalidSignatureException"
    assert "of-the-tests" not in str(caught.value)


def test_a_refusal_is_told_in_aws_words() -> None:
    why = "User: arn:aws:iam::1:user/u is not authorized to perform: glue:GetTable"
    denied = {"__type": "AccessDeniedException", "Message": why}
    with (
        answering(lambda *_: (400, denied)) as address,
        pytest.raises(GlueRefused, match=r"AccessDeniedException User: arn.* is not authorized") as caught,
    ):
        GlueClient(entry(address), "/lake").ask("GetTable")
    assert "binlake help register lists" in caught.value.remedy


def test_a_throttled_request_is_sent_again_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glue_client, "_PAUSE_SECONDS", 0.01)
    asked = list[str]()

    def throttling(request: BaseHTTPRequestHandler, _: bytes) -> Answer:
        asked.append(request.headers["X-Amz-Target"])
        if len(asked) < 3:
            return 400, {"__type": "ThrottlingException", "message": "Rate exceeded"}
        return 200, {}

    with answering(throttling) as address:
        assert GlueClient(entry(address), "/lake").ask("GetTable") == {}
        assert len(asked) == 3
        asked.clear()
        monkeypatch.setattr(glue_client, "_PAUSE_SECONDS", 60)
        with pytest.raises(GlueRefused, match="ThrottlingException"):
            GlueClient(entry(address), "/lake", 5).ask("GetTable")
        assert len(asked) == 1


def test_a_silent_service_is_waited_for_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = GlueClient(entry(f"http://127.0.0.1:{listening.getsockname()[1]}"), "/lake", 0.3)
        began = time.monotonic()
        for _ in range(3):
            with pytest.raises(CatalogSilent, match="took too long"):
                client.ask("GetTable")
        assert time.monotonic() - began < 3


def test_credentials_are_looked_for_no_longer_than_requests_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(glue_client, "_session", lambda: over.wait(10))
    began = time.monotonic()
    threads = threading.active_count()
    for _ in range(3):
        with pytest.raises(LakeError, match="AWS gives no credentials: TimeoutError"):
            GlueClient(entry("http://127.0.0.1:9"), "/hanging", 0.2)
    assert threading.active_count() == threads + 1, "one look-up hangs, and all wait for it"
    over.set()
    assert time.monotonic() - began < 3


def test_without_credentials_it_says_where_to_give_some(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    with pytest.raises(LakeError, match="AWS gives no credentials: none was found") as caught:
        GlueClient(entry("http://127.0.0.1:9"), "/lake")
    assert "a profile, or a role" in caught.value.remedy


def test_the_lakes_own_account_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"AWS_ACCESS_KEY_ID": "AKIA-OF-THE-LAKE", "AWS_SECRET_ACCESS_KEY": "s"}
    monkeypatch.setattr(
        "binlake.storage.accounts.variables_by_connection", lambda path: own if path == "/lake" else None
    )
    seen = list[str]()

    def answer(request: BaseHTTPRequestHandler, _: bytes) -> Answer:
        seen.append(request.headers["Authorization"].partition("Credential=")[2].partition("/")[0])
        return 200, {}

    with answering(answer) as address:
        GlueClient(entry(address), "/lake").ask("GetTable")
        GlueClient(entry(address), "/other").ask("GetTable")
    assert seen == ["AKIA-OF-THE-LAKE", ACCOUNT["AWS_ACCESS_KEY_ID"]]


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("eu-central-1", "glue.eu-central-1.amazonaws.com"),
        ("cn-north-1", "glue.cn-north-1.amazonaws.com.cn"),
        ("eusc-de-east-1", "glue.eusc-de-east-1.amazonaws.eu"),
    ],
)
def test_a_region_has_its_own_address(region: str, host: str) -> None:
    client = GlueClient(GlueCatalogConfig(kind="glue", name="lake", region=region), "/lake")
    assert client._url == f"https://{host}"
