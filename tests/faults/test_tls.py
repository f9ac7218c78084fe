"""TLS as the connection asks for it, or none at all; and passwords that a restarted server doesn't know by heart."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from authority import Authority
from binlake.binlog.integrity import format_description
from binlake.errors import ConfigurationError, SourceError
from binlake.snapshot import jdbc
from binlake.source.connection import parse_airflow_connection
from binlake.source.dump import ServerTransport
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from binlog_slices import position
from servers import KINDS, Server

PASSWORD = "wörd/'\"% of tests"
WAYS = ("control", "binlog", "jdbc")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.made(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def stranger(authority: Authority) -> Authority:
    return Authority.made(authority.pem.parent, "stranger")


@pytest.fixture(scope="module", params=KINDS)
def tls_server(request: pytest.FixtureRequest, new_server: type[Server], authority: Authority) -> Iterator[Server]:
    """Its certificate stands for 127.0.0.1, not for localhost; who comes in plain is turned away."""
    cert, key = authority.sign("server")
    files: dict[str, Any] = {"ssl_ca": str(authority.pem), "ssl_cert": str(cert), "ssl_key": str(key)}
    with new_server(request.param, **files) as server:
        for way in WAYS:
            server.create_account(way, PASSWORD, ["ALL ON *.*"])
        server.execute(*(f"ALTER USER {way} REQUIRE SSL" for way in WAYS))
        yield server


@pytest.fixture(scope="module")
def plain_server(tls_server: Server) -> Server:
    """The same, begun again without TLS. Tests that use it come last in this file."""
    tls_server.kill()
    # MySQL knows no setting any more that turns TLS off, but runs without what it can't load.
    tls_server.settings.update({"skip_ssl": ""} if tls_server.kind == "mariadb" else {"ssl_cert": "/nowhere.crt"})
    tls_server.start()
    tls_server.execute(*(f"ALTER USER {way} REQUIRE NONE" for way in WAYS))
    return tls_server


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def enter(request: pytest.FixtureRequest, way: str, server: Server, endpoint: Endpoint) -> None:
    """One of the three kinds of connection that the engine makes."""
    if way == "control":
        with Source.open(endpoint) as source:
            assert source.now()
    elif way == "binlog":
        assert format_description(ServerTransport(endpoint, 7500, server.kind), position(server)[0])
    else:
        spark = request.getfixturevalue("spark")
        row = jdbc.read(spark, jdbc.ChunkQuery(endpoint, "SELECT 7 AS c0", server.kind == "mariadb")).head()
        assert row is not None
        assert row["c0"] == 7


def connection(server: Server, user: str, host: str = "127.0.0.1", **ssl: object) -> Endpoint:
    """As Airflow's environment holds it."""
    fields = {"conn_type": "mysql", "host": host, "port": server.port, "login": user, "password": PASSWORD}
    return parse_airflow_connection(json.dumps({**fields, "extra": {"ssl": ssl}}), name="X")


def refused(request: pytest.FixtureRequest, way: str, server: Server, endpoint: Endpoint, why: str) -> None:
    with pytest.raises(Exception) as caught:
        enter(request, way, server, endpoint)
    said = "\n".join([str(caught.value), *java_causes(caught.value)])
    assert re.search(why, said), said
    assert PASSWORD not in said
    if way != "jdbc":  # which comes after the control connection
        assert isinstance(caught.value, SourceError)
        assert not caught.value.retryable
        assert "certificate" in caught.value.remedy


def java_causes(error: BaseException) -> Iterator[str]:
    cause: Any = getattr(error, "_origin", None)
    while cause is not None:
        yield str(cause.toString())
        cause = cause.getCause()


def test_a_verified_server(request: pytest.FixtureRequest, way: str, tls_server: Server, authority: Authority) -> None:
    enter(request, way, tls_server, connection(tls_server, way, ca=authority.pem.as_posix()))


def test_an_authority_that_did_not_sign(
    request: pytest.FixtureRequest, way: str, tls_server: Server, stranger: Authority
) -> None:
    refused(request, way, tls_server, connection(tls_server, way, ca=stranger.pem.as_posix()), "(?i)certif|PKIX|TLS")


def test_another_host_than_the_certificate_names(
    request: pytest.FixtureRequest, way: str, tls_server: Server, authority: Authority
) -> None:
    ca = authority.pem.as_posix()
    endpoint = connection(tls_server, way, host="localhost", ca=ca)
    refused(request, way, tls_server, endpoint, "(?i)hostname|name|identity|certificate")
    enter(request, way, tls_server, connection(tls_server, way, host="localhost", ca=ca, check_hostname=False))


def test_encrypted_without_proof(request: pytest.FixtureRequest, way: str, tls_server: Server) -> None:
    enter(request, way, tls_server, connection(tls_server, way, verify_mode="none"))


