"""How many tasks run at once where Spark runs inside the process."""

import os
import signal

import pytest

from binlake.kernels.cores import available_cores
from binlake.spark import starting
from binlake.spark.session import _on_this_machine


def test_connections_that_wait_for_the_server_need_no_core() -> None:
    cores = available_cores()
    assert _on_this_machine(None) == "local[*]"
    assert _on_this_machine(cores + 3) == f"local[{cores + 3}]"
    assert _on_this_machine(1) == f"local[{cores}]"


def test_what_each_start_of_spark_says_is_passed_over_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    lines = [
        "WARNING: Using incubator modules: jdk.incubator.vector",
        "26/11/25 ERROR TaskSchedulerImpl: Lost executor 1",
    ]
    os.write(writing, "\n".join(lines).encode())
    os.close(writing)
    starting._relay(reading)
    assert capfd.readouterr().err == lines[1]


def test_who_interrupts_a_jvm_at_its_start_is_heard_once_it_is_there() -> None:
    started: list[str] = []

    def start() -> None:
        with starting.interrupted_afterwards():
            signal.raise_signal(signal.SIGINT)
            started.append("a JVM")

    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may have it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            start()
    finally:
        signal.signal(signal.SIGINT, heard)
    assert started
