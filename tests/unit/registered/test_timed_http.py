"""An answer of a catalog has an end, however slowly it comes and however much there is of it."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from authority import Authority
from binlake.config.catalogs_config import RestCatalogConfig
from binlake.errors import LakeError
from binlake.registered import timed_client, timed_http
from binlake.registered.rest_client import RestClient
from binlake.registered.timed_client import CatalogSilent

OK = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def serving(begin: bytes, then: bytes, every: float, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server that sends a beginning, and then the same again and again; its port. every: seconds between them."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listening.accept()
                with tls.wrap_socket(connection, server_side=True) if tls else connection as client:
                    client.recv(1 << 16)
                    client.sendall(begin)
                    while not over.wait(every):
                        client.sendall(then)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            over.set()
            thread.join(10)


def entry(port: int) -> RestCatalogConfig:
    return RestCatalogConfig(kind="rest", name="c", uri=f"http://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("begin", "then"),
    [
        (OK + b"Content-Length: 100000\r\n\r\n{", b" "),
        (OK + b"\r\n{", b" "),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (OK + b"X: ", b"x"),
        (b"HTTP/1.1 200 ", b"x"),
        (b"HTTP/1.1 400 No\r\nContent-Length: 100000\r\n\r\n", b" "),
    ],
    ids=["of a length", "of no length", "in chunks", "headers", "status", "refusal"],
)
def test_an_answer_that_comes_letter_by_letter_has_an_end(begin: bytes, then: bytes) -> None:
    began = time.monotonic()
    with serving(begin, then, 0.02) as port, pytest.raises(LakeError, match=r"took too long|refused GET"):
        RestClient(entry(port), 0.3)
    assert time.monotonic() - began < 3


def test_an_encrypted_answer_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority.made(tmp_path, "authority")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.sign("catalog"))
    monkeypatch.setenv("AIRFLOW_CONN_C", json.dumps({"extra": {"ssl": {"ca": str(authority.pem)}}}))
    text = b'{"overrides": {"prefix": "p"}}'
    for length, wanted in ((len(text), ""), (100_000, "took too long")):
        with serving(OK + f"Content-Length: {length}\r\n\r\n".encode() + text, b" ", 0.02, tls) as port:
            secure = RestCatalogConfig(kind="rest", name="c", uri=f"https://127.0.0.1:{port}", connection="c")
            if not wanted:
                assert RestClient(secure, 5)._prefix == "/p"
            else:
                with pytest.raises(LakeError, match=wanted):
                    RestClient(secure, 1)


def test_a_catalog_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_client, "PATIENCE_SECONDS", 0.2)
    with serving(OK, b"", 5) as port, pytest.raises(CatalogSilent, match="timed out") as caught:
        RestClient(entry(port), 30)
    assert not caught.value.late


def test_an_answer_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_client, "_MOST_BYTES", 1000)
    with serving(OK + b"\r\n{", b" " * 500, 0.001) as port, pytest.raises(LakeError, match="didn't answer: ValueError"):
        RestClient(entry(port), 10)


def test_an_answer_cut_off_is_no_answer() -> None:
    """Nor is one of no bytes taken for an empty one."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(OK + b"Content-Length: 9\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(LakeError, match="didn't answer: IncompleteRead"):
            RestClient(entry(listening.getsockname()[1]))


def test_an_answer_that_is_there_is_read() -> None:
    text = json.dumps({"overrides": {"prefix": "p" * 100_000}}).encode()
    begin = OK + f"Content-Length: {len(text)}\r\n\r\n".encode() + text
    with serving(begin, b"", 5) as port:
        assert RestClient(entry(port), 5)._prefix == f"/{'p' * 100_000}"


def test_the_look_up_of_a_name_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: over.wait(10) and [])
    began = time.monotonic()
    with pytest.raises(CatalogSilent, match="took too long"):
        RestClient(RestCatalogConfig(kind="rest", name="c", uri="http://catalog.invalid"), 0.3)
    over.set()
    assert time.monotonic() - began < 3


def test_all_addresses_of_a_host_are_tried_within_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones are silent, as behind a firewall that drops packets; the last one answers, or is too late."""
    monkeypatch.setattr(timed_client, "PATIENCE_SECONDS", 0.4)
    real, text = socket.getaddrinfo, b"{}"
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, not_accepting(full) as silent:
        with serving(OK + f"Content-Length: {len(text)}\r\n\r\n".encode() + text, b"", 5) as port:
            answers = real("127.0.0.1", port, 0, socket.SOCK_STREAM)
            refused = real("127.0.0.1", 9, 0, socket.SOCK_STREAM)
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [*refused, silent, *answers])
            RestClient(RestCatalogConfig(kind="rest", name="c", uri="http://catalog.invalid"), 5)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [silent] * 4)
        began = time.monotonic()
        with pytest.raises(CatalogSilent, match="timed out"):
            RestClient(RestCatalogConfig(kind="rest", name="c", uri="http://catalog.invalid"), 5)
        assert time.monotonic() - began < 1.5


def test_what_follows_a_connection_has_the_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the beginning of encryption; each address has its share for the connection alone."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", listening.getsockname()[1]))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [place] * 8)
        with timed_http._connected(("catalog.invalid", 443), deadline=time.monotonic() + 60, silence=10) as connected:
            assert (connected.gettimeout() or 0) > 9


def test_the_systems_authorities_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, real = list[ssl.SSLContext](), ssl.create_default_context

    def create() -> ssl.SSLContext:
        loaded.append(real())
        return loaded[-1]

    monkeypatch.setattr(ssl, "create_default_context", create)
    opener = timed_http.opener(time.monotonic() + 5, 5)
    for _ in range(3):
        with pytest.raises(OSError, match="refused"):
            opener.open("https://127.0.0.1:9/", timeout=1)
    assert len(loaded) == 1


@contextmanager
def not_accepting(full: socket.socket) -> Iterator[tuple[object, ...]]:
    """Fills a listener's queue, so that who connects waits; gives its address as ``getaddrinfo`` does."""
    port = full.getsockname()[1]
    waiting = [socket.socket() for _ in range(4)]
    for each in waiting:
        each.setblocking(False)
        each.connect_ex(("127.0.0.1", port))
    try:
        yield (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))
    finally:
        for each in waiting:
            each.close()
