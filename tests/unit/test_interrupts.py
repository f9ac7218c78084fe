"""A long-lived process ends when it is asked to, whatever it is doing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import time
from binlake.interrupts import Ending

ending = Ending()
ending.listen()
print("listens", flush=True)
try:
    {work}
except KeyboardInterrupt:
    print("interrupted", flush=True)
ending.over()
print("ends", ending.asked, flush=True)
"""
STUBBORN = """
    while True:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            continue
"""


@pytest.mark.parametrize(
    ("number", "work", "said", "least"),
    [
        (signal.SIGTERM, "ending.wait(60)", "ends True\n", 0),
        (signal.SIGINT, "ending.wait(60)", "ends True\n", 0),
        (signal.SIGTERM, "time.sleep(60)", "interrupted\nends True\n", 2),
        (signal.SIGTERM, STUBBORN.strip(), "", 4),
    ],
    ids=["waiting", "waiting, by Ctrl-C", "in a step", "in a step that swallows interrupts"],
)
def test_it_ends(number: signal.Signals, work: str, said: str, least: float) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM.format(work=work)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listens\n"
    began = time.monotonic()
    process.send_signal(number)
    assert process.communicate(timeout=30)[0] == said
    assert process.returncode == 0
    assert least <= time.monotonic() - began < least + 5
