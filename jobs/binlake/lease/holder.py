"""The holder of a lease, and whether that process still lives.

A process is identified by host, boot, PID namespace, number and start time: containers with one host name each have
their own numbers, and numbers are used again. Only a process in the same namespace can be looked for; leases of others
are waited for until they expire. The clock may be wrong, so an expiry that isn't possible isn't believed: see Watch.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from binlake.errors import UsageError
from binlake.store.metadata import now_us

LIFETIME = 120
"""Seconds after which a lease that isn't renewed may be taken over."""
BY_TURNS = "turn-"
"""Prefix of the token of a row whose holder gives it back again and again, and renews it often meanwhile."""
SILENCE = 10
"""Seconds for which such a holder isn't silent while it lives: a process that saw its row unchanged for so long, by a
monotonic clock, may take the row over. A holder that was only slow finds its row taken, and can write nothing."""
_held_here: set[str] = set()
"""Tokens of the leases that this process holds."""
_WRITTEN = re.compile(
    r"(?P<host>\S*) boot (?P<boot>\S*) namespace (?P<namespace>\d+) pid (?P<pid>\d+) started (?P<started>\d+)"
)


@dataclass(frozen=True)
class Machine:
    """The machine and namespace in which a process number has a meaning. namespace: the inode of the PID namespace."""

    host: str
    boot: str
    namespace: int


@dataclass(frozen=True)
class Holder:
    """A process as it names itself in metadata. started: in the kernel's ticks since the boot."""

    machine: Machine
    pid: int
    started: int

    def __str__(self) -> str:
        where = self.machine
        return f"{where.host} boot {where.boot} namespace {where.namespace} pid {self.pid} started {self.started}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read a holder from metadata.

        Returns None for what older versions wrote, ``HOST pid N started N``: it lacks the namespace, and so doesn't
        identify the process. Older versions, in turn, don't see from this form whether its process died.
        """
        match = _WRITTEN.fullmatch(text)
        if match is None:
            return None
        machine = Machine(match["host"], match["boot"], int(match["namespace"]))
        return cls(machine, int(match["pid"]), int(match["started"]))

    @property
    def lives(self) -> bool | None:
        """Return whether the process lives; None where it is on another machine or in another namespace."""
        here = _machine()
        if here is None or here != self.machine:
            return None
        started = _start_of(self.pid)
        return None if started is None else started == self.started


def this_process() -> str:
    """Return how this process names itself as a holder."""
    machine, pid = _machine(), os.getpid()
    started = _start_of(pid) if machine else None
    if machine is None or not started:
        return f"{socket.gethostname()} pid {pid}"
    return str(Holder(machine, pid, started))


def died(written: str | None, token: str | None) -> bool:
    """Return whether the holder is known to be gone, or is this process, which couldn't give the lease back."""
    holder = Holder.parse(written) if written and token else None
    if holder is None or holder.lives is None:
        return False
    return not holder.lives or (holder.pid == os.getpid() and token not in _held_here)


def refuse_alive(written: str, token: str) -> None:
    """Raise UsageError where the holder is known to be alive, so that its lease isn't taken away."""
    holder = Holder.parse(written)
    if holder is not None and holder.lives and not died(written, token):
        raise UsageError(
            f"{written} holds it, and is alive on this machine",
            remedy=f"wait for it to end, or end it (kill {holder.pid}): then the next run takes over by itself",
        )


def wait_remedy(written: str, unlock: str = "binlake unlock --config FILE --why …") -> str:
    """Return the remedy for a process that a holder makes wait.

    unlock: the command that takes it away from a holder whose end can't be seen from here.
    """
    wait = "wait for it to end, then run again"
    holder = Holder.parse(written)
    if holder is not None and holder.lives:
        return wait
    return f"{wait}; if it died, it is over {LIFETIME} s after its last sign of life, and at once with: {unlock}"


@contextmanager
def known_here(token: str) -> Iterator[None]:
    """Remember, while the block runs, that this process holds the lease of a token."""
    _held_here.add(token)
    try:
        yield
    finally:
        _held_here.discard(token)


def _machine() -> Machine | None:
    """Return this machine; None where there is no /proc, or one of another namespace, in which this process has another
    number."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return None
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return Machine(socket.gethostname(), boot, os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return None


def _start_of(pid: int) -> int | None:
    """Return the kernel's start time of a process; 0 where none has this number, None where it may not be seen."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return 0 if _is_gone(pid) else None
    return 0 if fields[0] == "Z" else int(fields[19])


def _is_gone(pid: int) -> bool:
    """Return whether no process has this number, without /proc, which may hide processes of other accounts."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def renewed_every(token: str) -> float:
    """Return the seconds after which the holder renews a row again."""
    return SILENCE / 3 if token.startswith(BY_TURNS) else LIFETIME / 4


class Watch:
    """Looks at a lease again and again, for a process that waits for it.

    A lease expires at most its length from now. A later expiry comes from a wrong clock, here or there: such a lease is
    over once this process has seen it unchanged for its whole length, by a monotonic clock. One that is held by turns
    is over once its holder is silent.
    """

    def __init__(self) -> None:
        self._first: tuple[str | None, int] | None = None
        self._since = 0.0
        self._last: tuple[str | None, int] | None = None
        self._changed = 0.0
        self.in_doubt = False
        """The lease that was looked at last may turn out to be over, for a reason other than its expiry."""

    def is_held(self, holder: str | None, token: str | None, expires_us: int) -> bool:
        """Return whether a process holds the lease."""
        now = now_us()
        if self._first is None:
            self._first, self._since = (token, expires_us), time.monotonic()
        if self._last != (token, expires_us):
            self._last, self._changed = (token, expires_us), time.monotonic()
        unbelievable = expires_us > now + LIFETIME * 1_000_000
        unchanged = self._first == (token, expires_us)
        self.in_doubt = unbelievable and unchanged
        if not token or not holder or expires_us <= now or died(holder, token):
            return False
        if token.startswith(BY_TURNS) and time.monotonic() - self._changed >= SILENCE:
            return False
        return not (self.in_doubt and time.monotonic() - self._since >= LIFETIME)
