"""Who holds a lease, and whether that process still lives.

A process is known by its host, boot, PID namespace, number and start time: containers of one host name each have their
own numbers, and numbers are used again. Only in its own namespace can a process be looked for; of all others nobody
here knows whether they live, and their leases are waited for until they expire. An expiry is compared with a clock that
may be wrong, so that what isn't possible isn't believed: see Watch.
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
from binlake.metadata.metadata import now_us

LIFETIME = 120
"""Seconds after which a lease that isn't renewed may be taken over."""
_held_here: set[str] = set()
"""Tokens of this process's leases."""
_WRITTEN = re.compile(
    r"(?P<host>\S*) boot (?P<boot>\S*) namespace (?P<namespace>\d+) pid (?P<pid>\d+) started (?P<started>\d+)"
)


@dataclass(frozen=True)
class Machine:
    """Where numbers of processes mean something. namespace: the inode of the PID namespace."""

    host: str
    boot: str
    namespace: int


@dataclass(frozen=True)
class Holder:
    """A process as it calls itself in metadata. started: in the kernel's ticks since the boot."""

    machine: Machine
    pid: int
    started: int

    def __str__(self) -> str:
        where = self.machine
        return f"{where.host} boot {where.boot} namespace {where.namespace} pid {self.pid} started {self.started}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None for what older versions wrote, ``HOST pid N started N``: it doesn't tell the namespace, and so not
        which process is meant. Those in turn can't tell of this form whether its process died."""
        found = _WRITTEN.fullmatch(text)
        if found is None:
            return None
        machine = Machine(found["host"], found["boot"], int(found["namespace"]))
        return cls(machine, int(found["pid"]), int(found["started"]))

    @property
    def lives(self) -> bool | None:
        """None where it can't be told: of another machine or namespace."""
        here = _machine()
        if here is None or here != self.machine:
            return None
        started = _start_of(self.pid)
        return None if started is None else started == self.started


def this_process() -> str:
    """How this process calls itself as a holder."""
    machine, pid = _machine(), os.getpid()
    started = _start_of(pid) if machine else None
    if machine is None or not started:
        return f"{socket.gethostname()} pid {pid}"
    return str(Holder(machine, pid, started))


def died(written: str | None, token: str | None) -> bool:
    """Whether the holder is known to be gone, or is this process, which couldn't give the lease back."""
    holder = Holder.parse(written) if written and token else None
    if holder is None or holder.lives is None:
        return False
    return not holder.lives or (holder.pid == os.getpid() and token not in _held_here)


def refuse_alive(written: str, token: str) -> None:
    """Raises UsageError where the holder is known to be alive: its lease isn't to be taken away."""
    holder = Holder.parse(written)
    if holder is not None and holder.lives and not died(written, token):
        raise UsageError(
            f"{written} holds it, and is alive on this machine",
            remedy=f"wait for it to end, or end it (kill {holder.pid}): then the next run takes over by itself",
        )


@contextmanager
def known_here(token: str) -> Iterator[None]:
    """While this process holds the lease of this token."""
    _held_here.add(token)
    try:
        yield
    finally:
        _held_here.discard(token)


def _machine() -> Machine | None:
    """None where there is no /proc, or one of another namespace, in which this process has another number."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return None
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return Machine(socket.gethostname(), boot, os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return None


def _start_of(pid: int) -> int | None:
    """The kernel's start time of a process; 0: there is none of this number; None: it may not be seen."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return 0 if _is_gone(pid) else None
    return 0 if fields[0] == "Z" else int(fields[19])


def _is_gone(pid: int) -> bool:
    """Asked otherwise than of /proc, which may hide the processes of other accounts."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


class Watch:
    """Looks at a lease again and again, for who waits for it.

    A lease expires at most its length from now. What is later was written by a clock that is wrong, or is read by one:
    such a lease is over once this process has seen it unchanged for its whole length, by a clock that only counts.
    """

    def __init__(self) -> None:
        self._first: tuple[str | None, int] | None = None
        self._since = 0.0
        self.in_doubt = False
        """Whether the lease that was looked at last may turn out to be over, for a reason other than its expiry."""

    def is_held(self, holder: str | None, token: str | None, expires_us: int) -> bool:
        """Whether somebody holds it."""
        now = now_us()
        if self._first is None:
            self._first, self._since = (token, expires_us), time.monotonic()
        unbelievable = expires_us > now + LIFETIME * 1_000_000
        unchanged = self._first == (token, expires_us)
        self.in_doubt = unbelievable and unchanged
        if not token or not holder or expires_us <= now or died(holder, token):
            return False
        return not (self.in_doubt and time.monotonic() - self._since >= LIFETIME)
