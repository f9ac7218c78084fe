"""Two tables that a feed tells apart never share a topic."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from binlake.binlog.border import INSERT
from binlake.binlog.staged_schema import staged_schema
from binlake.config import PipelineConfig
from binlake.config.feed_config import CsvFormat, DebeziumFormat, FeedConfig, GenericFormat, SpecificFormat, TextFormat
from binlake.errors import FeedError
from binlake.feeds.carry import context_of
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable, Format
from binlake.feeds.formats.connect_json import JsonWriter
from binlake.feeds.formats.csvlog import CsvLog
from binlake.feeds.formats.debezium import Debezium
from binlake.feeds.formats.generic import Generic
from binlake.feeds.formats.specific import Specific
from binlake.feeds.formats.text import Text
from binlake.lease.lease import RecordedState
from binlake.position import Position
from binlake.schema.invalid import FAIL
from binlake.schema.table import Column, TableName
from binlake.serialization import dumps
from binlake.store.metadata import metadata_of

COLUMNS = (Column("id", "int", nullable=False),)


def context(*living: TableName) -> FeedContext:
    return FeedContext("f", "bar", "server", "mysql", living=lambda: living)


def debezium(known: FeedContext) -> Format:
    return Debezium(DebeziumFormat(type="debezium"), known, JsonWriter())


def sent(form: Format, name: TableName) -> str:
    """The topic of a row."""
    row = {"op": INSERT, "file": 1, "offset": 4, "row": 0, "committed_us": 0, "before": None, "after": {"id": 1}}
    batch = pa.RecordBatch.from_pylist([row], schema=staged_schema(COLUMNS, FAIL))
    ((message,),) = form.changes(FeedChanges(FeedTable(name, COLUMNS, ("id",)), batch, "binlog.000001"))
    return message.topic


MEETING = [
    (("x", "a@b"), ("x", "a$b"), "bar.x.a_b"), (("x", "ü"), ("x", "ä"), "bar.x._"),
    (("x", "y.z"), ("x.y", "z"), "bar.x.y.z"), (("x", "a_b"), ("x", "a b"), "bar.x.a_b"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second", "topic"), MEETING)
def test_the_second_of_two_tables_that_meet_is_refused_by_name(
    first: tuple[str, str], second: tuple[str, str], topic: str
) -> None:
    older, newer = TableName(*first), TableName(*second)
    form = debezium(context(older, newer))
    assert sent(form, older) == topic
    with pytest.raises(FeedError) as caught:
        sent(form, newer)
    for said in (str(older), str(newer), topic):
        assert said in caught.value.message
    assert "exclude one" in caught.value.remedy
    assert sent(debezium(context(newer, older)), newer) == topic


def test_a_table_that_comes_later_meets_those_that_were_there() -> None:
    living = [TableName("x", "a@b")]
    form = debezium(FeedContext("f", "bar", "server", "mysql", living=lambda: tuple(living)))
    assert sent(form, living[0]) == "bar.x.a_b"
    living.append(TableName("x", "a$b"))
    with pytest.raises(FeedError, match="a_b"):
        sent(form, living[1])


def test_a_table_that_is_gone_meets_none() -> None:
    """It was renamed, and its last rows are carried under its former name."""
    form = debezium(context(TableName("x", "a_b")))
    assert sent(form, TableName("x", "a@b")) == sent(form, TableName("x", "a_b")) == "bar.x.a_b"


@pytest.mark.parametrize(
    "make",
    [
        lambda known: Text(TextFormat(type="text", topic="${db}_${table}"), known),
        lambda known: Generic(GenericFormat(type="generic"), known),
        lambda known: CsvLog(CsvFormat(type="csv", topic="${db}_${table}_${hour}"), known),
        lambda known: Specific(SpecificFormat(type="specific", registry="http://r"), known, lambda *_: 1),
    ],
    ids=["text", "generic", "csv", "specific"],
)
def test_names_that_meet_where_the_database_ends_are_refused_by_each_format(make: object) -> None:
    assert callable(make)
    older, newer = TableName("a", "b_c"), TableName("a_b", "c")
    form = make(context(older, newer))
    assert sent(form, older).startswith("a_b_c")
    with pytest.raises(FeedError, match=r"a_b[.]c .*a[.]b_c"):
        sent(form, newer)


def test_a_topic_of_many_tables_on_purpose_stays() -> None:
    one, other = TableName("x", "a@b"), TableName("y", "a@b")
    for topic in ("rows", "${db}", "${table}"):
        form = Text(TextFormat(type="text", topic=topic), context(one, other, TableName("x", "z")))
        for name in (one, other, TableName("x", "z")):
            assert sent(form, name)


def test_the_lake_tells_which_tables_are_there_and_which_came_first(tmp_path: Path) -> None:
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "bar", "connection": "c", "server_id": 4001},
            "tables": {"include": ["x.*"]},
            "lake": {"path": str(tmp_path)},
        }
    )
    places = {"second": (2, "following"), "first": (1, "stopped"), "gone": (1, "dropped"), "else": (1, "following")}
    rows = [
        {
            "table_id": name, "database": "x", "table": name, "status": status,
            "low": dumps(Position("s", "binlog.000001", number, 0)),
        }
        for name, (number, status) in places.items()
    ]  # fmt: skip
    metadata_of(config).append("watermarks", rows)
    feed = FeedConfig.model_validate(
        {"name": "f", "include": ["x.*"], "exclude": ["x.else"], "sink": f"file://{tmp_path}", "format": "text"}
    )
    known = context_of(feed, config, RecordedState(1, Position("s", "binlog.000001", 9, 0)))
    assert json.dumps([name.table for name in known.living()]) == '["first", "second"]'
