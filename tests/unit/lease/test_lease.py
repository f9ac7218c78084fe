"""One worker at a time, taken over when it dies, fenced when it wakes."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from binlake.errors import LeaseHeld
from binlake.lease import lease
from binlake.lease.held_row import RowValues, SharedRow
from binlake.lease.lease import OpenBatch, RecordedState
from binlake.position import Position, Range, Slice
from binlake.store.metadata import Metadata, now_us

START, STOP = Position("s", "b.000001", 4, 1), Position("s", "b.000001", 99, 1)
PLAN = OpenBatch(1, Range(START, STOP, (Slice("b.000001", 4, 99, 1, False),)))


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    return Metadata(str(tmp_path / "_binlake"))


def test_a_second_holder_is_refused_by_name(metadata: Metadata) -> None:
    with lease.held(metadata), pytest.raises(LeaseHeld, match=f"pid {os.getpid()}"), lease.held(metadata):
        pass
    with lease.held(metadata):
        pass


def test_plan_and_position_survive_the_holder(metadata: Metadata) -> None:
    with lease.held(metadata) as held:
        held.open(PLAN)
    assert lease.read(metadata).open == PLAN
    with lease.held(metadata) as held:
        held.stand(RecordedState(1, STOP))
    control = lease.read(metadata)
    assert (control.batch, control.open, control.position) == (1, None, STOP)


def die_holding(metadata: Metadata) -> None:
    """Another process takes the lease and is killed."""
    code = (
        "import os, sys; from binlake.lease import lease; from binlake.store.metadata import Metadata\n"
        "with lease.held(Metadata(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    died = subprocess.run([sys.executable, "-c", code, metadata._path], check=False)
    assert died.returncode == -9


def test_a_dead_process_is_taken_over_at_once(metadata: Metadata) -> None:
    die_holding(metadata)
    assert lease.read(metadata).expires_us > now_us()
    with lease.held(metadata) as held:
        assert "pid" in str(held.control().holder)


def test_a_lease_lost_to_a_process_that_died_says_so(metadata: Metadata) -> None:
    with lease.held(metadata) as held:
        metadata.swap("lease", "batch = 0", {"holder": None, "token": None, "expires_us": 0})
        die_holding(metadata)
        with pytest.raises(LeaseHeld, match=r"(?s)is dead by now.*run again"):
            held.open(PLAN)


def test_a_holder_elsewhere_keeps_its_lease_until_it_expires(metadata: Metadata) -> None:
    with lease.held(metadata):
        pass
    other: dict[str, str | int | None] = {"holder": "other-host pid 1 started 1", "token": "t", "since_us": now_us()}
    metadata.swap("lease", "batch = 0", {**other, "expires_us": now_us() + 60_000_000})
    with pytest.raises(LeaseHeld, match="other-host"), lease.held(metadata):
        pass
    metadata.swap("lease", "batch = 0", {"expires_us": now_us() - 1})
    with lease.held(metadata):
        pass


def test_who_holds_it_for_a_moment_is_waited_for(metadata: Metadata) -> None:
    taken, give_back = threading.Event(), threading.Event()

    def work() -> None:
        with lease.held(metadata, brief=True):
            taken.set()
            give_back.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    assert taken.wait(60)
    threading.Timer(0.5, give_back.set).start()
    with lease.held(metadata) as held:
        assert give_back.is_set()
        assert held.control().holder
    thread.join()


def test_who_gives_it_back_again_and_again_is_waited_for(metadata: Metadata) -> None:
    holding = lease.held(metadata, by_turns=True)
    holding.__enter__()
    threading.Timer(0.5, holding.__exit__, (None, None, None)).start()
    with lease.held(metadata) as held:
        held.check()


def test_who_has_patience_waits_for_a_long_one(metadata: Metadata) -> None:
    holding = lease.held(metadata)
    holding.__enter__()
    threading.Timer(0.5, holding.__exit__, (None, None, None)).start()
    with lease.held(metadata, patience=60) as held:
        held.check()


def test_a_woken_holder_can_change_nothing(metadata: Metadata) -> None:
    with lease.held(metadata) as held:
        metadata.swap("lease", "batch = 0", {"holder": "other-host pid 1 started 1", "token": "t", "expires_us": 0})
        with pytest.raises(LeaseHeld, match="other-host"):
            held.open(PLAN)
    assert lease.read(metadata).open is None
    assert lease.read(metadata).token == "t"


def test_charsets_that_are_asked_for_late_leave_the_batch_open(metadata: Metadata) -> None:
    with lease.held(metadata) as held:
        recorded_state = RecordedState(0, STOP)
        held.stand(recorded_state)
        held.open(PLAN)
        held.know(recorded_state, {"shop": "latin1"})
        control = held.control()
    assert (control.open, control.recorded_state) == (PLAN, RecordedState(0, STOP, {"shop": "latin1"}))


def test_a_thread_doesn_t_take_another_s_lease_for_a_dead_one_s(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its token is in the row, the process knows it, however long the commit takes to return."""
    swap, seen = SharedRow.swap, []

    def looked_at(row: SharedRow[Any], token: str | None, changes: RowValues) -> bool:
        swapped = swap(row, token, changes)
        seen.append(lease.read(metadata).holder_died)
        return swapped

    monkeypatch.setattr(SharedRow, "swap", looked_at)
    with lease.held(metadata):
        pass
    assert seen == [False, False]
