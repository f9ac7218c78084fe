"""The YAML is checked at the border; each error names file and key."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from binlake import config
from binlake.config import catalogs_config
from binlake.config.catalogs_config import HiveCatalogConfig
from binlake.config.feed_config import FeedConfig, names_once
from binlake.errors import ConfigurationError
from binlake.schema.table import TableName

WHOLE = """
source: {name: shop, connection: shop_mysql, server_id: 4001, server_ids: 16}
tables: {include: ["shop.*"], exclude: ["shop.audit_*"]}
lake: {path: ./lake}
schedule: "0 * * * *"
invalid_dates: keep_text
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "shop.yaml"
    path.write_text(text)
    return path


def test_a_whole_file(tmp_path: Path) -> None:
    loaded = config.load(write(tmp_path, WHOLE))
    assert loaded.included(TableName("shop", "orders"))
    assert not loaded.included(TableName("shop", "audit_log"))
    assert not loaded.included(TableName("other", "orders"))
    assert loaded.table_path(TableName("shop", "a/b")) == f"{tmp_path}/lake/shop/shop/a~2Fb"
    assert loaded.metadata_path("lease") == f"{tmp_path}/lake/shop/_binlake/lease"


@pytest.mark.parametrize(
    ("file", "lake"),
    [("shop.yaml", "./lake"), ("dags/pipelines/shop.yaml", "lake"), ("dags/shop.yaml", "other/../lake")],
)
def test_a_relative_lake_lies_in_the_project(
    tmp_path: Path, file: str, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path.parent, WHOLE.replace("./lake", lake) + "catalog: {metastore: names}\n")
    monkeypatch.chdir(tmp_path.parent)
    for said in (path, path.relative_to(tmp_path.parent)):
        loaded = config.load(said)
        assert loaded.root == f"{tmp_path}/lake/shop"
        (entry,) = loaded.named_catalogs
        assert isinstance(entry, HiveCatalogConfig)
        assert entry.metastore == f"{tmp_path}/names"


@pytest.mark.parametrize("lake", ["/data/lake", "~/lake"])
def test_an_absolute_lake_stays_where_it_is(tmp_path: Path, lake: str) -> None:
    loaded = config.load(write(tmp_path, WHOLE.replace("./lake", lake)))
    assert loaded.lake.path == str(Path(lake).expanduser())


@pytest.mark.parametrize("letter", "%\\?#*[]{}^|\t")
@pytest.mark.parametrize("place", ["/data/a{}41/lake", "./a{}41", "s3://bucket/a{}41"])
def test_a_lake_that_libraries_would_look_for_elsewhere_is_refused(tmp_path: Path, letter: str, place: str) -> None:
    text = WHOLE.replace("{path: ./lake}", f"{{path: {json.dumps(place.replace('{}', letter))}}}")
    with pytest.raises(ConfigurationError, match=r"(?s)shop.yaml.*lake.path") as refused:
        config.load(write(tmp_path, text))
    assert "\\t" in str(refused.value) if letter == "\t" else letter in str(refused.value)


def test_the_folder_of_a_relative_lake_counts_too(tmp_path: Path) -> None:
    (tmp_path / "a[x]").mkdir()
    with pytest.raises(ConfigurationError, match=r"find different folders"):
        config.load(write(tmp_path / "a[x]", WHOLE))


def test_sparks_settings_are_given_as_spark_writes_them(tmp_path: Path) -> None:
    conf = "{spark.dynamicAllocation.enabled: false, spark.cores.max: 8, spark.yarn.queue: night}"
    loaded = config.load(write(tmp_path, WHOLE + f"spark: {{master: yarn, executor_memory: 4g, conf: {conf}}}"))
    assert loaded.spark.master == "yarn"
    assert loaded.spark.settings == {
        "spark.dynamicAllocation.enabled": "false",
        "spark.cores.max": "8",
        "spark.yarn.queue": "night",
    }


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("{masters: yarn}", "spark.masters"),
        ("{driver_memory: 4 GB}", "spark.driver_memory"),
        ("{conf: {yarn.queue: night}}", "'yarn.queue' is no setting of Spark's"),
        ("{conf: {spark.executor.memory: 4g}}", "write spark: {executor_memory: …}"),
        ("{conf: {spark.hadoop.fs.s3a.secret.key: xyzzy}}", "'spark.hadoop.fs.s3a.secret.key' is a secret"),
    ],
)
def test_what_is_no_setting_of_sparks_is_named(tmp_path: Path, settings: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)) as caught:
        config.load(write(tmp_path, WHOLE + f"spark: {settings}"))
    assert "xyzzy" not in str(caught.value)


def test_s3_has_one_address(tmp_path: Path) -> None:
    loaded = config.load(write(tmp_path, WHOLE.replace("./lake", "s3://bucket/lake/")))
    assert loaded.table_path(TableName("d", "t")) == "s3a://bucket/lake/shop/d/t"


