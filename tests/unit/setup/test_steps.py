"""The order of setup.sh's steps (docker/local/steps.sh), with steps of the test's own."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BEGIN = """
set -euo pipefail
fail() { echo "$1 $2" >&2; exit 1; }
STATE=$1
. docker/local/steps.sh
did() { echo "$1" >> "$STATE/did"; }
wait_for() { for _ in {1..500}; do [ ! -e "$STATE/$1" ] || return 0; sleep 0.02; done; echo "no $1"; exit 1; }
begin_steps
"""


def run(folder: Path, steps: str) -> tuple[int, str, list[str]]:
    """Run steps; return the exit code, what was said, and what the steps did, in its order."""
    command = ["bash", "-c", BEGIN + steps, "setup", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    did = folder / "did"
    return done.returncode, done.stdout + done.stderr, did.read_text().split() if did.exists() else []


def test_lists_of_steps_are_done_at_the_same_time(tmp_path: Path) -> None:
    steps = """
    setup_a() { touch "$STATE/a"; wait_for b; did a; }
    setup_b() { wait_for a; did b; touch "$STATE/b"; }
    setup_c() { did c; }
    side_by_side 'a c' b
    """
    assert run(tmp_path, steps) == (0, "", ["b", "a", "c"])


def test_a_step_that_several_lists_need_is_done_once_and_waited_for(tmp_path: Path) -> None:
    steps = """
    setup_first() { sleep 0.1; did first; }
    setup_a() { did behind; }
    setup_b() { did behind; }
    side_by_side 'first a' 'first b' first
    """
    assert run(tmp_path, steps) == (0, "", ["first", "behind", "behind"])


def test_a_step_that_fails_ends_its_list_and_what_is_missing_is_said(tmp_path: Path) -> None:
    steps = """
    setup_bad() { did bad; echo 'no network'; false; did never; }
    setup_behind() { did behind; }
    setup_a() { wait_for did; did a; }
    setup_b() { did b; }
    side_by_side 'bad behind' 'a b behind'
    did never
    """
    said = "no network\nsetup not done, the first for a reason above: bad\n"
    assert run(tmp_path, steps) == (1, said, ["bad", "a", "b", "behind"])
    code, said, _ = run(tmp_path, steps.replace("b behind'", "b'"))
    assert (code, said.splitlines()[-1]) == (1, "setup not done, the first for a reason above: bad behind")


def test_no_two_runs_do_a_step_at_once(tmp_path: Path) -> None:
    steps = """
    setup_a() { did begun; sleep 0.2; did done; }
    in_order a & in_order a & wait
    """
    assert run(tmp_path, steps.replace("wait", "wait; rm -r $RUN")) == (0, "", ["begun", "done"])
    other = "setup_a() { did begun; sleep 0.2; did done; }; (begin_steps; in_order a) & in_order a; wait"
    (tmp_path / "did").unlink()
    assert run(tmp_path, other) == (0, "", ["begun", "done"] * 2)


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT"])
def test_a_run_that_is_ended_leaves_no_step_behind(tmp_path: Path, name: str) -> None:
    steps = """
    setup_a() { did begun; sleep 30; did never; }
    setup_b() { wait_for did; (sleep 31; did never) & wait; did never; }
    side_by_side a b
    """
    # whoever starts the tests in the background ignores INT for them, too
    command = ["env", "--default-signal=INT", "bash", "-c", BEGIN + steps, "setup", str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT)
    until(lambda: (tmp_path / "did").exists() and len(descendants(process.pid)) >= 6)
    started = descendants(process.pid)
    process.send_signal(signal.Signals[f"SIG{name}"])
    assert process.wait(20) == (130 if name == "INT" else 143)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
    assert (tmp_path / "did").read_text() == "begun\n"


def descendants(pid: int) -> list[int]:
    children = [
        int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
    ]
    return [*children, *(each for child in children for each in descendants(child))]


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)
