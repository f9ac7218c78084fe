"""What failed is tried again as often as a policy says, and after its pauses."""

from __future__ import annotations

import pytest

from binlake.retries import Pause, Retries, at_random, doubling, growing, steady


class Passing(Exception):
    """An error that passes."""


class Server:
    """Fails some times, then answers; notes the pauses that were made before."""

    def __init__(self, failures: int, error: type[Exception] = Passing) -> None:
        self.failures, self.error, self.asked = failures, error, 0
        self.pauses: list[float] = []

    def ask(self) -> str:
        self.asked += 1
        if self.asked <= self.failures:
            raise self.error(f"failure {self.asked}")
        return "answer"


@pytest.mark.parametrize(
    ("pause", "pauses"),
    [
        (steady(3), [3, 3, 3, 3]),
        (growing(0.5), [0.5, 1, 1.5, 2]),
        (doubling(1, 5), [1, 2, 4, 5]),
    ],
    ids=["steady", "growing", "doubling"],
)
def test_an_error_that_passes_is_waited_for(pause: Pause, pauses: list[float]) -> None:
    server, said = Server(4), list[tuple[str, int, float]]()
    retries = Retries(pause, attempts=5)
    answer = retries.call(server.ask, Passing, say=lambda *line: said.append(line), wait=server.pauses.append)
    assert (answer, server.pauses) == ("answer", pauses)
    assert [(str(error), failures, seconds) for error, failures, seconds in said] == [
        (f"failure {number}", number, seconds) for number, seconds in enumerate(pauses, 1)
    ]


def test_the_last_error_is_raised() -> None:
    server = Server(5)
    with pytest.raises(Passing, match="failure 5"):
        Retries(steady(1), attempts=5).call(server.ask, Passing, wait=server.pauses.append)
    assert server.pauses == [1, 1, 1, 1]


def test_another_error_is_raised_at_once() -> None:
    server = Server(1, ValueError)
    with pytest.raises(ValueError, match="failure 1"):
        Retries(steady(1), attempts=5).call(server.ask, lambda error: "passes" in str(error), wait=server.pauses.append)
    assert server.pauses == []


def test_no_try_begins_after_the_deadline() -> None:
    server = Server(1000)
    with pytest.raises(Passing):
        Retries(steady(0.02), seconds=0.1).call(server.ask, Passing)
    assert server.asked <= 6


def test_an_answer_is_waited_for() -> None:
    answers = iter([None, None, False])
    assert Retries(steady(0), attempts=3).until(lambda: next(answers)) is False
    assert Retries(steady(0), attempts=3).until(lambda: None) is None


def test_random_pauses_are_parts() -> None:
    pause = at_random(steady(8), least=0.5)
    pauses = {pause(1) for _ in range(100)}
    assert len(pauses) > 50
    assert all(4 <= seconds <= 8 for seconds in pauses)
