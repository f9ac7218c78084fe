"""Locks by which all connections of a wave open their read views at one known position of the log.

Each connection of a wave stops at a gate of its own, a user-level lock that the control connection holds:

    1  connections       announce themselves (lock ``ready``) and wait at their gates
    2  another           stops writes: FLUSH TABLES WITH READ LOCK, or LOCK TABLES … READ (binlake.source.read_lock)
    3  control           no transaction is prepared (XA RECOVER): its rows lie before the position, outside the view
    4  control           opens the gates
    5  connections       open their views, touch their tables (no DDL from here on), announce it (lock ``open``)
    6  control           reads schema and position; then writes continue

Steps 2 to 6 take a few milliseconds, however slowly connections are made. The name of the lock ``open`` carries the
isolation level: under READ COMMITTED no server gives a stable view. ``IS_USED_LOCK`` needs no grant and is exact,
where information_schema.innodb_trx needs PROCESS and is up to 100 ms old.

Without a lock (``none``) the control connection reads a position before the views open, such that every transaction
before it can be seen by them, and waits for those that are prepared; the log replays what the views have already.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from pymysql.constants import ER

from binlake.errors import ServerSettingError, SourceError
from binlake.position import Position
from binlake.schema.table import TableName
from binlake.source import lock_waits, prepared_xa
from binlake.source.server import Source

LockMode = Literal["flush", "tables", "none"]
"""How a wave stops writes: globally (without the grant: as ``tables``), for its tables only, or not at all."""

SPENT = ER.SUBQUERY_NO_1_ROW
"""The server's error for a connection that passes a gate a second time; no chunk's own SELECT has a subquery."""

CreatedOf = Callable[[str], int]
"""A function from a binlog file's name to the timestamp (seconds) of its format description event."""

_ISOLATION = "REPEATABLE-READ"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_POLL = 0.002
_LONGEST_POLL = 0.5
_GATE_SECONDS = 86_400
_OPEN_SECONDS = 20.0
"""Seconds within which the views open once the gates are, where no writer waits for it."""
_PATIENCE = 120.0
"""Seconds to wait for prepared transactions, and for transactions that are being committed."""
_SAID_AFTER = 5.0
"""Seconds of waiting after which it is said for what."""


class Busy(SourceError):
    """The lock can't be acquired, or a prepared transaction doesn't end."""

    retryable = True


class StaysPrepared(Busy):
    """XA transactions are still prepared after the wait; they may stay so for days."""


