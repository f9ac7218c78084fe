"""A lake's account by an Airflow connection: what it means to each library, and where it doesn't show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from binlake.config import PipelineConfig, load
from binlake.errors import ConfigurationError
from binlake.storage import accounts, stores

SECRET = "not told"
EXTRA = {"endpoint_url": "http://127.0.0.1:7070", "region_name": "eu-west-1", "allow_http": True}


def config_of(bucket: str, connection: str | None) -> PipelineConfig:
    config = PipelineConfig.model_validate(document(f"s3://{bucket}/lake", connection))
    accounts.use(config.root, config.lake.connection)
    return config


def document(lake: str, connection: str | None) -> dict[str, Any]:
    return {
        "source": {"name": "s", "connection": "c", "server_id": 1},
        "tables": {"include": ["d.*"]},
        "lake": {"path": lake, "connection": connection},
    }


def connection(monkeypatch: pytest.MonkeyPatch, name: str, **fields: object) -> None:
    monkeypatch.setattr(accounts, "look_up", accounts.from_environment)
    accounts._looked_up.clear()
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "aws", **fields}))


def test_each_library_is_told_the_account_and_no_repr_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the process")
    monkeypatch.setenv("AWS_PROFILE", "of the process")
    connection(monkeypatch, "one", login="key-1", password=SECRET, extra=json.dumps(EXTRA))
    connection(monkeypatch, "two", login="key-2", password="b", extra={"aws_session_token": "t"})
    first, second, none = (config_of(name, name if name != "none" else None) for name in ("one", "two", "none"))
    s3 = stores.S3.at(first.metadata_path("runs"))
    assert s3.storage_options() == {
        "aws_endpoint_url": "http://127.0.0.1:7070",
        "aws_region": "eu-west-1",
        "aws_conditional_put": "etag",
        "aws_access_key_id": "key-1",
        "aws_secret_access_key": SECRET,
        "allow_http": "true",
    }
    assert s3.arrow_arguments() == {
        "region": "eu-west-1",
        "scheme": "http",
        "endpoint_override": "127.0.0.1:7070",
        "access_key": "key-1",
        "secret_key": SECRET,
    }
    assert s3.obstore_arguments()["config"]["secret_access_key"] == SECRET
    assert s3.hadoop_account()["fs.s3a.secret.key"] == SECRET
    assert s3.variables()["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert SECRET not in str([s3, s3.spark_settings(), first])
    stores.check(first.root)  # allow_http is in the connection
    assert not stores.has_profile(accounts.environment_of(first.root))
    assert stores.S3.at(second.root).arrow_arguments()["session_token"] == "t"
    assert "Temporary" in stores.S3.at(second.root).hadoop_account()["fs.s3a.aws.credentials.provider"]
    assert stores.S3.at(none.root).account is None
    assert not stores.S3.at(none.root).hadoop_account()


def test_a_token_of_the_process_is_not_sent_with_another_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """deltalake and obstore would add it by themselves."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the process")
    connection(monkeypatch, "one", login="key-1", password=SECRET, extra={"aws_session_token": "t"})
    connection(monkeypatch, "two", login="key-2", password=SECRET)
    stores.check(config_of("one", "one").root)
    two = config_of("two", "two").root
    with pytest.raises(ConfigurationError, match="unset AWS_SESSION_TOKEN"):
        stores.check(two)
    assert stores.S3.at(two).variables()["AWS_SESSION_TOKEN"] == ""  # in the place of a host's own
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    stores.check(two)


def test_a_lake_in_the_folder_of_another_has_its_own_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the process")
    for name in ("one", "two"):
        connection(monkeypatch, name, login=f"key of {name}", password=SECRET)
    outer, inner, innermost = config_of("b", "one"), config_of("b/lake/s", "two"), config_of("b/lake/s/lake/s", None)
    assert innermost.root.startswith(f"{inner.root}/")
    assert inner.root.startswith(f"{outer.root}/")
    keys = [accounts.environment_of(f"{lake.root}/x")["AWS_ACCESS_KEY_ID"] for lake in (outer, inner, innermost)]
    assert keys == ["key of one", "key of two", "of the process"]


def test_a_connection_without_a_key_tells_the_place_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the process")
    connection(monkeypatch, "one", extra={"region_name": "eu-west-1"})
    store = stores.S3.at(config_of("one", "one").root)
    assert (store.region, store.account) == ("eu-west-1", None)
    assert accounts.environment_of("s3a://one/lake/s")["AWS_ACCESS_KEY_ID"] == "of the process"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps({"login": "k", "password": SECRET, "extra": {"role_arn": SECRET}}), "role_arn"),
        (json.dumps({"login": "k", "password": SECRET, "extra": f"{SECRET}"}), "can't be read"),
        (f"{{{SECRET}", "can't be read"),
        ("", "AIRFLOW_CONN_ONE is not set"),
    ],
)
def test_what_cannot_be_meant_is_refused_without_a_word_of_it(
    monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    connection(monkeypatch, "one")
    monkeypatch.setenv("AIRFLOW_CONN_ONE", text)
    with pytest.raises(ConfigurationError, match=said) as refused:
        stores.check(config_of("one", "one").root)
    assert SECRET not in str(refused.value)


def test_a_uri_and_a_file_that_is_handed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connection(monkeypatch, "one")
    monkeypatch.setenv("AIRFLOW_CONN_ONE", "aws://key:not%20told@/?region_name=eu-west-1")
    root = config_of("one", "one").root
    accounts.hand_over(str(tmp_path / "lake.json"), "one")
    monkeypatch.delenv("AIRFLOW_CONN_ONE")
    monkeypatch.setenv(accounts.CONNECTION_FILE, str(tmp_path / "lake.json"))
    assert stores.S3.at(root).account == stores.Account("key", SECRET, "")


def test_a_folder_has_no_account() -> None:
    with pytest.raises(ValueError, match="s3:// and s3a:// alone"):
        PipelineConfig.model_validate(document("./lake", "one"))


def test_a_yaml_that_is_loaded_says_the_account_and_a_model_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection(monkeypatch, "one", login="key-1", password=SECRET)
    monkeypatch.setattr(accounts, "_connections", {})
    made = PipelineConfig.model_validate(document("s3://loaded/lake", "one"))
    assert accounts.variables_by_connection(made.root) is None
    (tmp_path / "s.yaml").write_text(json.dumps(document("s3://loaded/lake", "one")))
    loaded = load(tmp_path / "s.yaml")
    assert stores.S3.at(loaded.metadata_path("runs")).account == stores.Account("key-1", SECRET, "")
