"""The list of lake versions, and pins, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from binlake.cli import command_line, printing
from binlake.cli.sql_prompt import Prompt
from binlake.lake import pins
from binlake.lake.opened_lake import place_of
from binlake.lease import lease
from binlake.lease.lease import OpenBatch, RecordedState
from binlake.moment import parse_moment
from binlake.planner.outcome import BatchOutcome, LifeOutcome
from binlake.planner.steps import Life
from binlake.position import Position, Range
from binlake.records import record, table_versions, watermarks
from binlake.records.decisions import Reason
from binlake.schema.table import Column, TableName, TableSchema
from binlake.store.metadata import Metadata

NAME = TableName("shop", "orders")


def at(offset: int) -> Position:
    return Position("server", "binlog.000001", offset, 1)


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    return Metadata(f"{tmp_path}/lake/shop/_binlake")


@pytest.fixture
def yaml(tmp_path: Path, metadata: Metadata) -> str:
    """A source with the batches 1 to 3, which changed its one table."""
    schema = TableSchema((Column("id", "bigint", nullable=False),), ("id",), "primary")
    life = Life("life", NAME, schema, at(4), at(4))
    with lease.held(metadata) as held:
        watermarks.started(held.metadata, [life], batch=0, versions={life.id: 0})
        held.stand(RecordedState(0, at(4)))
        for batch in (1, 2, 3):
            done = LifeOutcome(life.id, NAME, at(4), at(4), "following", None, "", True, delta_version=batch)
            reached = Range(at(batch * 100 - 100 or 4), at(batch * 100), ())
            plan = OpenBatch(batch, reached, "merged", planned_us=batch, outcome=BatchOutcome((done,)))
            held.open(plan)
            record.record_batch(held, held.metadata, plan)
    path = tmp_path / "shop.yaml"
    path.write_text(
        "source: {name: shop, connection: shop_mysql, server_id: 4001}\n"
        f"tables: {{include: ['shop.*']}}\nlake: {{path: {tmp_path}/lake}}\n"
    )
    return str(path)


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = command_line.run(["versions", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_versions_as_json(yaml: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, "--config", yaml, "--json")
    versions = json.loads(out)["versions"]
    assert (code, len(versions)) == (0, 3)
    assert versions[1] == {
        "batch": 2,
        "name": None,
        "position": str(at(200)),
        "committed": "1970-01-01T00:00:00.000002+00:00",
        "readable": True,
        "why": None,
        "until": "1970-01-08T00:00:00.000003+00:00",
        "tables": {"shop.orders": 2},
    }
    assert versions[2]["until"] is None


def test_a_version_is_found_by_the_time_that_is_told_of_it(yaml: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = "1970-01-01 00:00:00.000002"
    assert told in outcome(capsys, "--config", yaml)[1]
    place = place_of(yaml)
    assert place.at(time=parse_moment(told, "--as-of")).batch == 2
    assert Prompt(place.at(batch=2), "table")._at() == f"batch 2, with all that was committed by {told} UTC"


def test_a_batch_is_pinned_and_given_back(yaml: str, metadata: Metadata, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, "pin", "2", "--config", yaml, "--name", "month_end", "--why", "audit", "--who", "me")
    assert (code, out) == (0, "batch 2 is kept as month_end: 1 table at binlog.000001:200\n")
    (pin,) = pins.read(metadata)
    assert (pin.name, pin.batch, pin.who, pin.why) == ("month_end", 2, "me", "audit")
    assert "month_end" in outcome(capsys, "--config", yaml)[1]
    assert outcome(capsys, "--config", yaml, "unpin", "month_end")[0] == 0
    assert pins.read(metadata) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pin", "9", "--name", "a", "--why", "w"], "batch 9 isn't known as a version: the lake has batches 1 to 3"),
        (["pin", "1", "--name", "a", "--why", "w"], "batch 1 can't be read any more"),
        (["pin", "3", "--name", "kept", "--why", "w"], "batch 2 is pinned as kept already, by me: for a test"),
        (["pin", "3", "--name", "Kept", "--why", "w"], "batch 2 is pinned as kept already, by me: for a test"),
        (["pin", "3", "--name", "month end", "--why", "w"], "'month end' can't be the name of a version"),
        (["unpin", "lost"], "no version is called 'lost'"),
    ],
)
def test_what_cant_be_pinned(
    yaml: str, metadata: Metadata, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    pins.pin(metadata, 2, "kept", Reason("me", "for a test"))
    table_versions.note_readable_since(metadata, NAME, 2)
    code, _, err = outcome(capsys, *arguments, "--config", yaml)
    assert code == 2
    assert said in err
    assert "→" in err


def test_who_removes_files_while_a_batch_is_pinned_is_seen(
    yaml: str, metadata: Metadata, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    append = Metadata.append

    def overtaken(self: Metadata, name: str, rows: list[dict[str, object]]) -> None:
        table_versions.note_readable_since(metadata, NAME, 3)
        append(self, name, rows)

    monkeypatch.setattr(Metadata, "append", overtaken)
    code, _, err = outcome(capsys, "pin", "2", "--name", "late", "--why", "w", "--config", yaml)
    assert code == 2
    assert "batch 2 can't be read any more" in err
    assert pins.read(metadata) == []


def test_a_table_shows_texts_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    printing.table("shop.t[a] :key:", ("comment",), [("1:a:2 :x: [red]",), ("C:\\",), (None,)])
    lines = [line.strip("│┃ ") for line in capsys.readouterr().out.splitlines()]
    assert [lines[0], *lines[4:7]] == ["shop.t[a] :key:", "1:a:2 :x: [red]", "C:\\", ""]
