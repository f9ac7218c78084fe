"""Wrong YAMLs: each message names the file, the line, the key, what was found and what is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake import config
from binlake.cli import command_line
from binlake.config import yaml_file
from binlake.errors import ConfigurationError, KeyProblem, UsageError
from binlake.feeds import feeds_file

GOOD = """\
source:
  name: shop
  connection: shop_mysql
  server_id: 4001
tables:
  include: ["shop.*"]
lake:
  path: /data/lake
schedule: "0 * * * *"
"""
FEED = """\
  - name: out
    sources: [shop.yaml]
    format: text
    sink: file:///data/out
"""

WRONG: list[tuple[str, str, int, str, str]] = [
    # what is replaced, by what, line, key, words of the message
    ("schedule:", "shedule:", 9, "shedule", "did you mean 'schedule'?"),
    ("schedule:", "Schedule:", 9, "Schedule", "did you mean 'schedule'?"),
    ("schedule:", "flavour:", 9, "flavour", "there is no key 'flavour'; there are source, tables, lake"),
    ('schedule: "0 * * * *"', "schedule: hourly", 9, "schedule", "'hourly' is not a cron expression; write five"),
    ('schedule: "0 * * * *"', "schedule: 5", 9, "schedule", "found 5; wanted text"),
    ("  name: shop\n", "", 1, "source.name", "this key is missing; write name: shop"),
    ("name: shop", "name: ../x", 2, "source.name", "found '../x'; wanted a name: a letter, then letters, digits"),
    ("name: shop", "name: 12", 2, "source.name", "found 12; wanted text"),
    ("name: shop", "name:", 2, "source.name", "found nothing; wanted text"),
    ("name: shop", "nmae: shop", 2, "source.nmae", "did you mean 'name'?"),
    ("  connection: shop_mysql\n", "", 1, "source.connection", "this key is missing; write connection: shop_mysql"),
    ("shop_mysql", "http://x", 3, "source.connection", "found an address, http://…; wanted the id of an Airflow"),
    ("shop_mysql", "mysql://u:p4ss@h/", 3, "source.connection", "mysql://…; wanted the id of an Airflow connection"),
    ("shop_mysql", "''", 3, "source.connection", "found ''; wanted a text that isn't empty"),
    ("  server_id: 4001\n", "", 1, "source", "server_id is missing; choose one that no server"),
    ("server_id: 4001", "server_id: 0", 4, "source.server_id", "found 0; wanted a number not below 1"),
    ("server_id: 4001", "server_id: 99999999999", 4, "source.server_id", "wanted a number not above 4294967295"),
    ("server_id: 4001", "server_id: many", 4, "source.server_id", "found 'many'; wanted a whole number"),
    ("server_id: 4001", "server_id: 1.5", 4, "source.server_id", "found 1.5; wanted a whole number"),
    ("server_id: 4001", "server_id: yes", 4, "source.server_id", "found true; wanted a whole number"),
    ("server_id: 4001", "server_id: [4001]", 4, "source.server_id", "found a list; wanted a whole number"),
    ("server_id: 4001", "server_id: 4001\n  server_id: 4002", 5, "server_id", "is written twice, first in line 4"),
    ("server_id: 4001", "server_id: 4001\n  password: p4ss", 5, "source.password", "there is no key 'password'"),
    ("schedule:", "lake: {path: /elsewhere}\nschedule:", 9, "lake", "is written twice, first in line 7"),
    ("schedule:", "iceberg: {version: 1}\nschedule:", 9, "iceberg.version", "found 1; wanted 2 or 3"),
    ("schedule:", "iceberg: {every: run}\nschedule:", 9, "iceberg.every",
     "found 'run'; wanted batch, upkeep or a duration such as 5m"),
    ('  include: ["shop.*"]', "  {}", 5, "tables.include", 'this key is missing; write include: ["shop.*"]'),
    ('["shop.*"]', '["shop"]', 6, "tables.include.0", "'shop' has no dot; write database.table, such as shop.*"),
    ('["shop.*"]', "[]", 6, "tables.include", "found an empty list; wanted at least one"),
    ('["shop.*"]', "shop.*", 6, "tables.include", "found 'shop.*'; wanted a list"),
    ('["shop.*"]', "[a.b,\n    7]", 7, "tables.include.1", "found 7; wanted text"),
    ('"shop.*"]', '"shop.*"]\n  exclude: [audit]', 7, "tables.exclude.0", "'audit' has no dot"),
    ('"shop.*"]', '"shop.*"]\n  exclude_columns: [a.b]', 7, "tables.exclude_columns.0", "has too few dots"),
    ('"shop.*"]', '"shop.*"]\n  exclude_columns: [a.b.c*]', 5, "tables", "'a.b.c*': c* isn't taken for"),
    ("schedule:", "page: {mask_columns: ['a.b.?']}\nschedule:", 9, "page.mask_columns", "write each column's name"),
    ('tables:\n  include: ["shop.*"]', "tables: [shop.*]", 5, "tables", "found a list; wanted keys with values"),
    ("lake:\n  path: /data/lake\n", "", 1, "lake", "this key is missing; write lake: {path: ./lake}"),
    ("path: /data/lake", "paht: /data/lake", 8, "lake.paht", "did you mean 'path'?"),
    ("path: /data/lake", "path: gs://bucket/lake", 8, "lake.path", "gs:// isn't supported"),
    ("path: /data/lake", "path: s3://k:p4ss@bucket/lake", 8, "lake.path", "credentials come from the environment"),
    ("path: /data/lake", "path: /data/a%41", 8, "lake.path", "find different folders"),
    ("path: /data/lake", "path: /data\n  connection: s3", 7, "lake", "a connection is taken for s3:// and s3a://"),
    ("schedule:", "invalid_dates: guess\nschedule:", 9, "invalid_dates", "found 'guess'; wanted fail or keep_text"),
    ("schedule:", "invalid_dates: yes\nschedule:", 9, "invalid_dates", "found true; wanted fail or keep_text"),
    ("schedule:", "type_widening: maybe\nschedule:", 9, "type_widening", "found 'maybe'; wanted true or false"),
    ("schedule:", "merge:\n  without_spark_mb: big\nschedule:", 10, "merge.without_spark_mb", "wanted a number"),
    ("schedule:", "merge: {without_spark: 1}\nschedule:", 9, "merge.without_spark", "did you mean 'without_spark_mb'?"),
    ("schedule:", "snapshot: {reader: odbc}\nschedule:", 9, "snapshot.reader", "found 'odbc'; wanted jdbc or direct"),
    ("schedule:", "spark: {driver_memory: 4 GB}\nschedule:", 9, "spark.driver_memory", "wanted a whole number and k"),
    ("schedule:", "spark:\n  jars: a.jar\nschedule:", 10, "spark.jars", "found 'a.jar'; wanted a list"),
    ("schedule:", "spark: {conf: {x.y: 1}}\nschedule:", 9, "spark.conf", "'x.y' is no setting of Spark's"),
    ("schedule:", "maintain: {file_mb: .inf}\nschedule:", 9, "maintain.file_mb", "found inf; wanted a number"),
    ("schedule:", "airflow: {lag_minutes: .inf}\nschedule:", 9, "airflow.lag_minutes", "found inf; wanted a number"),
    ("schedule:", "maintain: {runs_days: .inf}\nschedule:", 9, "maintain.runs_days", "found inf; wanted a number"),
    ("schedule:", "maintain: {file_mb: 0}\nschedule:", 9, "maintain.file_mb", "found 0; wanted a number above 0"),
    ("schedule:", "maintain: {schedule: daily}\nschedule:", 9, "maintain.schedule", "'daily' is not a cron expression"),
    ("schedule:", "policies:\n  on_truncat: stop\nschedule:", 10, "policies.on_truncat", "did you mean 'on_truncate'?"),
    ("schedule:", "policies:\n  tables:\n    audit: {on_truncate: stop}\nschedule:", 11, "policies.tables.audit:",
     "'audit' has no dot"),
    ("schedule:", "policies:\n  tables:\n    a.*: {on_truncat: stop}\nschedule:", 11, "policies.tables.a.*.on_truncat",
     "did you mean 'on_truncate'?"),
    ("schedule:", "catalog: {metastore: 'http://h'}\nschedule:", 9, "catalog.metastore", "neither thrift://host:port"),
    ("schedule:", "catalog: [{name: a}]\nschedule:", 9, "catalog.0", "its key kind is missing"),
    ("schedule:", "catalog: [{kind: oracle}]\nschedule:", 9, "catalog.0", "found kind: oracle; wanted 'hive', 'spark'"),
    ("schedule:", "catalog:\n- {kind: hive}\nschedule:", 10, "catalog.0.metastore", "this key is missing"),
    ("schedule:", "catalog:\n- {kind: spark, metastor: x}\nschedule:", 10, "catalog.0.metastor", "there is no key"),
    ("schedule:", "catalog: [{kind: spark}, {kind: spark}]\nschedule:", 1, "", "has the entry 'spark_catalog' twice"),
    ("schedule:", "catalog: [{kind: sqlite, name: a, sqlite: b}]\nschedule:", 1, "", "add iceberg: {every: batch}"),
    ("schedule:", "catalog: [{kind: glue, name: a, region: eu}]\nschedule:", 9, "catalog.0.region", "a region of AWS"),
    ("schedule:", "catalog: [{kind: glue, name: a, region: eu-west-1, format: iceberg}]\nschedule:", 1, "",
     "add iceberg: {every: batch}"),
    ("schedule:", "catalog: [{kind: glue, name: a, region: eu-west-1, format: iceberg, every: snapshot}]\nschedule:", 9,
     "catalog.0", "every must be batch with format: iceberg"),
    ("schedule:", "catalog: [{kind: glue, name: a, region: eu-west-1, endpoint: 'https://u:p@h'}]\nschedule:", 9,
     "catalog.0.endpoint", "credentials come from AWS's environment"),
    ("schedule:", "catalog: [{kind: glue, name: a, region: eu-west-1, endpoint: 'AK:sEc@h'}]\nschedule:", 9,
     "catalog.0.endpoint", "found '…@h'; wanted an address that begins with http:// or https://"),
    ("schedule:", "catalog: [{kind: rest, name: a, uri: 'https://h/?X-Amz-Signature=s'}]\nschedule:", 9,
     "catalog.0.uri", "wanted http(s)://host[:port][/path] and nothing else"),
    ("schedule:", "catalog: [{kind: rest, name: a, uri: 'https://A:s/T%40h'}]\nschedule:", 9,
     "catalog.0.uri", "wanted http(s)://host[:port][/path] and nothing else"),
    ("schedule:", "catalog: [{kind: glue, name: a, region: eu-west-1, endpoint: 'http://'}]\nschedule:", 9,
     "catalog.0.endpoint", "wanted http(s)://host[:port][/path] and nothing else"),
    ("schedule:", "catalog: [{kind: glue, name: a, region: eu-west-1}, {kind: glue, name: b, region: eu-west-1}]\n"
     "schedule:", 1, "", "two entries of kind glue with the database '{database}'; give each its own"),
    ("schedule:", "catalog: {name: a-b}\nschedule:", 9, "catalog.name", "wanted a name: a letter or _, then letters"),
    ("schedule:", "page: {show_values: 7}\nschedule:", 9, "page.show_values", "found 7; wanted true or false"),
    ("schedule:", "airflow:\n  notify:\n  - {when: [lat], notifier: a.b}\nschedule:", 11, "airflow.notify.0.when.0",
     "found 'lat'; wanted lag, retention, stopped"),
    ("schedule:", "airflow:\n  notify:\n  - {when: [lag], notifier: mail}\nschedule:", 11, "airflow.notify.0.notifier",
     "found 'mail'; wanted a dotted name, such as package.module.Name"),
    ("schedule:", f"feeds:\n{FEED.replace('text', 'xml')}schedule:", 12, "feeds.0.format", "found type: xml; wanted"),
    ("schedule:", f"feeds:\n{FEED.replace('text', '{type: debezium, topics: x}')}schedule:", 12,
     "feeds.0.format.topics", "did you mean 'topic'?"),
    ('"shop.*"]', '"shop.*"]\n  modes: [{tables: "shop.*"}]', 5, "tables", "modes: the entry of shop.* has no mode;"),
    ("schedule:", "1: 2\nschedule:", 9, "column 1", "a key must be text: write '1':"),
    ("schedule:", "spark: {conf: {\n  2020-01-01: x}}\nschedule:", 10, "column 3", "write '2020-01-01':"),
    ("schedule:", "on: 2\nschedule:", 9, "column 1", "a key must be text: write 'on':"),
    ("schedule:", "\tschedule:", 9, "column 1", "this isn't YAML as it should be"),
    ('["shop.*"]', '["shop.*"', 7, "column", "this isn't YAML as it should be"),
    ('["shop.*"]', "[*.*]", 6, "column", "this isn't YAML as it should be"),
]  # fmt: skip


def named(text: str) -> str:
    return text.replace("\n", "; ")[:60]


@pytest.mark.parametrize(("old", "new", "line", "key", "words"), WRONG, ids=[named(row[1]) or row[0] for row in WRONG])
def test_a_message_names_line_and_key_and_what_is_wanted(
    tmp_path: Path, old: str, new: str, line: int, key: str, words: str
) -> None:
    assert old in GOOD
    said = refused(tmp_path / "shop.yaml", GOOD.replace(old, new, 1))
    assert "shop.yaml" in said.splitlines()[0]
    assert f"line {line}" in said
    assert key in said
    assert words in said
    assert "p4ss" not in said


def refused(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        config.load(path)
    return str(caught.value)


def test_every_wrong_key_has_a_line(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(GOOD.replace("4001", "0").replace("schedule", "shedule"))
    with pytest.raises(ConfigurationError) as caught:
        config.load(file)
    assert [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:3]] == ["line 4", "line 9"]
    assert caught.value.problems == (
        KeyProblem(4, "source.server_id", "found 0; wanted a number not below 1"),
        KeyProblem(9, "shedule", "there is no key 'shedule'; did you mean 'schedule'?"),
    )
    with pytest.raises(ConfigurationError) as caught:
        yaml_file.parsed(b"a: 1\nb: [\n", file)
    ((line, key),) = {(problem.line, problem.key) for problem in caught.value.problems}
    assert (line, key) == (3, "")


def test_what_is_nested_too_deep(tmp_path: Path) -> None:
    assert "nested too deep" in refused(tmp_path / "shop.yaml", "[" * 5000)


def test_a_lake_behind_a_loop_of_links(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    said = refused(tmp_path / "shop.yaml", GOOD.replace("/data/lake", "./loop/lake"))
    assert "shop.yaml: lake.path: './loop/lake' leads to no folder: " in said


def test_a_merge_key_may_stand_beside_what_it_is_to_be_replaced_by(tmp_path: Path) -> None:
    text = GOOD.replace("  server_id", "  <<: {server_id: 1}\n  server_id")
    (tmp_path / "shop.yaml").write_text(text)
    assert config.load(tmp_path / "shop.yaml").source.server_id == 4001


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("format: text", "fromat: text", 4, "did you mean 'format'?"),
        ("format: text", "format: text\n    format: csv", 5, "'format' is written twice, first in line 4"),
        ("file:///data/out", "/data/out", 5, "'/data/out' is no sink; there are file, kafka"),
        ("sources: [shop.yaml]", "sources: []", 1, "feed 'out' names no sources"),
        ("name: out", "name: out of", 2, "found 'out of'; wanted a name"),
    ],
)
def test_a_file_of_feeds_is_read_alike(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    file = tmp_path / "feeds.yaml"
    file.write_text(f"feeds:\n{FEED}".replace(old, new))
    with pytest.raises(ConfigurationError) as caught:
        feeds_file.feeds_of(file)
    assert f"line {line}" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--tables", "shop"), "'shop' has no dot"),
        (("--schedule", "hourly"), "'hourly' is not a cron expression"),
        (("--name", "my shop"), "wanted a name: a letter"),
        (("--lake", "gs://b/l"), "gs:// isn't supported"),
    ],
)
def test_init_writes_nothing_that_it_could_not_read(
    tmp_path: Path, option: tuple[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And asks no server before."""
    file = tmp_path / "new.yaml"
    assert (
        command_line.run(["init", "--connection", "mysql://u:p4ss@127.0.0.1:1/", str(file), *option])
        == UsageError.exit_code
    )
    assert words in capsys.readouterr().err
    assert not file.exists()
