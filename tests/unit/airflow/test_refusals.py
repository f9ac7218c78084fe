"""What can't be is told before Spark is started: a task that is asked for it fails at once, and isn't tried again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from binlake import config
from binlake.doctor import beforehand
from binlake.store.metadata import now_us
from binlake_airflow.compat import AirflowFailException
from binlake_airflow.operators import BinlakePlanOperator, BinlakeSnapshotOperator
from binlake_airflow.submit import BinlakeSparkOperator
from binlake_airflow.upkeep import BinlakeMaintainOperator, BinlakeReplayOperator, BinlakeResumeOperator
from past import Past

YAML = """
source: {name: shop, connection: "file:///log"}
tables: {include: ["shop.*"]}
lake: {path: ./lake}
"""
RUN = SimpleNamespace(dag_id="d", run_id="r", run_type="manual", triggering_user_name="ann")
CONTEXT: Any = {"dag_run": RUN}
TABLE = "shop.table_0001"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A source with three recorded batches; Spark mustn't be started for it."""
    path = tmp_path / "shop.yaml"
    path.write_text(YAML)
    Past(config.load(path), now_us()).write()

    def submit(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr(BinlakeSparkOperator, "submit", submit)
    return str(path)


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        ({"tables": [TABLE], "batch": 2, "as_of": "2026-01-31T00:00:00Z"}, "not allowed with argument"),
        ({"tables": [TABLE], "as_of": "2026-02-30T00:00:00Z"}, "is not a time"),
        ({"tables": [TABLE], "as_of": "2020-01-01T00:00:00Z"}, "no batch is known"),
        ({"tables": [TABLE], "batch": "seven"}, "invalid int value"),
        ({"tables": [TABLE], "batch": 7}, "batch 7 isn't recorded"),
        ({"tables": [TABLE], "in_place": True}, "no reason was given"),
        ({"tables": [TABLE], "in_place": True, "why": " "}, "no reason was given"),
        ({"tables": [TABLE], "archive": "/archive"}, "is no folder"),
        ({"tables": ["shop.nowhere"]}, "no table that matches shop.nowhere"),
        ({"tables": None}, "expected at least one argument"),
    ],
)
def test_a_replay(file: str, asked: dict[str, Any], refusal: str) -> None:
    with pytest.raises(AirflowFailException, match=refusal):
        BinlakeReplayOperator(task_id="replay", config_file=file, **asked).execute(CONTEXT)


def test_a_replay_for_which_a_template_says_false_is_neither_proved_nor_in_place(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[str] = []

    def submit(operator: object, context: object, *arguments: str) -> list[object]:
        submitted.extend(arguments)
        return []

    monkeypatch.setattr(BinlakeSparkOperator, "submit", submit)
    monkeypatch.setattr(beforehand, "check_replay", lambda *_: None)
    for prove, in_place in (("False", "False"), ("True", False)):
        operator = BinlakeReplayOperator(
            task_id="replay", config_file=file, tables=[TABLE], prove=prove, in_place=in_place, why="seen"
        )
        operator.execute(CONTEXT)
    assert submitted.count("--prove") == 1
    assert "--in-place" not in submitted


@pytest.mark.parametrize(
    ("tables", "why", "refusal"),
    [
        (["shop.nowhere"], "seen", "shop.nowhere isn't known here"),
        (["orders"], "seen", "'orders' is no table's name"),
        ([TABLE], " ", "no reason was given"),
        ([], "seen", "no table was named"),
    ],
)
def test_a_resume(file: str, tables: list[str], why: str, refusal: str) -> None:
    with pytest.raises(AirflowFailException, match=refusal):
        BinlakeResumeOperator(task_id="resume", config_file=file, tables=tables, why=why).execute(CONTEXT)


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        ({"tables": ["shop.*"]}, "files hold no table to copy"),
        ({"lock": "forever"}, "'forever' is no lock"),
        ({"tables": [TABLE], "keys": "1..2"}, "a range of keys needs a server"),
    ],
)
def test_a_snapshot(file: str, asked: dict[str, Any], refusal: str) -> None:
    """What a server is asked is in tests/integration/test_key_range.py."""
    with pytest.raises(AirflowFailException, match=refusal):
        BinlakeSnapshotOperator(task_id="snapshot", config_file=file, **asked).execute(CONTEXT)


def test_the_upkeep_of_a_table_that_is_not_there(file: str) -> None:
    operator = BinlakeMaintainOperator(task_id="maintain", config_file=file, tables=[TABLE, "shop.nowhere"])
    with pytest.raises(AirflowFailException, match=r"no table of the lake matches shop\.nowhere\n"):
        operator.execute(CONTEXT)


def test_a_sync_until_a_day_that_never_was(file: str) -> None:
    plan = BinlakePlanOperator(task_id="plan", config_file=file, until="2027-02-29T00:00:00Z")
    with pytest.raises(AirflowFailException, match="is not a time"):
        plan.execute(CONTEXT)
