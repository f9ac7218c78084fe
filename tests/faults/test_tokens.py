"""Tokens in the place of passwords: a new one for each connection, and only to a server that is verified."""

from __future__ import annotations

import io
import json
import pickle
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from airflow_home import ProcessWatch
from authority import Authority
from binlake import pipeline
from binlake.binlog.integrity import format_description
from binlake.cli.checks import print_checks
from binlake.doctor.server_checks import server_checks
from binlake.errors import AccessDenied, BinlakeError, ConfigurationError, ConnectionFailed, SourceError
from binlake.phases.verification import VerifyRequest
from binlake.report import Report
from binlake.snapshot import jdbc
from binlake.source import tokens
from binlake.source.connection import parse_airflow_connection, write_file
from binlake.source.dump import ServerTransport
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from binlog_slices import position
from mirror import Mirror, on_mysql
from servers import Server
from token_door import TokenDoor, is_signed_for_rds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USER, REGION, SECRET = "iam_user", "eu-west-1", "Geheimschluessel5d1e"
MARK = "Wertmarke"
"""With which the command's tokens begin."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.made(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture
def counted(tmp_path: Path) -> list[str]:
    """A command that prints MARK and the nanoseconds since 1970: no token twice, and each says when it was made."""
    program = tmp_path / "token"
    program.write_text(f"#!/bin/sh\nprintf '{MARK}-%s\\n' \"$(date +%s%N)\"\n")
    program.chmod(0o755)
    return [str(program)]


def age(token: str) -> float:
    """Seconds since the command made a token."""
    return time.time() - int(token.removeprefix(f"{MARK}-")) / 1e9


def endpoint(port: int, token: Any, **extra: Any) -> Endpoint:
    """As Airflow's environment holds it."""
    fields = {"conn_type": "mysql", "host": "127.0.0.1", "port": port, "login": USER}
    return parse_airflow_connection(json.dumps({**fields, "extra": {"token": token, **extra}}), name="X")


@contextmanager
def door_of(server: Server, authority: Authority, lifetime: float) -> Iterator[TokenDoor]:
    """A server that takes each token of the command once, for as many seconds."""

    def takes(user: str, token: str) -> bool:
        return user == USER and token not in door.tokens and 0 <= age(token) < lifetime

    with TokenDoor(server.port, authority.sign("door"), takes) as door:
        yield door


def test_a_token_that_botocore_signs_opens_each_kind_of_connection(
    server: Server, authority: Authority, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def takes(user: str, token: str) -> bool:
        return is_signed_for_rds(token, SECRET, host=f"127.0.0.1:{door.port}", user=user, region=REGION)

    with TokenDoor(server.port, authority.sign("door"), takes) as door:
        ca = {"ssl": {"ca": str(authority.pem)}}
        where = endpoint(door.port, "aws-rds", token_region=REGION, **ca)
        with Source.open(where) as source:
            assert source.now()
        assert format_description(ServerTransport(where, 7600, server.kind), position(server)[0])
        row = jdbc.read(spark, jdbc.ChunkQuery(where, "SELECT 7 AS c0", mariadb=server.kind == "mariadb")).head()
        assert row is not None
        assert row["c0"] == 7
        assert len(door.tokens) >= 4  # Spark connects to see the columns, too
        with pytest.raises(AccessDenied, match="iam_other") as caught:
            Source.open(replace(where, user="iam_other", port=where.port, token=replace(where.token, region="x")))  # type: ignore[type-var]
    assert "aws-rds" in caught.value.remedy
    assert "X-Amz" not in str(caught.value)


@on_mysql
@pytest.mark.parametrize("reader", ["jdbc", "direct"])
def test_a_mirror_by_tokens_that_are_good_for_a_moment_and_for_one_connection(
    mirror: Mirror, authority: Authority, counted: list[str], reader: Any
) -> None:
    """Those of Spark's JDBC for two: it connects to see the columns, and to read the rows."""
    mirror.reader = reader
    mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a SELECT seq, 1 FROM (SELECT 1 AS seq) ones",
        "CREATE TABLE b (id INT PRIMARY KEY, v BLOB)", "INSERT INTO b VALUES (1, 'x'), (2, NULL)",
    )  # fmt: skip
    uses: dict[str, int] = {}

    def takes(user: str, token: str) -> bool:
        uses[token] = uses.get(token, 0) + 1
        return user == USER and uses[token] <= (2 if reader == "jdbc" else 1) and age(token) < 20

    said = io.StringIO()
    with TokenDoor(mirror.server.port, authority.sign("door"), takes) as door, ProcessWatch(MARK) as watch:
        where = endpoint(door.port, counted, ssl={"ca": str(authority.pem)})
        pipeline.bootstrap(mirror.config, where, lambda _: mirror.spark, Report(said))
        mirror.execute("INSERT INTO a VALUES (2, 2)", "UPDATE b SET v = 'y'")
        pipeline.sync(mirror.config, where, lambda _: mirror.spark, Report(said))
        verified = pipeline.verify(mirror.config, where, lambda _: mirror.spark, Report(said), VerifyRequest(None))
    assert verified.equal, verified.to_text()
    mirror.assert_equal("a", "b")
    assert len(uses) > 5
    assert not watch.leaks
    assert MARK not in said.getvalue()
    holding = [path for path in mirror.folder.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes()]
    assert holding == []


