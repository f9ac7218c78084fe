"""The AWS_* variables as each library gets them, and what is refused before anything is tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from binlake.config import LakeConfig
from binlake.delta import opened_tables
from binlake.errors import ConfigurationError, LakeError
from binlake.storage import stores

ACCOUNT = {"AWS_ACCESS_KEY_ID": "key-id", "AWS_SECRET_ACCESS_KEY": "not told"}
OWN = {**ACCOUNT, "AWS_ENDPOINT_URL": "http://127.0.0.1:7070/", "AWS_ALLOW_HTTP": "true"}


AZURE = "abfss://lake@account.dfs.core.windows.net"
PRINCIPAL = {"AZURE_CLIENT_ID": "client", "AZURE_TENANT_ID": "tenant"}


def test_all_libraries_are_told_one_server_and_no_account() -> None:
    s3 = stores.S3.of(OWN)
    assert s3.storage_options() == {
        "aws_endpoint_url": "http://127.0.0.1:7070",
        "aws_region": "us-east-1",
        "aws_conditional_put": "etag",
    }
    assert s3.arrow_arguments() == {"region": "us-east-1", "scheme": "http", "endpoint_override": "127.0.0.1:7070"}
    spark = s3.spark_settings()
    assert spark["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:7070"
    assert spark["spark.hadoop.fs.s3a.path.style.access"] == "true"
    shown = str([s3, s3.storage_options(), s3.arrow_arguments(), spark])
    assert "key-id" not in shown
    assert "not told" not in shown


def test_amazons_own_is_left_to_each_librarys_chain() -> None:
    s3 = stores.S3.of({"AWS_REGION": "eu-west-1"})
    assert s3.storage_options() == {
        "aws_region": "eu-west-1",
        "aws_conditional_put": "etag",
        "aws_force_credential_load": "true",
    }
    assert s3.arrow_arguments() == {"region": "eu-west-1"}
    assert not s3.spark_settings()["spark.hadoop.fs.s3a.endpoint"]
    assert stores.S3.of({}).arrow_arguments() == {}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({**OWN, "AWS_ALLOW_HTTP": ""}, "plain text"),
        ({"AWS_ACCESS_KEY_ID": "key-id"}, "AWS_ACCESS_KEY_ID alone"),
        ({"AWS_ENDPOINT_URL": "127.0.0.1:7070"}, "no address"),
        ({**ACCOUNT, "AWS_CA_BUNDLE": "/own.pem"}, "AWS_CA_BUNDLE is set.*SSL_CERT_FILE=/own.pem"),
    ],
)
def test_variables_that_cannot_be_right_are_refused(environment: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){said}"):
        stores.check("s3a://lake/x", environment)
    stores.check("/folder", environment)


@pytest.mark.parametrize(
    "path",
    [
        "s3://key:secret@lake/x", "s3://key@lake/x", "s3://lake/x?access_key=key", "s3:///x",
        "abfss://lake:secret@account.dfs.core.windows.net/x", "abfss://lake@account.dfs.core.windows.net/x?sig=key",
        "abfss://lake@account.example.com/x", "abfss://lake/x",
    ],
)  # fmt: skip
def test_an_address_is_a_place_and_nothing_else(path: str) -> None:
    with pytest.raises(ValueError, match="address"):
        stores.refuse_secrets(path)


@pytest.mark.parametrize(
    "path", ["hdfs:///x", "hdfs://host/ä", "hdfs://host/a b", "hdfs://host/a[b]", "hdfs://host//x"]
)
def test_on_hdfs_only_places_that_deltalake_finds_are_taken(path: str) -> None:
    with pytest.raises(ValueError, match="deltalake finds no other"):
        LakeConfig(path=path)


@pytest.mark.parametrize(
    "path",
    ["/folder", "./what?", "s3://lake/x", "s3a://lake/x", "hdfs://host:8020/x/y~23/", "hdfs://names", f"{AZURE}/x"],
)
def test_places_are_taken(path: str) -> None:
    stores.refuse_secrets(path)
    stores.refuse_unknown(path)


@pytest.mark.parametrize("path", ["gs://lake/x", "oss://lake/x", "wasbs://files@account.blob.core.windows.net/x"])
def test_a_store_on_which_nothing_was_proved_is_refused_by_the_yaml(path: str) -> None:
    with pytest.raises(ValueError, match=r"isn't supported.*use a folder.*s3://"):
        LakeConfig(path=path)


def test_azure_s_account_is_told_to_hadoop_s_configuration_alone() -> None:
    endpoint = "https://127.0.0.1:10000/account"
    azure = stores.Azure.of(
        "account", {"AZURE_STORAGE_ENDPOINT": f"{endpoint}/", "AZURE_STORAGE_ACCOUNT_KEY": "not told"}
    )
    assert azure.storage_options() == {"azure_storage_account_name": "account", "azure_storage_endpoint": endpoint}
    assert azure.obstore_arguments() == {"config": {"account_name": "account", "endpoint": endpoint}}
    assert azure.spark_settings()["spark.hadoop.fs.azure.abfs.endpoint"] == "127.0.0.1:10000"
    assert azure.variables() == {"AZURE_STORAGE_ENDPOINT": endpoint}
    assert "not told" not in str([azure, azure.storage_options(), azure.obstore_arguments(), azure.spark_settings()])
    assert azure.hadoop_account()["fs.azure.account.key"] == "not told"


@pytest.mark.parametrize(
    ("environment", "kind", "credential"),
    [
        ({"AZURE_STORAGE_ACCOUNT_KEY": "k", "AZURE_STORAGE_SAS_TOKEN": "s"}, "SharedKey", ("key", "k")),
        ({**PRINCIPAL, "AZURE_CLIENT_SECRET": "s"}, "ClientCreds", ("oauth2.client.secret", "s")),
        ({**PRINCIPAL, "AZURE_FEDERATED_TOKEN_FILE": "/t"}, "WorkloadIdentity", ("oauth2.token.file", "/t")),
        ({}, "Msi", ("auth.type", "OAuth")),
    ],
)
def test_azure_s_accounts_are_taken_in_one_order(
    environment: dict[str, str], kind: str, credential: tuple[str, str]
) -> None:
    account = stores.Azure.of("account", environment).hadoop_account()
    assert any(kind in value for value in account.values())
    assert [value for key, value in account.items() if key.endswith(credential[0])] == [credential[1]]
    stores.check(AZURE, environment)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"AZURE_STORAGE_ACCOUNT_NAME": "another"}, "lake.path names the account account"),
        ({"AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:10000/account"}, "https://HOST:PORT/account"),
        ({"AZURE_STORAGE_ENDPOINT": "https://127.0.0.1:10000"}, "https://HOST:PORT/account"),
        ({"AZURE_CLIENT_SECRET": "s", "AZURE_CLIENT_ID": "c"}, "lacks AZURE_TENANT_ID"),
        ({"AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=2"}, "AZURE_STORAGE_SAS_TOKEN is set.*AZURE_STORAGE_ACCOUNT_KEY"),
    ],
)
def test_variables_of_azure_that_cannot_be_right_are_refused(environment: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){said}"):
        stores.check(AZURE, environment)


def test_an_account_whose_folders_are_real_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are with a hierarchical namespace, and on a disk, which stands for one here."""
    monkeypatch.setattr(stores, "store_of", lambda path: "azure")
    monkeypatch.setattr(stores, "storage_options", lambda path: None)
    with pytest.raises(LakeError, match="hierarchical namespace"):
        opened_tables.refuse_overwriting_store(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_store_that_takes_two_commits_for_one_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that forgets a commit at once takes the next in its place, as one does that overwrites."""
    monkeypatch.setattr(stores, "store_of", lambda path: "s3")
    monkeypatch.setattr(stores, "storage_options", lambda path: None)
    opened_tables.refuse_overwriting_store(str(tmp_path))
    update = DeltaTable.update

    def forgotten(table: DeltaTable, **changes: Any) -> Any:
        done = update(table, **changes)
        next(tmp_path.glob("*/_delta_log/*1.json")).unlink()
        return done

    monkeypatch.setattr(DeltaTable, "update", forgotten)
    with pytest.raises(LakeError, match="two commits for one version"):
        opened_tables.refuse_overwriting_store(str(tmp_path))
    assert not list(tmp_path.iterdir())
