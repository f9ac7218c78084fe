"""Readers get credentials of a role for the folder of the table that they load, and of nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import duckdb
import pytest
from pydantic import ValidationError
from pyiceberg.catalog.rest import RestCatalog

from binlake.catalog.vended_credentials import VendedRole, policy
from binlake.cli import command_line
from binlake.config import PipelineConfig
from binlake.errors import ConfigurationError
from binlake.iceberg.publication import publish
from binlake.lake.duckdb_views import load_extension
from binlake.lake.table_at import TableAt
from binlake.schema.table import TableName
from fake_s3 import FakeS3
from fake_sts import FakeSts
from own_catalog import running
from published_lake import PublishedLake, appending

ROLE = "arn:aws:iam::123456789012:role/lake/readers"
ORDERS, HISTORY = TableName("shop", "orders"), TableName("shop", "orders__history")
COLUMNS = [("id", "INT")]
ALL, ELSEWHERE = "all-of-it-0123456", "elsewhere-0123456"
LAKE_KEY = "of-the-lake"
DELEGATED = {"X-Iceberg-Access-Delegation": "vended-credentials,remote-signing"}


@dataclass(frozen=True)
class OnS3:
    """A lake in a bucket, its account, and who gives credentials of a role."""

    store: FakeS3
    sts: FakeSts
    folder: Path
    clients: str

    @property
    def yaml(self) -> dict[str, Any]:
        return {
            "source": {"name": "shop", "connection": "none", "server_id": 1},
            "tables": {"include": ["*.*"]},
            "lake": {"path": "s3://lake/mirrors"},
            "iceberg": {"vended_role": ROLE},
        }

    def write_yaml(self) -> str:
        path = self.folder / "shop.yaml"
        path.write_text(json.dumps(self.yaml))
        return str(path)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnS3]:
    """Two tables with rows, whose names begin alike."""
    folder = tmp_path_factory.mktemp("vended")
    lake = PublishedLake(folder / "local", dict.fromkeys((ORDERS, HISTORY), COLUMNS))
    lake.batch(dict.fromkeys((ORDERS, HISTORY), appending({"id": 1}, {"id": 2})))
    clients = folder / "clients"
    clients.touch(0o600)
    clients.write_text(f"all {ALL} *\nelsewhere {ELSEWHERE} shop:stock.*\n")
    with FakeS3() as store, FakeSts() as sts, pytest.MonkeyPatch.context() as patch:
        account = {"AWS_ACCESS_KEY_ID": LAKE_KEY, "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL_STS": sts.url}
        for name, value in {**store.environment, **account}.items():
            patch.setenv(name, value)
        for file in (path for path in lake.folder.rglob("*") if path.is_file()):
            if "_iceberg" not in file.parts:  # its addresses are those of a disk
                store.objects[f"mirrors/{file.relative_to(lake.folder)}"] = file.read_bytes()
        for table in (ORDERS, HISTORY):
            publish(TableAt.of("s3a://lake/mirrors/shop", table, 0).path)
        yield OnS3(store, sts, folder, str(clients))


@pytest.fixture(scope="module")
def address(bucket: OnS3) -> Iterator[str]:
    """A catalog in a process of its own, for deltalake lets no thread of this one answer it."""
    with running("--config", bucket.write_yaml(), "--clients-file", bucket.clients) as address:
        yield address


@pytest.fixture
def on_s3(bucket: OnS3) -> OnS3:
    """Nobody has asked yet, and what is given isn't kept."""
    bucket.sts.asked.clear()
    bucket.sts.refuses, bucket.sts.holds_for = False, 1790
    bucket.store.accounts.clear()
    return bucket


@dataclass(frozen=True)
class Answer:
    """What the catalog says: HTTP's status and headers, and the body."""

    status: int
    headers: Mapping[str, str]
    body: Any


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def loaded(address: str, what: str = "orders", secret: str = ALL, **headers: str) -> Answer:
    sent = {"Authorization": f"Bearer {secret}", **headers}
    try:
        got = urlopen(Request(f"{address}/v1/shop@1/namespaces/shop/tables/{what}", headers=sent), timeout=60)
    except HTTPError as refused:
        return Answer(refused.code, _lower(refused.headers), json.load(refused))
    with got:
        return Answer(got.status, _lower(got.headers), json.load(got))