@dataclass(frozen=True)
class Gate:
    """The user-level locks of one connection of a wave, which reads ``tables``. ``id`` is unique to this attempt."""

    tables: tuple[TableName, ...]
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:20])

    @property
    def ready(self) -> str:
        """Return the name of the lock that the connection takes when it comes to its gate."""
        return f"binlake:ready:{self.id}"

    @property
    def closed(self) -> str:
        """Return the name of the gate's lock, which the control connection holds until the gate opens."""
        return f"binlake:gate:{self.id}"

    @property
    def open(self) -> str:
        """Return the name of the lock that the connection takes once its view is open.

        It ends with the isolation level.
        """
        return f"binlake:open:{_ISOLATION}:{self.id}"

    @property
    def spent(self) -> str:
        """Return the name of the lock that turns away all connections that come once the gate was used."""
        return f"binlake:spent:{self.id}"

    def statements(self, *, mariadb: bool) -> list[tuple[TableName | None, str]]:
        """Return the statements that the connection runs first, each with the table that it concerns or None."""
        isolation = "@@tx_isolation" if mariadb else "@@transaction_isolation"
        # SELECT, since MariaDB's DO swallows the error.
        not_spent = f"SELECT IF(IS_FREE_LOCK('{self.spent}'), 1, (SELECT 1 UNION SELECT 2))"
        return [
            # An executor that was lost makes Spark run the task again: a later view under an old position.
            (None, not_spent),
            (None, f"SELECT GET_LOCK('{self.ready}', 0)"),
            (None, f"SELECT GET_LOCK('{self.closed}', {_GATE_SECONDS})"),
            # The lost one's connection may live on, and leave the gate to the other when it ends.
            (None, not_spent),
            (None, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"),
            # The metadata locks keep DDL (and swaps of names) away until the copy is done.
            *((name, f"SELECT 1 FROM {name.quoted} LIMIT 0") for name in self.tables),
            (None, f"SELECT GET_LOCK(CONCAT('binlake:open:', {isolation}, ':{self.id}'), 0)"),
        ]

    def init_statements(self, *, mariadb: bool) -> str:
        """Return the same as one text, for a driver that sends several statements at once."""
        return "; ".join(statement for _, statement in self.statements(mariadb=mariadb))


class Gates:
    """The control connection's side of a wave's gates.

    check: raises an error if a connection of the wave has failed meanwhile.
    """

    def __init__(self, source: Source, gates: Sequence[Gate], check: Callable[[], None]) -> None:
        self._source = source
        self._gates = gates
        self._check = check
        self._take("closed")

    def _names(self, what: str) -> list[str]:
        return [getattr(gate, what) for gate in self._gates]

    def _take(self, what: str) -> None:
        for name in self._names(what):
            self._source.query("SELECT GET_LOCK(%s, 0)", [name])

    def _release(self, what: str) -> None:
        for name in self._names(what):
            self._source.query("SELECT RELEASE_LOCK(%s)", [name])

    def _holders(self, what: str) -> list[int | None]:
        names = self._names(what)
        asked = ", ".join(f"IS_USED_LOCK(%s) AS l{number}" for number in range(len(names)))
        return list(self._source.query(f"SELECT {asked}", names)[0].values())

    def _wait(self, what: str, seconds: float, poll: float) -> list[int]:
        """Wait until each gate's lock has a holder, and return the server's numbers of these connections."""
        deadline = time.monotonic() + seconds
        while True:
            holders = [holder for holder in self._holders(what) if holder is not None]
            if len(holders) == len(self._gates):
                return holders
            self._check()
            if time.monotonic() > deadline:
                raise self._late(what, seconds)
            time.sleep(poll)

    def _late(self, what: str, seconds: float) -> Busy:
        tables = {name for gate in self._gates for name in gate.tables}
        holders = lock_waits.table_holders(self._source, tables) if what == "open" else []
        why = f": they wait for {lock_waits.named(holders)}" if holders else ""
        return Busy(
            f"connections of the snapshot aren't {what} after {seconds:.0f} s{why}",
            remedy="check that Spark's executors reach the server and have free cores, and that no other session locks"
            " the tables (SHOW PROCESSLIST), then run again",
        )

    def wait_until_ready(self, seconds: float = 600) -> None:
        """Wait until all connections are at their gates."""
        self._wait("ready", seconds, 0.02)

    def open(self, seconds: float = _OPEN_SECONDS) -> list[int]:
        """Let the connections open their views, and wait until all have. Each gate can be passed once only.

        Returns the server's numbers of these connections.
        """
        if any(self._holders("open")) or None in self._holders("ready"):
            raise Busy("a connection of the snapshot opened its view too early", remedy="run again")
        self._release("closed")
        opened = self._wait("open", seconds, _POLL)
        self._take("spent")
        return opened

    def are_spent(self) -> bool:
        """Return whether nobody else can have passed a gate by now. Raises SourceError where the control connection is
        gone, and with it what keeps others away."""
        return None not in self._holders("spent")

    def forget(self) -> None:
        """Release the locks at the end of the wave."""
        self._release("spent")

    def abort(self) -> None:
        """End the connections of this wave that still wait: nothing may be copied at an unknown position."""
        with suppress(SourceError):
            self._take("spent")  # connections that come to the gate from now on are turned away
            for connection in {*self._holders("ready"), *self._holders("open")} - {None}:
                with suppress(SourceError):
                    self._source.execute(f"KILL {int(connection or 0)}")
            self._release("closed")


def stay_prepared(source: Source, xids: Sequence[str]) -> StaysPrepared:
    """Return the error for XA transactions that don't end, with their ids and possible owners."""
    return StaysPrepared(
        f"{len(xids)} prepared XA transactions don't end, on whatever tables: their rows would be lost to the snapshot:"
        f" {prepared_xa.describe(source, xids)}",
        remedy="let their application end them, or XA COMMIT or XA ROLLBACK them by these names; then run again",
    )


def head_position(source: Source, created: CreatedOf) -> Position:
    """Return the end of the log. Under a read lock it is exactly what the views see."""
    file, offset, gtid_set = source.head()
    return Position(source.server_identity, file, offset, created(file), gtid_set)


def position_before_views(
    source: Source, created: CreatedOf, say: Callable[[str], None] = lambda text: None
) -> Position:
    """Return a position such that views opened from now on, without a lock, see every transaction before it.

    The head of the log may be ahead of what the engine shows, for a transaction is logged first. The position's
    ``gtid_set`` may lack transactions that are being committed; it has none too many. say: is called with a text while
    this waits. Raises ServerSettingError on MySQL without GTID, AccessDenied, Busy if a transaction doesn't end.
    """
    position = _mariadb_snapshot(source, created) if source.is_mariadb else _mysql_head(source, created, say)
    # The rows of those that are prepared lie before the position, and no view shows them.
    prepared = prepared_xa.prepared_xids(source)
    if prepared and (xids := prepared_xa.wait_until_ended(source, _PATIENCE, prepared, say)):
        raise stay_prepared(source, xids)
    return position


def allows_no_lock(source: Source) -> bool:
    """Return whether a position can be read without a lock: on MySQL it needs GTIDs."""
    return source.is_mariadb or source.variables(["gtid_mode"]).get("gtid_mode", "OFF").upper() == "ON"


def _mysql_head(source: Source, created: CreatedOf, say: Callable[[str], None]) -> Position:
    """Return the end of the log, once all that is committed before it can be seen."""
    if not allows_no_lock(source):
        raise ServerSettingError(
            "a snapshot without a lock needs GTID on MySQL",
            remedy="SET GLOBAL gtid_mode step by step to ON (manual 19.1.4.2), or snapshot with a lock",
        )
    position = head_position(source, created)
    # A transaction owns its GTID from before it is written to the log until the engine shows it.
    pending = owned_gtids(source)
    began, said = time.monotonic(), False
    while waited := pending & owned_gtids(source):
        seconds = time.monotonic() - began
        if seconds > _PATIENCE:
            raise Busy(
                f"{len(waited)} transactions in the log don't become visible, {min(waited)} among them",
                remedy="see whether another session holds the server's read lock or its disk is full"
                " (SHOW PROCESSLIST), and run again",
            )
        if not said and seconds > _SAID_AFTER:
            say(f"the snapshot waits until {len(waited)} transactions that are being committed can be seen")
            said = True
        time.sleep(min(_LONGEST_POLL, _POLL + seconds / 10))
    return position


def owned_gtids(source: Source) -> set[str]:
    """Return the GTIDs of transactions that are being committed."""
    text = source.query("SELECT @@GLOBAL.gtid_owned AS owned")[0]["owned"] or ""
    gtids: set[str] = set()
    # uuid[:tag]:number#thread:number#threaduuid… with nothing between a thread and the next uuid
    starts = [match.start() for match in _UUID.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        server, rest = text[start : start + 36], text[start + 36 : end]
        tag = ""
        for word, number in re.findall(r":(?:([a-z_]\w*)|(\d+)#)", rest):
            tag = f":{word}" if word else tag
            if number:
                gtids.add(f"{server}{tag}:{number}")
    return gtids


def _mariadb_snapshot(source: Source, created: CreatedOf) -> Position:
    """Return the log's position of a view that the control connection opens; later views see no less."""
    source.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    source.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    try:
        rows = source.query("SHOW STATUS LIKE 'binlog_snapshot_%%'", [])
        status = {row["Variable_name"].lower(): row["Value"] for row in rows}
        file, offset = status.get("binlog_snapshot_file", ""), int(status.get("binlog_snapshot_position", 0) or 0)
        if not file:
            raise ServerSettingError(
                "the server gives no binlog_snapshot_file", remedy="set log_bin=ON, or snapshot with a lock"
            )
        gtid = source.query("SELECT BINLOG_GTID_POS(%s, %s) AS gtid", [file, offset])[0]["gtid"] or ""
    finally:
        source.execute("ROLLBACK")
    return Position(source.server_identity, file, offset, created(file), gtid)
