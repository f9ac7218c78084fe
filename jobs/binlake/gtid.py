"""Sets of GTIDs of executed transactions, in the forms of MySQL and MariaDB.

MySQL ("GTID Sets", reference manual 19.1.3.1): intervals of transaction numbers by uuid and, from 8.3, tag:
``uuid:1-3:5:blue:1-2``. MariaDB ("gtid_binlog_pos", knowledge base): the last GTID of each domain: ``0-1-100,1-2-7``.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from binlake.errors import UsageError
from binlake.position import Flavour

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\Z")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}\Z")
_INTERVAL = re.compile(r"(\d+)(?:-(\d+))?\Z")
_MARIADB = re.compile(r"(\d+)-(\d+)-(\d+)\Z")

Interval = tuple[int, int]
"""First and last transaction number, both included."""


@dataclass(frozen=True)
class GtidSet:
    """A GTID set of MySQL. members: disjoint ascending intervals by ``uuid`` or ``uuid:tag``."""

    members: Mapping[str, tuple[Interval, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Parse the server's text. Raises UsageError."""
        collected: dict[str, list[Interval]] = {}
        for item in text.lower().split(","):
            uuid, *words = [word.strip() for word in item.split(":")]
            if not uuid and not words:
                continue
            if not _UUID.match(uuid) or not words:
                raise _not_a_set(text)
            member = uuid
            for word in words:
                if interval := _INTERVAL.match(word):
                    first, last = int(interval[1]), int(interval[2] or interval[1])
                    if not 0 < first <= last:
                        raise _not_a_set(text)
                    collected.setdefault(member, []).append((first, last))
                elif _TAG.match(word):
                    member = f"{uuid}:{word}"
                else:
                    raise _not_a_set(text)
        return cls.of(collected)

    @classmethod
    def of(cls, members: Mapping[str, Iterable[Interval]]) -> GtidSet:
        """Return a set of intervals, which may be in any order, touch or overlap."""
        return cls({member: _merged(list(intervals)) for member, intervals in members.items()})

    @classmethod
    def decode(cls, body: bytes) -> GtidSet:
        """Decode the body of a PREVIOUS_GTIDS event. Raises ValueError.

        Without tags ("Gtid_set::add_gtid_encoding") it has the number of uuids, then each uuid with its half-open
        intervals. With tags the first and the eighth byte are 1, the number is in the six bytes between, and a tag
        follows each uuid: its length as an integer of MySQL's serialization, and its characters.
        """
        try:
            return cls._decode(body)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise ValueError("a GTID set that is cut off") from error

    @classmethod
    def _decode(cls, body: bytes) -> GtidSet:
        (count,) = struct.unpack_from("<Q", body)
        tagged = body[7] == 1
        if tagged:
            count = int.from_bytes(body[1:7], "little")
        collected: dict[str, list[Interval]] = {}
        at = 8
        for _ in range(count):
            member = uuid_text(body[at : at + 16])
            at += 16
            if tagged:
                size = body[at] >> 1  # of at most 32 characters, so one byte holds it
                tag = body[at + 1 : at + 1 + size].decode("ascii")
                member = f"{member}:{tag}" if tag else member
                at += 1 + size
            (intervals,) = struct.unpack_from("<Q", body, at)
            at += 8
            for _ in range(intervals):
                first, end = struct.unpack_from("<QQ", body, at)
                at += 16
                if not 0 < first < end:
                    raise ValueError("a GTID set with an empty interval")
                collected.setdefault(member, []).append((first, end - 1))
        return cls.of(collected)

    def has(self, gtid: str) -> bool:
        """Return whether a transaction (``uuid:5``, ``uuid:tag:5``) is in the set."""
        member, _, number = gtid.rpartition(":")
        return _inside(self.members.get(member, ()), int(number), int(number))

    def contains(self, other: GtidSet) -> bool:
        """Return whether all transactions of the other set are in this one."""
        return all(
            _inside(self.members.get(member, ()), first, last)
            for member, intervals in other.members.items()
            for first, last in intervals
        )

    def without(self, other: GtidSet) -> GtidSet:
        """Return the transactions that aren't in another set."""
        return GtidSet.of(
            {
                member: left
                for member, intervals in self.members.items()
                if (left := _outside(intervals, other.members.get(member, ())))
            }
        )

    def union(self, other: GtidSet) -> GtidSet:
        """Return the set of the transactions of both."""
        both = (*self.members.items(), *other.members.items())
        merged: dict[str, list[Interval]] = {}
        for member, intervals in both:
            merged.setdefault(member, []).extend(intervals)
        return GtidSet.of(merged)

    def adding(self, gtids: Iterable[str]) -> GtidSet:
        """Return the set with more transactions. gtids: as ``uuid:number`` or ``uuid:tag:number``."""
        extended = {member: list(intervals) for member, intervals in self.members.items()}
        for gtid in gtids:
            member, _, number = gtid.rpartition(":")
            extended.setdefault(member, []).append((int(number), int(number)))
        return GtidSet.of(extended)

    def __str__(self) -> str:
        by_uuid: dict[str, list[str]] = {}
        for member, intervals in sorted(self.members.items()):
            uuid, _, tag = member.partition(":")
            words = [str(first) if first == last else f"{first}-{last}" for first, last in intervals]
            by_uuid.setdefault(uuid, []).extend([tag, *words] if tag else words)
        return ",".join(":".join([uuid, *words]) for uuid, words in by_uuid.items())


