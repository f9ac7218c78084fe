"""What a feed can't tell: which layer is asked, what continues, and that nothing is left out without a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from binlake.binlog.border import Statement
from binlake.binlog.staged_schema import staged_schema
from binlake.config.feed_config import FeedConfig
from binlake.errors import BinlakeError, ConfigurationError, FeedError, SinkFailed
from binlake.feeds import outlet, plugins
from binlake.feeds.contract import FeedChanges, FeedTable, Format, Message, MessageRefused, SchemaChange
from binlake.feeds.error_layers import FeedErrors, FeedFailure, FlagErrors, handler_of
from binlake.feeds.outlet import Outlet
from binlake.feeds.staged import LogWindow
from binlake.records import feed_watermarks
from binlake.records.feed_watermarks import FeedPosition, Omission
from binlake.schema.invalid import FAIL
from binlake.schema.table import Column, TableName
from binlake.store.metadata import Metadata
from feeding import Kept

if TYPE_CHECKING:
    from pathlib import Path

TABLE = FeedTable(TableName("shop", "orders"), (Column("id", "bigint"),), ("id",))
LISTENER, EVENT = {"quit-on-listener-failure": False}, {"quit_on_event_handler_failure": False}
EMPTY = {"quit_on_empty_mutation_commit_failure": False}


def feed(**settings: Any) -> FeedConfig:
    return FeedConfig.model_validate({"name": "out", "format": "text", "sink": "file:///tmp/x", **settings})


def rows(*ids: int) -> FeedChanges:
    staged = [
        {"op": 1, "file": 1, "offset": 100 + id_, "row": 0, "committed_us": 1, "after": {"id": id_}} for id_ in ids
    ]
    return FeedChanges(TABLE, pa.RecordBatch.from_pylist(staged, staged_schema(TABLE.columns, FAIL)), "binlog.000001")


def window(*ids: int) -> LogWindow:
    """Rows as the log has them, each a transaction."""
    numbers, changes = np.arange(len(ids)), rows(*ids)
    gtids = pa.array([f"uuid:{id_}" for id_ in ids])
    places = np.column_stack(
        (np.zeros((len(ids), 2), np.int64), 100 + np.array(ids), np.zeros((len(ids), 2), np.int64))
    )
    return LogWindow((changes,), numbers, numbers[1:], gtids, np.ones(len(ids), np.int64), places)


class Numbers(Format):
    """A message a row; rows with the id 13, and DDL with a 13 in it, are refused."""

    def changes(self, changes: FeedChanges) -> Sequence[Sequence[Message]]:
        ids = changes.rows.column("after").field("id").to_pylist()
        if 13 in ids:
            raise FeedError("13 is no number", remedy="take another")
        return [[Message("t", None, b"%d" % id_)] for id_ in ids]

    def schema_change(self, change: SchemaChange) -> Sequence[Message]:
        if "13" in change.text:
            raise FeedError("13 is no shape", remedy="take another")
        return [Message("t", None, change.text.encode())]


class Choosy(Kept):
    """Takes no message that ends with a 7."""

    def send(self, messages: Sequence[Message]) -> None:
        for number, message in enumerate(messages):
            if message.value == b"99":
                raise SinkFailed("the broker is gone", remedy="wait")
            if (message.value or b"").endswith(b"7"):
                raise MessageRefused("too large", remedy="raise it", number=number)
            self.messages.append(message)


class Carried:
    """An outlet, what reached its sink, and what was written down before its commits."""

    def __init__(self, config: FeedConfig) -> None:
        self.sink, self.written = Choosy(), list[Omission]()
        place = FeedPosition(4)
        errors = FeedErrors(config, self.written.extend)
        self.outlet = Outlet(Numbers(), self.sink, lambda position, messages: None, place, errors)

    def __call__(self, *items: FeedChanges | SchemaChange) -> list[str]:
        for item in items:
            if isinstance(item, SchemaChange):
                self.outlet.schema_change(item, (0, 0, 0, 0, 0))
            else:
                self.outlet.load(item, FeedPosition(4))
        self.outlet.commit(FeedPosition(5))
        return [(message.value or b"").decode() for message in self.sink.messages]


def statement(text: str, kind: str = "ALTER TABLE") -> SchemaChange:
    ddl = Statement("binlog.000001", 500, 0, 1, None, "shop", 0, text)
    return SchemaChange(ddl, text, kind, ((TABLE.name, None),))


def test_without_a_word_in_the_yaml_everything_stops() -> None:
    for items in ([rows(13)], [rows(7)], [statement("13")], [statement("UPDATE", "DML")]):
        carried = Carried(feed())
        with pytest.raises(FeedError):
            carried(*items)
        assert not carried.written


def test_what_is_left_out_is_counted_and_all_else_goes_on() -> None:
    carried = Carried(feed(errors=LISTENER))
    run = carried(rows(1, 2), rows(3, 13), rows(4, 7, 5, 17, 6), statement("13"), statement("a"), rows(13))
    assert run == ["1", "2", "4", "5", "6", "a"]
    assert [
        (message.layer, message.table, message.place, message.events, message.mutations) for message in carried.written
    ] == [
        ("mutation", "shop.orders", "binlog.000001:103, 2 rows of shop.orders", 2, 3),
        ("mutation", "", "batch 5, a message to t", 2, 2),
        ("alter", "shop.orders", "binlog.000001:500, ALTER TABLE of shop.orders", 1, 0),
    ]
    assert carried.outlet.messages == 6


def test_each_flag_is_of_its_own_layer_and_the_global_one_is_asked_last() -> None:
    dml = statement("UPDATE", "DML")
    assert Carried(feed(errors=EMPTY))(dml) == ["UPDATE"]
    assert Carried(feed(on_error="skip"))(dml) == ["UPDATE"]
    with pytest.raises(FeedError, match="in the place of the rows") as stopped:
        Carried(feed(errors=LISTENER))(dml)
    assert "at binlog.000001:500, DML of shop.orders: a statement" in stopped.value.message
    assert stopped.value.remedy.endswith("leave such statements out: on_error: skip")
    by_its_flag = {"quit-on-empty-mutation-commit-failure": True}
    with pytest.raises(FeedError) as stopped:
        Carried(feed(errors=by_its_flag))(dml)
    assert stopped.value.remedy.endswith("errors: {quit_on_empty_mutation_commit_failure: false}")
    assert Carried(feed(errors=EVENT))(dml, rows(13), rows(7)) == ["UPDATE"]
    with pytest.raises(FeedError, match="13 is no number"):
        Carried(feed(errors=EMPTY))(rows(13))
    with pytest.raises(SinkFailed, match="the broker is gone"):
        Carried(feed(errors=EVENT | LISTENER))(rows(99))


@pytest.mark.parametrize(
    ("settings", "continues"),
    [({}, False), ({"on_error": "skip"}, True), ({"errors": {"quit-on-event-decode-failure": False}}, True)],
)
def test_on_error_keeps_its_meaning(settings: dict[str, Any], continues: bool) -> None:
    failure = FeedFailure("decode", TABLE.name, "binlog.000001:4", 0, "why", "how")
    assert FlagErrors(feed(**settings)).decode(failure) is continues


@pytest.mark.parametrize(
    ("on_error", "errors"),
    [
        ("skip", {"quit_on_event_decode_failure": True}),
        ("skip", {"quit_on_empty_mutation_commit_failure": True}),
        ("stop", {"quit-on-event-decode-failure": False}),
        ("stop", {"quit-on-empty-mutation-commit-failure": False}),
        ("stop", {"quit_on_event_handler_failure": False}),
        ("skip", {"quit_on_event_handler_failure": False, "quit_on_listener_failure": True}),
        (None, {"quit_on_event_handler_failure": False, "quit_on_event_decode_failure": True}),
    ],
)
def test_what_contradicts_is_refused(on_error: str | None, errors: dict[str, bool]) -> None:
    settings = {} if on_error is None else {"on_error": on_error}
    with pytest.raises(ValidationError, match="contradict each other; take one of them away"):
        feed(**settings, errors=errors)


@pytest.mark.parametrize(
    ("on_error", "errors"),
    [
        ("stop", {"quit_on_event_decode_failure": True, "quit_on_listener_failure": False}),
        ("skip", {"quit_on_event_decode_failure": False, "quit_on_event_handler_failure": True}),
        ("skip", {"quit_on_event_handler_failure": False}),
    ],
)
def test_what_agrees_is_taken(on_error: str, errors: dict[str, bool]) -> None:
    assert feed(on_error=on_error, errors=errors).stops.decode == (on_error == "stop")


class Own(FlagErrors):
    """Goes on without rows of orders."""

    asked: list[str]

    def __init__(self, config: FeedConfig) -> None:
        super().__init__(config)
        self.asked = []

    def mutation(self, failure: FeedFailure) -> bool:
        if "7" in failure.place:
            raise ValueError("a mistake")
        return failure.table == TABLE.name


class Point:
    """An entry point."""

    name, value = "own", "package:Own"

    def __init__(self, made: Any) -> None:
        self.made = made

    def load(self) -> Any:
        return self.made


def test_a_handler_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    points: list[Point] = [Point(Own)]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    config = feed(errors={"handler": "own"})
    assert Carried(config)(rows(1), rows(13), rows(2)) == ["1", "2"]
    with pytest.raises(FeedError, match="13 is no shape"):
        Carried(config)(statement("13"))
    with pytest.raises(FeedError, match=r"the error handler of feed out failed .*a mistake"):
        Carried(config)(rows(13, *range(700, 706)), rows(7), rows(*range(200, 213), 13, *range(214, 270)))
    for wrong, why in ((object, "can't be made"), (lambda config: config, "has no alter")):
        points[:] = [Point(wrong)]
        with pytest.raises(ConfigurationError, match=why):
            Carried(config)
    points.clear()
    with pytest.raises(ConfigurationError, match=r"errors.handler: there is no 'own'; there are: none"):
        Carried(config)
    named = feed(errors={"handler": f"{Own.__module__}:Own"})
    assert type(handler_of(named)).__name__ == "Own"


def test_what_was_written_down_before_a_commit_that_was_refused_is_not_counted_again() -> None:
    written: list[Omission] = []
    errors = FeedErrors(feed(errors=LISTENER), written.extend)

    def left_out(*places: str) -> None:
        for place in places:
            failure = FeedFailure("mutation", TABLE.name, place, 2, "why", "how")
            errors.decide(failure, FeedError("why", remedy="how"))

    left_out("a", "b")
    errors.record()
    errors.again()
    left_out("a")
    errors.record()
    errors.commit()
    left_out("b", "c")
    errors.record()
    errors.again()
    left_out("b", "c", "d")
    errors.record()
    errors.commit()
    left_out("e")
    errors.record()
    assert sum(message.events for message in written) == 5
    assert sum(message.mutations for message in written) == 10


def test_the_status_tells_what_was_left_out(tmp_path: Path) -> None:
    metadata = Metadata(str(tmp_path))
    feed_watermarks.record_omissions(metadata, [Omission("out", "decode", "a.b", "binlog.000001:4", 2, 0, "first")])
    feed_watermarks.record_omissions(metadata, [Omission("out", "alter", "a.b", "binlog.000001:9", 1, 0, "last")])
    assert feed_watermarks.omitted(metadata) == {"out": (3, "binlog.000001:9: last")}


def test_a_failure_that_is_none_of_a_feeds_passes() -> None:
    errors = FeedErrors(feed(errors=EVENT), lambda omissions: None)
    with pytest.raises(BinlakeError, match="not ours"), errors.guarded("mutation", None, "", 0):
        raise BinlakeError("not ours", remedy="none")


def test_rows_larger_than_all_that_is_committed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as an update of a LONGBLOB, whose images alone are more: each transaction is committed by itself."""
    monkeypatch.setattr(outlet, "COMMIT_BYTES", 10)
    carried = Carried(feed())
    carried.outlet.window(window(1, 2, 3))
    assert carried() == ["1", "2", "3"]
