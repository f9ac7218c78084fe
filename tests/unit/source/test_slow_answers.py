"""What a process waits for is said after some seconds, once."""

from __future__ import annotations

import threading

import pytest

from binlake.source import server
from binlake.source.server import waiting_said
from recorded_server import RecordedServer, Row


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SAID_AFTER", 0.05)


def test_an_answer_that_takes_long() -> None:
    said: list[str] = []
    told = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        told.set()

    with waiting_said("SHOW BINARY LOGS", "db:3306", say):
        assert told.wait(30)
    (text,) = said
    assert text.startswith("waiting for db:3306 to answer SHOW BINARY LOGS: a write into its log holds this up")
    assert "disk of its log is full" in text


def test_an_answer_that_comes_soon_is_not_waited_for_aloud(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(100):
        with waiting_said("SHOW BINARY LOGS", "db:3306"):
            pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("question", ["head", "binary_logs"])
def test_questions_about_the_logs_end(question: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Slow(RecordedServer):
        def query(self, sql: str, args: object = None) -> list[Row]:
            if sql.startswith("SHOW BINARY LOG"):
                threading.Event().wait(0.3)
            return super().query(sql)

    source = Slow("9.7.4", {}, {"SHOW BINARY LOGS": []})
    assert isinstance(source, server.Source)
    getattr(source, question)()
    assert "waiting for db:3306 to answer SHOW BINARY LOG" in capsys.readouterr().err
