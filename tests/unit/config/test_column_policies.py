"""Entries of ``columns``: what they say of a table's columns, what is refused, and what a change of them asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from binlake.config import PipelineConfig, hash_connections
from binlake.config.column_policies import ColumnPolicy, hash_keys, key_connections, masks_of
from binlake.config.readers_config import PageConfig
from binlake.errors import ConfigurationError, KeyUnavailable
from binlake.planner.manifest import Manifest
from binlake.planner.rules import Rules
from binlake.schema.table import Column, TableName, TableSchema
from binlake.storage import passwords

USERS = TableName("shop", "users")
PLAIN = TableSchema(
    (Column("id", "int", nullable=False), Column("email", "varchar"), Column("salary", "int")), ("id",), "primary"
)
HASHED = {"columns": "shop.*.email", "hash": {"key": "pii_key", "length": 32}}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_connections, "_known", {})
    monkeypatch.setattr(passwords, "look_up", passwords.from_environment)  # Airflow's, where its provider was imported
    monkeypatch.setenv("AIRFLOW_CONN_PII_KEY", json.dumps({"password": "one"}))


def config(*columns: dict[str, Any]) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "source": {"name": "tests", "connection": "tests", "server_id": 1},
            "tables": {"include": ["shop.*"]},
            "lake": {"path": "/lake"},
            "columns": columns,
        }
    )


@pytest.mark.parametrize(
    "entry",
    [
        {}, {"null": False}, {"null": True, "truncate": 3}, {"hash": {}}, {"hash": {"key": "k", "length": 7}},
        {"mask": {}}, {"mask": {"keep_last": 0}}, {"mask": {"keep_last": 1, "with": "ab"}}, {"truncate": "week"},
        {"truncate": 0}, {"rename": "_own"}, {"rename": "a.b"}, {"rename": ""},
        {"rename": "other", "null": True}, {"type": "int"}, {"type": "bigint", "rename": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_an_entry_has_one_action_that_makes_sense(entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ColumnPolicy.model_validate({"columns": "shop.users.email", **entry})


def test_the_last_entry_counts_and_an_excluded_column_stays_excluded() -> None:
    said = config(
        {"columns": "*.*.email", "null": True},
        {"columns": "shop.users.Email", "truncate": 3},
        {"columns": "shop.users.salary", "exclude": True},
        {"columns": "shop.users.salary", "truncate": 3},
    )
    shape = said.excluding(USERS, PLAIN)
    assert {name: str(mask) for name, mask in shape.masks.items()} == {"email": "truncated to 3"}
    assert shape.excluded == {"salary"}
    assert said.tables.exclude_columns == ["shop.users.salary"]


@pytest.mark.parametrize("table", ["_users_gho", "_users_new", "_users_old", "lhmn_users", "_vt_HOLD_1"])
def test_copies_of_a_schema_change_tool_have_the_masks_of_their_table(table: str) -> None:
    said = config({"columns": "shop.users.email", "null": True})
    assert masks_of(said.columns, "shop", table).keys() == {"email"}
    assert not masks_of(said.columns, "other", table)


def test_a_missing_key_is_told_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_PII_KEY")
    with pytest.raises(ConfigurationError, match="the key of a hash is missing: the connection 'pii_key'"):
        _ = config(HASHED).reading


def test_a_key_comes_from_a_file_that_a_job_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    known = config(HASHED).reading
    path = tmp_path / "keys.json"
    hash_connections.hand_over(str(path), key_connections(config(HASHED).columns))
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(hash_connections, "_known", {})
    monkeypatch.delenv("AIRFLOW_CONN_PII_KEY")
    monkeypatch.setenv(passwords.KEYS_FILE, str(path))
    assert config(HASHED).reading == known


def test_an_executor_has_the_keys_that_its_task_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    said = config(HASHED)
    brought, shape = hash_keys(said.columns), said.excluding(USERS, PLAIN)
    monkeypatch.setattr(hash_connections, "_known", {})
    monkeypatch.delenv("AIRFLOW_CONN_PII_KEY")
    hash_connections.know(brought)
    assert said.excluding(USERS, PLAIN) == shape


def test_a_changed_entry_and_a_changed_key_ask_for_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    before = config(HASHED)
    shape, reading = before.excluding(USERS, PLAIN), before.reading
    assert not Rules.of(before).reads_otherwise(USERS, shape)
    why = Rules.of(config()).reads_otherwise(USERS, shape)
    assert why.startswith(
        "for column 'email' the YAML (columns) asks for the value, and the lake has hash of 32 digits"
    )
    assert "truncated to 3" in Rules.of(config({"columns": "*.*.email", "truncate": 3})).reads_otherwise(USERS, shape)
    assert "hash of 32 digits" in Rules.of(before).reads_otherwise(USERS, PLAIN)
    monkeypatch.setattr(hash_connections, "_known", {})
    monkeypatch.setenv("AIRFLOW_CONN_PII_KEY", json.dumps({"password": "two"}))
    assert config(HASHED).reading != reading
    assert Rules.of(config(HASHED)).reads_otherwise(USERS, shape)


def test_a_process_that_works_on_notices_a_changed_key_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    said = config(HASHED)
    shape, former = said.excluding(USERS, PLAIN), hash_connections.key("pii_key").fingerprint
    monkeypatch.setenv("AIRFLOW_CONN_PII_KEY", json.dumps({"password": "two"}))
    hash_connections.look_again(key_connections(said.columns))
    assert not Rules.of(said).reads_otherwise(USERS, shape), "it was looked up just now"
    monkeypatch.setattr(hash_connections, "LOOKED_UP_EACH", 0.0)
    hash_connections.look_again(key_connections(said.columns))
    new = hash_connections.key("pii_key").fingerprint
    why = Rules.of(said).reads_otherwise(USERS, shape)
    assert former != new
    assert (
        f"asks for hash of 32 digits, by the key {new}, and the lake has hash of 32 digits, by the key {former}" in why
    )
    monkeypatch.delenv("AIRFLOW_CONN_PII_KEY")
    with pytest.raises(KeyUnavailable, match="the key of a hash is missing") as away:
        hash_connections.look_again(["pii_key"])
    assert away.value.retryable, "who follows waits, as for a server"
    assert hash_connections.key("pii_key").fingerprint == new


def test_a_store_of_secrets_that_fails_is_waited_for_and_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(connection: str) -> str:
        raise ConnectionError("https://vault.example?token=hvs.zq01")

    monkeypatch.setattr(passwords, "look_up", unreachable)
    with pytest.raises(KeyUnavailable) as away:
        hash_keys(config(HASHED).columns)
    assert "ConnectionError for the connection 'pii_key'" in str(away.value)
    assert (away.value.retryable, "zq01" in str(away.value)) == (True, False)
    assert (away.value.__cause__, away.value.__suppress_context__) == (None, True)


def test_a_key_that_cant_be_looked_up_is_not_handed_to_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def unreachable(connection: str) -> str:
        raise ConnectionError("https://vault.example?token=hvs.zq01")

    path = tmp_path / "keys.json"
    monkeypatch.setattr(passwords, "look_up", lambda connection: None)
    with pytest.raises(ConfigurationError, match="the key of a hash is missing"):
        hash_connections.hand_over(str(path), ["pii_key"])
    monkeypatch.setattr(passwords, "look_up", unreachable)
    with pytest.raises(KeyUnavailable) as away:
        hash_connections.hand_over(str(path), ["pii_key"])
    assert ("zq01" in str(away.value), path.exists()) == (False, False)


def test_settings_without_entries_have_the_digest_that_they_had() -> None:
    other = PipelineConfig.model_validate(config().model_dump(exclude={"columns"}))
    assert other.reading == config().reading


def test_a_manifest_has_the_entries_under_which_it_was_staged() -> None:
    said = config(HASHED, {"columns": "*.*.phone", "mask": {"keep_last": 4, "with": "#"}})
    manifest = Manifest(1, "attempt", (), said.tables, said.invalid, (), columns=said.columns)
    read = Manifest.from_json(manifest.to_json())
    assert read == manifest
    assert config().reading_as(said.tables, said.invalid, (), read.columns).columns == said.columns


def test_values_that_the_page_masks_are_masked_under_both_names() -> None:
    said = config({"columns": "shop.users.Email", "rename": "Contact"})
    said = said.model_copy(update={"page": PageConfig(mask_columns=["shop.*.email"])})
    assert said.masked_on_page(TableName("shop", "users")) == {"email", "contact"}
    assert said.masked_on_page(TableName("shop", "orders")) == {"email"}


def test_a_tools_copy_has_the_names_and_types_of_its_table() -> None:
    said = config({"columns": "shop.users.email", "rename": "mail"}, {"columns": "shop.*.id", "type": "bigint"})
    for table in ("users", "_users_gho"):
        form = said.lake_form(TableName("shop", table))
        assert (form.names, form.types) == ({"email": "mail"}, {"id": "bigint"})
    assert said.lake_form(TableName("shop", "orders")).names == {}
    assert not said.lake_form(TableName("crm", "users"))
    assert said.reading != config({"columns": "shop.users.email", "rename": "post"}).reading
