"""A registry that asks who comes, and one whose certificate an authority of one's own signed."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from authority import Authority
from binlake.cli import command_line
from binlake.config.feed_config import FormatConfig
from binlake.errors import ConfigurationError, SinkFailed
from binlake.feeds.formats.connect_avro import subject_of
from binlake.feeds.schema_registry import SchemaRegistry
from binlake.feeds.sinks import kafka
from fake_registry import FakeRegistry

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: dict[str, Any] = {"type": "record", "name": "t", "namespace": "shop", "fields": []}


@pytest.mark.parametrize(
    ("connection", "authorization"),
    [
        ('{"login": "ann", "password": "pä:ss"}', "Basic YW5uOnDDpDpzcw=="),
        ("http://ann:p%C3%A4%3Ass@ignored/", "Basic YW5uOnDDpDpzcw=="),
        ('{"login": "ann", "password": "x", "extra": "{\\"token\\": \\"abc.def\\"}"}', "Bearer abc.def"),
    ],
)
def test_login_and_token(monkeypatch: pytest.MonkeyPatch, connection: str, authorization: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", connection)
    with FakeRegistry(authorization) as registry:
        assert SchemaRegistry(registry.url, connection="registry").register("s", SCHEMA) == 1
        with pytest.raises(SinkFailed, match="401 Unauthorized") as denied:
            SchemaRegistry(registry.url).register("s", SCHEMA)
    assert "registry_connection" in denied.value.remedy


def test_an_authority_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = Authority.made(tmp_path, "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("registry"))
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", json.dumps({"extra": {"ssl": {"ca": str(authority.pem)}}}))
    with FakeRegistry(context=context) as registry:
        assert SchemaRegistry(registry.url, connection="registry").register("s", SCHEMA) == 1
        with pytest.raises(SinkFailed, match="CERTIFICATE_VERIFY_FAILED"):
            SchemaRegistry(registry.url).register("s", SCHEMA)


@pytest.mark.parametrize("kind", [{"type": "specific"}, {"type": "debezium", "encoding": "avro"}])
def test_an_address_holds_no_password(kind: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    address = "http://ann:secret@registry:8081"
    with pytest.raises(ValidationError, match="name a registry_connection instead"):
        TypeAdapter(FormatConfig).validate_python({**kind, "registry": address})
    assert command_line.run(["console-consumer", "--bootstrap", "x:1", "--registry", address, "t"]) == 2
    assert "secret" not in capsys.readouterr().err


def test_a_connection_that_isnt_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_REGISTRY", raising=False)
    with pytest.raises(ConfigurationError, match="'registry' isn't there"):
        SchemaRegistry("http://x", connection="registry")


def test_kafkas_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"login": "ann", "password": "x", "extra": {"security.protocol": "SASL_SSL"}}
    monkeypatch.setenv("AIRFLOW_CONN_K", json.dumps(connection))
    wanted = {"security.protocol": "SASL_SSL", "sasl.username": "ann", "sasl.password": "x"}
    assert kafka.credentials("k") == wanted
    monkeypatch.setenv("AIRFLOW_CONN_K", json.dumps({**connection, "extra": json.dumps(connection["extra"])}))
    assert kafka.credentials("k") == wanted
    assert kafka.credentials(None) == {}
    for broken in ("{", "[]", '{"login": "ann", "password": "x", "extra": "[1]"}'):
        monkeypatch.setenv("AIRFLOW_CONN_K", broken)
        with pytest.raises(ConfigurationError) as refused:
            kafka.credentials("k")
        assert "ann" not in str(refused.value)


def test_subjects_by_confluents_strategies() -> None:
    assert subject_of("TopicName", "orders", SCHEMA, "key") == "orders-key"
    assert subject_of("RecordName", "orders", SCHEMA, "key") == "shop.t"
    assert subject_of("TopicRecordName", "orders", SCHEMA, "value") == "orders-shop.t"
