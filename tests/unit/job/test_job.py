"""What a spark-submit script hands back: its exit code, and its outcome as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from binlake.errors import AccessDenied, BinlakeError, CheckFailed, ConnectionFailed
from binlake.job import script
from binlake.phases.outcomes import StepOutcome

YAML = """
source: {name: shop, connection: shop_mysql, server_id: 4001}
tables: {include: ["shop.*"]}
lake: {path: ./lake}
"""


@pytest.fixture
def outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "outcome.json"
    monkeypatch.setenv(script.OUTCOME_FILE, str(path))
    (tmp_path / "shop.yaml").write_text(YAML)
    return path


def run(outcome: Path, work: Any) -> int:
    return script.run(script.parser("stage"), work, ["--config", str(outcome.parent / "shop.yaml")])


def test_a_result_is_handed_back(outcome: Path) -> None:
    assert run(outcome, lambda _: StepOutcome(3, 9, "done")) == 0
    assert json.loads(outcome.read_text()) == {"result": {"batch": 3, "mutations": 9, "message": "done"}}


def test_the_spark_application_is_told(outcome: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A double in the place of its context: to start one costs seconds."""
    import pyspark

    started = SimpleNamespace(applicationId="app-7", uiWebUrl=None)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", started)
    assert run(outcome, lambda _: None) == 0
    assert json.loads(outcome.read_text()) == {"result": None, "spark": {"application": "app-7", "ui": None}}


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [(AccessDenied("a", remedy="b"), 3, False), (ConnectionFailed("a"), 3, True), (CheckFailed("a"), 1, False)],
)
def test_an_error_is_handed_back(
    outcome: Path, capsys: pytest.CaptureFixture[str], error: BinlakeError, code: int, retryable: bool
) -> None:
    def work(_: script.Job) -> None:
        raise error

    assert run(outcome, work) == code
    handed = json.loads(outcome.read_text())["error"]
    assert handed == {"kind": type(error).__name__, "message": str(error), "retryable": retryable}
    assert str(error) in capsys.readouterr().err


def test_what_nobody_expected_shows_where_it_was_and_one_line(
    outcome: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(_: script.Job) -> None:
        raise ValueError("\n".join(["first line", "a" + " row"]))

    assert run(outcome, work) == 3
    said = capsys.readouterr().err
    assert "unexpected ValueError: first line" in said
    assert "a row" not in said
    assert "test_job.py" in said
    assert not outcome.exists()


def test_a_wrong_yaml_is_wrong_use(outcome: Path) -> None:
    (outcome.parent / "shop.yaml").write_text(YAML + "shedule: daily\n")
    assert run(outcome, lambda _: None) == 2
    assert "shedule" in json.loads(outcome.read_text())["error"]["message"]