def test_a_client_with_a_certificate(
    request: pytest.FixtureRequest, way: str, tls_server: Server, authority: Authority
) -> None:
    cert, key = authority.sign(f"client_{way}")
    tls_server.execute(f"ALTER USER {way} REQUIRE X509")
    try:
        files = {"ca": authority.pem.as_posix(), "cert": cert.as_posix(), "key": key.as_posix()}
        enter(request, way, tls_server, connection(tls_server, way, **files))
    finally:
        tls_server.execute(f"ALTER USER {way} REQUIRE SSL")


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for path in (tmp_path / "gone.pem", tmp_path / "empty.pem"):
        endpoint = Endpoint("127.0.0.1", 1, "u", "p", tls=(("ca", str(path)),))
        with pytest.raises(ConfigurationError, match=path.name):
            Source.open(endpoint)


@pytest.mark.parametrize(
    "extra",
    [{"ssl_mode": "VERIFY_IDENTITY"}, {"sslmode": "require"}, {"ssl": {"ssl_ca": "/ca.pem"}}, {"ssl": True}],
    ids=str,
)
def test_settings_that_would_be_overlooked_are_refused(extra: dict[str, object]) -> None:
    text = json.dumps({"conn_type": "mysql", "host": "h", "password": PASSWORD, "extra": extra})
    with pytest.raises(ConfigurationError, match="TLS settings that aren't known") as caught:
        parse_airflow_connection(text, name="X")
    assert PASSWORD not in str(caught.value)


def test_each_authority_has_a_store_for_java_of_its_own(authority: Authority, stranger: Authority) -> None:
    stores = []
    for issuer in (authority, stranger):
        endpoint = Endpoint("127.0.0.1", 3306, "u", "p", (("ca", str(issuer.pem)),))
        stores.append(jdbc.connection_options(endpoint, mariadb=False)["trustCertificateKeyStoreUrl"])
    assert stores[0] != stores[1]


def test_stores_for_java_are_our_accounts_alone(authority: Authority) -> None:
    cert, key = authority.sign("stored")
    tls = (("ca", str(authority.pem)), ("cert", str(cert)), ("key", str(key)))
    options = jdbc.connection_options(Endpoint("127.0.0.1", 3306, "u", "p", tls), mariadb=False)
    for store in ("trustCertificateKeyStoreUrl", "clientCertificateKeyStoreUrl"):
        path = Path(urlsplit(options[store]).path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("tls_server", ["mysql"], indirect=True)
def test_a_password_that_the_server_has_forgotten_goes_by_tls(
    request: pytest.FixtureRequest, way: str, tls_server: Server, authority: Authority
) -> None:
    """caching_sha2_password asks for it once more after a restart, or FLUSH PRIVILEGES."""
    tls_server.execute("FLUSH PRIVILEGES")
    enter(request, way, tls_server, connection(tls_server, way, ca=authority.pem.as_posix()))


@pytest.mark.parametrize("tls_server", ["mysql"], indirect=True)
@pytest.mark.parametrize("ssl", [{}, {"verify_mode": "none"}], ids=str)
def test_a_server_that_nothing_proves_gets_no_password(
    request: pytest.FixtureRequest, way: str, tls_server: Server, authority: Authority, ssl: dict[str, str]
) -> None:
    """0.0.0.0 leads to this machine, and isn't known to."""
    tls_server.execute("FLUSH PRIVILEGES")
    unproved = connection(tls_server, way, host="0.0.0.0", **ssl)
    asked = "(?i)caching_sha2_password|authentication plugin"
    refused(request, way, tls_server, unproved, asked)
    enter(request, way, tls_server, connection(tls_server, way, ca=authority.pem.as_posix()))
    if way != "jdbc":  # Connector/J can't do without the password
        enter(request, way, tls_server, unproved)  # a server that knows the account is content with a proof
    tls_server.execute("FLUSH PRIVILEGES")
    enter(request, way, tls_server, replace(unproved, allow_cleartext=True))


def test_a_server_without_tls_where_it_is_asked_for(
    request: pytest.FixtureRequest, way: str, plain_server: Server, authority: Authority
) -> None:
    refused(request, way, plain_server, connection(plain_server, way, ca=authority.pem.as_posix()), "(?i)SSL|TLS")


@pytest.mark.parametrize("tls_server", ["mysql"], indirect=True)
def test_a_password_that_a_restarted_server_has_forgotten_goes_by_rsa(
    request: pytest.FixtureRequest, way: str, plain_server: Server
) -> None:
    """Without TLS the server's public key hides it."""
    plain_server.execute("FLUSH PRIVILEGES")
    enter(request, way, plain_server, connection(plain_server, way))