@on_mysql
def test_what_is_open_outlives_its_token(server: Server, authority: Authority, counted: list[str]) -> None:
    with door_of(server, authority, 5) as door:
        where = endpoint(door.port, counted, ssl={"ca": str(authority.pem)})
        with Source.open(where) as source:
            (used,) = door.tokens
            forged = replace(where, token=None, password=used)
            with pytest.raises(AccessDenied):  # it was good once
                Source.open(forged)
            assert source.now()
            with source.another() as other:
                assert other.now()
        assert len(set(door.tokens)) == 2


@on_mysql
def test_executors_make_tokens_of_their_own(
    server: Server, authority: Authority, counted: list[str], spark: SparkSession
) -> None:
    with door_of(server, authority, 60) as door:
        where = endpoint(door.port, counted, ssl={"ca": str(authority.pem)})

        def ask(there: Endpoint) -> str:
            with Source.open(there) as source:
                return source.server_identity

        answers = spark.sparkContext.parallelize([where] * 2, 2).map(ask).collect()
        assert len(set(answers)) == 1
        assert len(set(door.tokens)) == 2


UNVERIFIED: list[dict[str, Any]] = [
    {"ssl": {"verify_mode": "none"}},
    {"ssl": {"check_hostname": "false"}},
    {"ssl_verify_mode": "none", "allow_cleartext": True},
]


@pytest.mark.parametrize("extra", UNVERIFIED, ids=str)
def test_nothing_is_sent_to_a_server_that_is_not_verified(counted: list[str], extra: dict[str, Any]) -> None:
    where = endpoint(1, counted, **extra)
    for way in (lambda: Source.open(where), lambda: jdbc.connection_options(where, mariadb=False)):
        with pytest.raises(SourceError, match="over verified TLS alone") as caught:
            way()
        assert "ssl.ca" in caught.value.remedy
    (check,) = server_checks(where)
    assert (check.name, check.ok) == ("server", False)
    assert server_checks(endpoint(1, ["/nowhere/token"]))[0].found.endswith("No such file or directory")
    assert "over verified TLS alone" in check.found


@on_mysql
def test_a_server_of_another_authority_gets_no_token(
    server: Server, authority: Authority, counted: list[str], tmp_path: Path
) -> None:
    """Without ssl in the extra, the authorities are the system's."""
    stranger = Authority.made(tmp_path, "stranger")
    asked: list[str] = []
    with TokenDoor(server.port, authority.sign("door"), lambda user, token: bool(asked.append(token))) as door:
        for extra in ({}, {"ssl": {"ca": str(stranger.pem)}}):
            with pytest.raises(SourceError, match="no TLS that can be trusted"):
                Source.open(endpoint(door.port, counted, **extra))
    assert asked == []


@on_mysql
def test_a_server_without_tls_gets_no_token(server: Server, authority: Authority, counted: list[str]) -> None:
    from fault_proxy import FaultProxy

    with FaultProxy(server.port) as proxy, pytest.raises(SourceError):
        Source.open(endpoint(proxy.port, counted, ssl={"ca": str(authority.pem)}))


@on_mysql
def test_the_doctor_tells_of_tokens(server: Server, authority: Authority, counted: list[str]) -> None:
    with door_of(server, authority, 60) as door:
        checks = server_checks(endpoint(door.port, counted, ssl={"ca": str(authority.pem)}))
    (check,) = [check for check in checks if check.name == "token"]
    assert check.ok is True
    assert counted[0] in check.found
    said = io.StringIO()
    sys_stdout, sys.stdout = sys.stdout, said
    try:
        print_checks(checks)
    except BinlakeError:
        pass
    finally:
        sys.stdout = sys_stdout
    assert MARK not in said.getvalue()


# -- what makes them ---------------------------------------------------------------------------------------------