def test_whoever_asks_for_them_gets_them(on_s3: OnS3, address: str) -> None:
    assert loaded(address).body["config"] == {}
    assert on_s3.sts.asked == []
    answer, later = loaded(address, **DELEGATED), loaded(address, "orders/credentials")

    assert answer.headers["cache-control"] == "no-store"
    ends = answer.body["config"]["s3.session-token-expires-at-ms"]
    assert 1700 < int(ends) / 1000 - time.time() < 1791
    properties = {
        "s3.access-key-id": "vended-1", "s3.secret-access-key": "vended-secret", "s3.session-token": "vended-token",
        "s3.session-token-expires-at-ms": ends, "s3.endpoint": on_s3.store.url, "s3.path-style-access": "true",
        "s3.region": "us-east-1", "client.region": "us-east-1",
    }  # fmt: skip
    assert answer.body["config"] == properties
    vended = [{"prefix": "s3a://lake/mirrors/shop/shop/orders/", "config": properties}]
    assert answer.body["storage-credentials"] == vended
    (given,) = later.body["storage-credentials"]
    assert (given["prefix"], given["config"]["s3.access-key-id"]) == (vended[0]["prefix"], "vended-2")

    asked, _ = on_s3.sts.asked
    assert asked.account == LAKE_KEY
    form = {name: asked.form[name] for name in ("Action", "RoleArn", "DurationSeconds")}
    assert form == {"Action": "AssumeRole", "RoleArn": ROLE, "DurationSeconds": "3600"}
    (statement,) = json.loads(asked.form["Policy"])["Statement"]
    objects = "arn:aws:s3:::lake/mirrors/shop/shop/orders/*"  # the slash keeps those of orders__history out
    assert statement == {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": [objects]}


def test_they_are_given_again_until_half_of_their_time_is_over(on_s3: OnS3, address: str) -> None:
    def keys(*tables: str) -> list[str]:
        return [loaded(address, table, **DELEGATED).body["config"]["s3.access-key-id"] for table in tables]

    assert keys("orders__history", "orders__history", "orders") == ["vended-1", "vended-2", "vended-3"]
    on_s3.sts.holds_for = 1900
    assert keys("orders__history", "orders__history") == ["vended-4", "vended-4"]
    on_s3.sts.holds_for = 0
    assert keys("orders", "orders__history") == ["vended-5", "vended-4"]


def test_without_a_scope_for_the_table_sts_is_not_asked(on_s3: OnS3, address: str) -> None:
    for what in ("orders", "orders/credentials"):
        assert loaded(address, what, secret=ELSEWHERE, **DELEGATED).status == 404
        assert loaded(address, what, secret="nobody's", **DELEGATED).status == 401
    assert loaded(address, "no_table/credentials", **DELEGATED).status == 404
    assert on_s3.sts.asked == []


def test_a_role_that_cannot_be_had_is_named_without_what_sts_says(on_s3: OnS3, address: str) -> None:
    on_s3.sts.refuses = True
    answer = loaded(address, **DELEGATED)
    said = answer.body["error"]["message"]
    assert answer.status == 503
    assert said.startswith(f"STS gives no credentials of {ROLE}: AccessDenied: the role must trust")
    assert "user of-the-lake" not in said
    assert loaded(address).status == 200, "who has an account of his own needs no role"


def test_readers_read_a_bucket_of_which_they_have_no_account(
    on_s3: OnS3, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name)
    accounts = on_s3.store.accounts
    table = RestCatalog("shop", uri=address, warehouse="shop@1", token=ALL).load_table("shop.orders")
    accounts.clear()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert set(accounts) == {"vended-1"}, "pyiceberg has no other account"

    with duckdb.connect() as connection:
        for extension in ("httpfs", "avro", "iceberg"):
            load_extension(connection, extension)
        connection.execute(
            f"CREATE SECRET shop (TYPE iceberg, CLIENT_ID 'all', CLIENT_SECRET '{ALL}', "
            f"OAUTH2_SERVER_URI '{address}/v1/oauth/tokens')"
        )
        connection.execute(f"ATTACH 'shop@1' AS before (TYPE iceberg, ENDPOINT '{address}', SECRET shop)")
        accounts.clear()
        assert connection.execute("SELECT id FROM before.shop.orders ORDER BY id").fetchall() == [(1,), (2,)]
    vended = set(accounts) - {LAKE_KEY}  # by which the catalog reads
    assert vended
    assert all(key.startswith("vended-") for key in vended)


def test_without_clients_the_catalog_gives_none_to_everybody(on_s3: OnS3, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["catalog", "--config", on_s3.write_yaml(), "--port", "0"]) == 2
    said = capsys.readouterr().err
    assert "shop has an iceberg.vended_role, and without --clients-file the catalog would give its credentials" in said


def test_a_policy_takes_a_name_s_signs_for_what_they_are() -> None:
    text = policy("arn:aws-cn:iam::1:role/r", "s3a://b/l/shop/d/a*b$c-ж")
    assert json.loads(text)["Statement"][0]["Resource"] == ["arn:aws-cn:s3:::b/l/shop/d/a${*}b${$}c-ж/*"]
    assert text.isascii()


@pytest.mark.parametrize(
    "role", ["readers", "arn:aws:iam::1:user/ann", "arn:aws:iam::1:role/a b", "arn:aws:iam::1:role/*"]
)
def test_what_is_no_role_is_refused(on_s3: OnS3, role: str) -> None:
    with pytest.raises(ValidationError, match="vended_role"):
        PipelineConfig.model_validate({**on_s3.yaml, "iceberg": {"vended_role": role}})


def test_a_lake_elsewhere_has_no_role() -> None:
    with pytest.raises(ConfigurationError, match="names a role of S3, and the lake is at /lake/shop"):
        VendedRole.of(ROLE, "/lake/shop")
    assert VendedRole.of(None, "/lake/shop") is None