def test_system_databases_are_never_included(tmp_path: Path) -> None:
    loaded = config.load(write(tmp_path, WHOLE.replace("shop.*", "*.*")))
    assert not loaded.included(TableName("mysql", "user"))
    assert loaded.included(TableName("any", "thing"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("schedule:", "shedule:"), "shedule"),
        (("server_id: 4001", "server_id: 0"), "source.server_id"),
        (('["shop.*"]', '["shop"]'), "tables.include"),
        (("keep_text", "guess"), "invalid_dates"),
        (("invalid_dates: keep_text", "invalid_text: keep_text"), "invalid_text"),
        (("name: shop", "name: ../x"), "source.name"),
        (("lake: {path: ./lake}", "lake: {}"), "lake.path"),
        (("schedule:", "maintain: {schedule: daily}\nschedule:"), "maintain.schedule"),
        (("schedule:", "maintain: {file_mb: 0}\nschedule:"), "maintain.file_mb"),
        (("schedule:", "maintain: {history_hours: 1000}\nschedule:"), "log_hours keeps less than history_hours (1000)"),
        (("schedule:", "catalog: {metastore: 'http://h:1'}\nschedule:"), "neither thrift://host:port nor a folder"),
        (("schedule:", "catalog: {database: '{table}'}\nschedule:"), "may hold {source} and {database}"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        config.load(write(tmp_path, WHOLE.replace(*change)))
    assert said in str(caught.value)
    assert "shop.yaml" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "- a\n", "source: [", "just text"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError):
        config.load(write(tmp_path, text))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (rb'"\ud83d\ude00.*"', "surrogates not allowed"),
        (b"2024-13-01", "month must be in 1..12"),
        (b"caf\xe9.*", "invalid continuation byte"),
    ],
)
def test_what_no_value_can_be_is_told_with_its_place(tmp_path: Path, value: bytes, said: str) -> None:
    path = tmp_path / "shop.yaml"
    path.write_bytes(b"tables: {include: [%s]}" % value)
    with pytest.raises(ConfigurationError, match=said) as caught:
        config.load(path)
    assert re.search("column 20|position 2[0-9]", str(caught.value))
    str(caught.value).encode()


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="can't read"):
        config.load(tmp_path / "none.yaml")


@pytest.mark.parametrize("sink", ["kafka://broker:9092", "file:///feeds"])
@pytest.mark.parametrize("position", ["file:/places", "mysql:SHOP/feeds.places", "own_places:Places"])
def test_a_position_that_the_sink_would_overrule_is_refused(sink: str, position: str) -> None:
    feed = {"name": "out", "format": "text", "sink": sink}
    assert FeedConfig.model_validate(feed).position == "metadata"
    with pytest.raises(ValidationError, match="keeps the position with the messages; take position away"):
        FeedConfig.model_validate({**feed, "position": position})


def test_debezium_feeds_that_would_write_one_topic_in_two_encodings_are_refused() -> None:
    json_, avro = {"type": "debezium"}, {"type": "debezium", "encoding": "avro", "registry": "http://registry"}

    def feeds(first: dict[str, Any], second: dict[str, Any], **of_second: Any) -> list[FeedConfig]:
        sink = "kafka://broker:9092"
        made = [{"name": "one", "sink": sink, "format": first}, {"name": "two", "sink": sink, "format": second}]
        return names_once([FeedConfig.model_validate(made[0]), FeedConfig.model_validate({**made[1], **of_second})])

    with pytest.raises(ValueError, match="give one of them schema_changes: false, heartbeat: false"):
        feeds(json_, avro)
    with pytest.raises(ValueError, match="give one of them schema_changes: false"):
        feeds(json_, {**json_, "schemas": True, "heartbeat": False})
    assert len(feeds(json_, {**avro, "schema_changes": False, "heartbeat": False})) == 2
    assert len(feeds(json_, avro, sink="kafka://another:9092")) == 2
    assert len(feeds(json_, {**avro, "topic_prefix": "another"})) == 2
    assert len(feeds(json_, {**json_, "tombstones": False})) == 2


@pytest.mark.parametrize(
    ("catalog", "kind"),
    [({"metastore": None}, "spark"), ({}, "spark"), ({"metastore": "/names"}, "hive"), ({"kind": "spark"}, "spark")],
)
def test_a_catalog_alone_is_an_entry(catalog: dict[str, Any], kind: str) -> None:
    (entry,) = catalogs_config.entries_of(catalog)
    assert entry["kind"] == kind
    read = TypeAdapter(catalogs_config.AnyCatalog).validate_python(entry)
    assert (read.name, read.follows("batch"), read.follows(None)) == ("spark_catalog", True, True)


REST = {"kind": "rest", "name": "lakehouse", "uri": "http://a"}


@pytest.mark.parametrize(
    ("other", "is_refused"),
    [
        ({**REST, "uri": "http://b"}, True),
        ({**REST, "warehouse": "w"}, True),
        ({**REST, "name": "another"}, False),
        ({"kind": "sqlite", "name": "lakehouse", "sqlite": "/c.db"}, False),
        ({"kind": "spark", "name": "lakehouse"}, False),
    ],
)
def test_rest_catalogs_have_names_of_their_own(other: dict[str, Any], is_refused: bool) -> None:
    """Each has a folder of its name in each table's folder."""
    entries = [TypeAdapter(catalogs_config.AnyCatalog).validate_python(entry) for entry in (REST, other)]
    if not is_refused:
        return catalogs_config.refuse_wrong(entries, publishes=True)
    with pytest.raises(ValueError, match="has the entry 'lakehouse' twice"):
        catalogs_config.refuse_wrong(entries, publishes=True)