@dataclass(frozen=True)
class GtidPosition:
    """A GTID position of MariaDB. domains: (server_id, sequence number) of the last transaction, by domain.

    Within a domain the log has one order, so all transactions before the last were executed, too. Numbers show that
    order where they never go back, which gtid_strict_mode=OFF lets them do.
    """

    domains: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> GtidPosition:
        """Parse the server's text. Raises UsageError."""
        return cls().adding(item.strip() for item in text.split(",") if item.strip())

    @classmethod
    def decode(cls, body: bytes) -> GtidPosition:
        """Decode the body of a GTID_LIST event. Raises ValueError."""
        return cls().adding(gtid_list(body))

    def has(self, gtid: str) -> bool:
        """Return whether the transaction is at or before this position. gtid: ``domain-server-number``."""
        domain, _, number = domain_server_number(gtid)
        return domain in self.domains and number <= self.domains[domain][1]

    def contains(self, other: GtidPosition) -> bool:
        """Return whether the other position is at or before this one in each of its domains."""
        return all(
            domain in self.domains and number <= self.domains[domain][1]
            for domain, (_, number) in other.domains.items()
        )

    def adding(self, gtids: Iterable[str]) -> GtidPosition:
        """Return the position after later transactions, in the log's order. The last one of each domain counts."""
        domains = dict(self.domains)
        for gtid in gtids:
            domain, server, number = domain_server_number(gtid)
            domains[domain] = server, number
        return GtidPosition(domains)

    def union(self, later: GtidPosition) -> GtidPosition:
        """Return the position after the transactions of a later one."""
        return GtidPosition({**self.domains, **later.domains})

    def highest(self, other: GtidPosition) -> GtidPosition:
        """Return the position with the higher number of each domain, as MariaDB's gtid_current_pos has it."""
        ahead = {
            domain: last
            for domain, last in other.domains.items()
            if domain not in self.domains or last[1] >= self.domains[domain][1]
        }
        return GtidPosition({**self.domains, **ahead})

    @property
    def last(self) -> frozenset[str]:
        """Return the GTIDs of the last transactions."""
        return frozenset(f"{domain}-{server}-{number}" for domain, (server, number) in self.domains.items())

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self.domains.items()))


def gtid_list(body: bytes) -> list[str]:
    """Return the GTIDs of a GTID_LIST event: the last one of each server in each domain, the domain's last behind the
    others (rpl_binlog_state::get_gtid_list, sql/rpl_gtid.cc). Raises ValueError."""
    try:
        (head,) = struct.unpack_from("<I", body)
        entries = [struct.unpack_from("<IIQ", body, 4 + 16 * number) for number in range(head & 0x0FFFFFFF)]
    except struct.error as error:
        raise ValueError("a GTID list that is cut off") from error
    return [f"{domain}-{server}-{number}" for domain, server, number in entries]


Executed = GtidSet | GtidPosition


def parse(text: str, flavour: Flavour) -> Executed:
    """Parse what has been executed from the server's text. Raises UsageError."""
    return GtidPosition.parse(text) if flavour == "mariadb" else GtidSet.parse(text)


def uuid_text(sid: bytes) -> str:
    """Return sixteen bytes as the text of a uuid."""
    text = sid.hex()
    if len(text) != 32:
        raise ValueError("a uuid that is cut off")
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return tuple(merged)


def _outside(intervals: tuple[Interval, ...], others: tuple[Interval, ...]) -> list[Interval]:
    """Return the parts of intervals that lie in none of the others."""
    left: list[Interval] = []
    for first, last in intervals:
        for begin, end in others:
            if begin > first and begin <= last:
                left.append((first, begin - 1))
            if begin <= last and end >= first:
                first = end + 1
        if first <= last:
            left.append((first, last))
    return left


def _inside(intervals: tuple[Interval, ...], first: int, last: int) -> bool:
    place = bisect_right(intervals, first, key=lambda interval: interval[0]) - 1
    return place >= 0 and last <= intervals[place][1]


def domain_server_number(text: str) -> tuple[int, int, int]:
    """Return domain, server and sequence number of a MariaDB GTID. Raises UsageError."""
    match = _MARIADB.match(text)
    if not match:
        raise _not_a_set(text)
    return int(match[1]), int(match[2]), int(match[3])


def _not_a_set(text: str) -> UsageError:
    return UsageError(
        f"{text!r} is not a GTID set", remedy="write it as the server does: uuid:1-100 (MySQL), 0-1-100 (MariaDB)"
    )