BROKEN = [
    (["/nowhere/token"], ConfigurationError, "can't be started"),
    (["sh", "-c", "exit 3"], ConnectionFailed, "failed with code 3"),
    (["true"], ConnectionFailed, "made no token"),
    (["printf", "a\\nb"], ConnectionFailed, "made no token"),
    (["head", "-c", "1000000", "/dev/zero"], ConnectionFailed, "made no token"),
    (["yes"], ConnectionFailed, "made no token"),
    (["sh", "-c", "sleep 60 & wait"], ConnectionFailed, "has not ended after"),
]


@pytest.mark.parametrize(("command", "kind", "said"), BROKEN, ids=lambda value: str(value)[:30])
def test_a_command_that_makes_none(
    monkeypatch: pytest.MonkeyPatch, command: list[str], kind: type[BinlakeError], said: str
) -> None:
    monkeypatch.setattr(tokens, "COMMAND_SECONDS", 0.5)
    began = time.monotonic()
    with pytest.raises(kind, match=said):
        endpoint(1, command).secret()
    assert time.monotonic() - began < 5


def test_a_command_gets_no_shell() -> None:
    assert endpoint(1, ["printf", "%s", "$HOME;`id`"]).secret() == "$HOME;`id`"


@pytest.mark.parametrize("token", ["S3cretToken", "aws", [], [1], [""], {"a": 1}, "[broken"], ids=str)
def test_what_is_neither_a_service_nor_a_command_is_not_repeated(token: Any) -> None:
    with pytest.raises(ConfigurationError, match="neither a service nor a command") as caught:
        endpoint(1, token)
    assert "S3cretToken" not in str(caught.value)


def test_a_password_beside_a_token_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a password, and its extra a token"):
        parse_airflow_connection("mysql://u:s3cret@h/?token=aws-rds", name="X")


def test_a_token_goes_to_jobs_as_how_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from binlake.source.connection import CONNECTION_FILE, from_environment

    for token, extra in (("azure", {}), (["print", "it"], {}), ("aws-rds", {"token_region": "us-east-2"})):
        where = endpoint(3306, token, **extra)
        path = tmp_path / str(time.monotonic_ns())
        write_file(where, str(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        monkeypatch.setenv(CONNECTION_FILE, str(path))
        assert from_environment("x") == where
        assert pickle.loads(pickle.dumps(where)) == where


def test_the_region_is_in_the_host_s_name_or_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    host = "shop.c1abc.ap-south-1.rds.amazonaws.com"
    made = replace(endpoint(3306, "aws-rds"), host=host).secret()
    assert is_signed_for_rds(made, SECRET, host=f"{host}:3306", user=USER, region="ap-south-1")
    with pytest.raises(ConfigurationError, match="region") as caught:
        endpoint(3306, "aws-rds").secret()
    assert "token_region" in caught.value.remedy


@pytest.mark.parametrize(
    ("service", "module", "extra"),
    [
        ("aws-rds", "botocore.session", "aws"),
        ("gcp-cloudsql", "google.auth.transport.requests", "gcp"),
        ("azure", "azure.identity", "azure"),
    ],
)
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, service: str, module: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match="isn't installed") as caught:
        endpoint(1, service, token_region="nowhere").secret()
    assert f"pip install 'binlake[{extra}]'" in caught.value.remedy


def test_google_s_and_azure_s_own_libraries_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names that they have: no cloud is here. What they raise isn't repeated."""
    import azure.identity
    import google.auth
    from google.auth.credentials import Credentials

    class Renewed(Credentials):  # type: ignore[misc]
        def refresh(self, request: object) -> None:
            self.token = f"{MARK}-google"

    asked: list[Any] = []

    def default(**given: Any) -> tuple[Credentials, None]:
        asked.append(given)
        return Renewed(), None

    for kept in ("_google_credentials", "_azure_credential"):
        monkeypatch.setattr(tokens, kept, getattr(tokens, kept).__wrapped__)
    monkeypatch.setattr(google.auth, "default", default)
    assert endpoint(1, "gcp-cloudsql").secret() == f"{MARK}-google"
    assert asked == [{"scopes": ["https://www.googleapis.com/auth/sqlservice.login"]}]

    class Refused:
        def get_token(self, *scopes: str) -> None:
            asked.append(scopes)
            raise RuntimeError(SECRET)

    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", Refused)
    with pytest.raises(
        ConnectionFailed, match=r"no token of azure for iam_user@127\.0\.0\.1:1: RuntimeError"
    ) as caught:
        endpoint(1, "azure").secret()
    assert asked[-1] == ("https://ossrdbms-aad.database.windows.net/.default",)
    assert SECRET not in str(caught.value)
    assert cast("Any", caught.value).__cause__ is None
