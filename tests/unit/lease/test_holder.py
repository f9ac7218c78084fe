"""Whether the process that holds a lease still lives, by its host, boot, PID namespace, number and start time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from binlake.config import PipelineConfig
from binlake.errors import LeaseHeld, UsageError
from binlake.lease import copier, held_row, lease
from binlake.lease.holder import LIFETIME, SILENCE, Holder, Watch, died, this_process, wait_remedy
from binlake.records import decisions, feed_watermarks
from binlake.records.decisions import Reason
from binlake.records.feed_watermarks import FeedLimits
from binlake.store.metadata import Metadata, metadata_of, now_us

DAY = 24 * 3600 * 1_000_000
LIMITS = FeedLimits(50, 168)
HELD_A_DAY_AHEAD: dict[str, str | int | None] = {
    "holder": "elsewhere pid 1 started 1",
    "token": "t",
    "expires_us": now_us() + DAY,
}
"""A lease that a kill left behind."""
WHY = Reason("ann", "its machine is gone")


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds slept so far; the clock that only counts is stopped but for them."""
    slept: list[float] = []
    monkeypatch.setattr(time, "monotonic", lambda: sum(slept))
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(held_row, "LOOK_AGAIN", 50)
    return slept


@pytest.fixture
def gone() -> Holder:
    """A process of this machine that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return replace(own(), pid=process.pid)


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "shop", "connection": "shop", "server_id": 4001},
            "tables": {"include": ["shop.*"]},
            "lake": {"path": str(tmp_path)},
        }
    )
    metadata = metadata_of(config)
    with lease.held(metadata):
        feed_watermarks.register(metadata, "out", LIMITS)
    return config


@pytest.fixture
def metadata(config: PipelineConfig) -> Metadata:
    return metadata_of(config)


def own() -> Holder:
    holder = Holder.parse(this_process())
    assert holder is not None
    return holder


def test_a_process_is_read_as_it_was_written() -> None:
    assert (own().pid, str(own()), own().lives) == (os.getpid(), this_process(), True)


def test_a_process_that_ended_is_dead(gone: Holder) -> None:
    assert died(str(gone), "t")


def test_a_number_that_another_process_has_by_now_is_dead() -> None:
    parent = replace(own(), pid=os.getppid(), started=own().started + 1)
    assert died(str(parent), "t")


@pytest.mark.parametrize("other", [{"host": "elsewhere"}, {"boot": "another"}, {"namespace": 1}])
def test_of_another_machine_boot_or_namespace_nobody_can_tell(gone: Holder, other: dict[str, object]) -> None:
    elsewhere = replace(gone, machine=replace(gone.machine, **other))  # type: ignore[arg-type]  # by field
    assert elsewhere.lives is None
    assert not died(str(elsewhere), "t")


def test_of_what_an_older_version_wrote_nobody_can_tell(gone: Holder) -> None:
    """It doesn't name the namespace: in another one the number is another process's."""
    assert not died(f"{gone.machine.host} pid {gone.pid} started 12345", "t")


def test_an_older_version_takes_no_living_process_for_dead() -> None:
    """It calls a holder of its host dead whose number, behind the word pid, has another start time than what follows;
    what has no number there it leaves alone."""
    _, _, rest = this_process().partition(" ")
    assert not rest.removeprefix("pid ").partition(" ")[0].isdigit()


HOLDING = """
import sys
from binlake.lease import lease
from binlake.store.metadata import Metadata
with lease.held(Metadata(sys.argv[1])) as held:
    print(held.control().holder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def in_a_container(metadata: Metadata) -> Iterator[str]:
    """A living holder in a PID namespace of its own, under this host's name."""
    command = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", sys.executable, "-c", HOLDING]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, metadata._path], **pipes) as process:  # type: ignore[call-overload]  # as above
        yield process.stdout.readline().strip()
        process.communicate("")


def test_a_holder_in_another_container_of_one_host_name_is_not_overtaken(
    metadata: Metadata, in_a_container: str
) -> None:
    other = Holder.parse(in_a_container)
    assert other is not None
    assert (other.machine.host, other.pid) == (own().machine.host, 1)
    assert other.machine.namespace != own().machine.namespace
    with pytest.raises(LeaseHeld, match="pid 1 started"), lease.held(metadata):
        pass


# the clock -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ahead", [LIFETIME + 5, DAY])
def test_a_lease_that_lasts_longer_than_leases_do_is_watched_for_its_length(sleeps: list[float], ahead: int) -> None:
    expires = now_us() + ahead * 1_000_000
    watch = Watch()
    assert watch.is_held("elsewhere", "t", expires)
    assert watch.in_doubt
    sleeps.append(LIFETIME - 1)
    assert watch.is_held("elsewhere", "t", expires)
    sleeps.append(1)
    assert not watch.is_held("elsewhere", "t", expires)


def test_a_lease_that_is_renewed_is_held_whatever_its_clock_says(sleeps: list[float]) -> None:
    watch = Watch()
    assert watch.is_held("elsewhere", "t", now_us() + DAY)
    sleeps.append(LIFETIME)
    assert watch.is_held("elsewhere", "t", now_us() + DAY + 30_000_000)
    assert not watch.in_doubt


def test_a_row_that_is_held_by_turns_is_over_once_its_holder_is_silent(sleeps: list[float]) -> None:
    watch, expires = Watch(), now_us() + 60_000_000
    assert watch.is_held("elsewhere", "turn-t", expires)
    sleeps.append(SILENCE - 1)
    assert watch.is_held("elsewhere", "turn-t", expires)
    assert watch.is_held("elsewhere", "turn-t", expires + 1)
    sleeps.append(SILENCE - 1)
    assert watch.is_held("elsewhere", "turn-t", expires + 1)
    sleeps.append(1)
    assert not watch.is_held("elsewhere", "turn-t", expires + 1)
    assert watch.is_held("elsewhere", "t", expires)


def test_a_lease_left_by_a_kill_under_a_clock_a_day_ahead_is_taken_over(
    metadata: Metadata, sleeps: list[float]
) -> None:
    assert metadata.swap("lease", "true", HELD_A_DAY_AHEAD)
    with lease.held(metadata):
        assert sum(sleeps) == 150
        assert lease.read(metadata).expires_us < now_us() + DAY / 2


def test_a_feeds_lease_left_under_a_clock_a_day_ahead_is_taken_over(metadata: Metadata, sleeps: list[float]) -> None:
    assert metadata.swap("feeds", "true", HELD_A_DAY_AHEAD)
    with feed_watermarks.held(metadata, "out", LIMITS):
        assert sum(sleeps) == 150


def test_a_feeds_living_holder_elsewhere_is_refused_at_once(metadata: Metadata, sleeps: list[float]) -> None:
    assert metadata.swap("feeds", "true", {**HELD_A_DAY_AHEAD, "expires_us": now_us() + 60_000_000})
    with pytest.raises(LeaseHeld, match="elsewhere"), feed_watermarks.held(metadata, "out", LIMITS):
        pass
    assert not sleeps


# by people -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("table", "feed"), [("lease", None), ("copiers", None), ("feeds", "out")])
def test_people_take_a_lease_away_and_say_why(
    config: PipelineConfig, metadata: Metadata, table: str, feed: str | None
) -> None:
    with copier.held(metadata):
        pass
    assert "nobody holds" in decisions.unlock(config, WHY, feed)
    assert metadata.swap(table, "true", HELD_A_DAY_AHEAD)
    assert "it was held by elsewhere pid 1" in decisions.unlock(config, WHY, feed)
    assert metadata.read(table)[0]["token"] is None
    (row,) = metadata.read("decisions")
    assert (row["who"], row["action"]) == ("ann", "unlock")
    assert "its machine is gone" in row["why"]
    assert "it was held by elsewhere pid 1" in row["result"]
    with lease.held(metadata), copier.held(metadata), feed_watermarks.held(metadata, "out", LIMITS):
        pass


def test_a_lease_is_not_taken_from_a_process_that_is_alive_here(config: PipelineConfig, metadata: Metadata) -> None:
    with lease.held(metadata) as held:
        with pytest.raises(UsageError, match=f"(?s)is alive on this machine.*kill {os.getpid()}"):
            decisions.unlock(config, WHY)
        held.check()


def test_a_feed_that_never_ran_is_refused_by_name(config: PipelineConfig) -> None:
    with pytest.raises(UsageError, match="no feed nowhere ran here"):
        decisions.unlock(config, WHY, "nowhere")


def test_a_holder_whose_end_cannot_be_seen_from_here_can_be_unlocked() -> None:
    alive, elsewhere = this_process(), "elsewhere boot 1 namespace 1 pid 1 started 1"
    assert wait_remedy(alive) == "wait for it to end, then run again"
    assert "120 s" in wait_remedy(elsewhere)
    assert wait_remedy(elsewhere).endswith("at once with: binlake unlock --config FILE --why …")
    assert wait_remedy("older pid 7 started 8", "binlake unlock --feed f").endswith("binlake unlock --feed f")
