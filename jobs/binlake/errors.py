"""The tree of errors: what went wrong, what to do next, and whether a retry can help.

    BinlakeError                  exit code 3
    ├── UsageError                exit code 2   the command line or the YAML is wrong
    │   └── ConfigurationError
    ├── CheckFailed               exit code 1   the preflight or a comparison found something
    ├── SourceError                             the MySQL or MariaDB server
    │   ├── ConnectionFailed      retry helps   network, server down, timeouts
    │   ├── AccessDenied                        password or grant
    │   ├── ServerSettingError                  wrong format, missing row metadata
    │   │   └── NoBinlog                        the server writes no log
    │   ├── PositionLost                        purged, past the end, numbering restarted, another server
    │   ├── Busy                  retry helps   the snapshot's lock can't be had (source/locks.py, read_lock.py)
    │   ├── LockTimeout           retry helps   another session locks a table that is read
    │   └── ServerIdInUse         retry helps   a replica with our server_id is connected
    ├── BinlogError                             bytes of the log, always with file:pos
    │   ├── CorruptEvent
    │   └── UnsupportedEvent
    ├── TableError                              concerns one table; the others continue
    │   ├── UnfollowedStatement                 a DDL statement that can't be followed
    │   ├── UnsupportedColumn
    │   ├── InvalidDate
    │   ├── InvalidText
    │   ├── SchemaMismatch                      the log and the recorded schema disagree
    │   ├── StagedRowsLost                      staged rows of a prepared XA transaction are damaged
    │   ├── LakeTableChanged                    somebody restored, replaced or removed our Delta table
    │   │   └── CommitsLost                     its newest commits are lost
    │   └── SnapshotUnfinished                  a newer snapshot is in the lake, but its life never began
    ├── StagingError          retry helps       a staged file is missing or damaged, or couldn't be made
    │   └── StagedRowsDiffer                    staged again, a batch that is merged in part has other content
    ├── LakeError                 retry helps   the lake's storage
    │   ├── UnknownFormat                       another binlake wrote the metadata
    │   └── LakeGone                            nothing is where a lake was: a disk that isn't mounted
    ├── FeedError                               a feed can't continue: its condition, its format, what it lacks
    │   └── SinkFailed        retry helps       the sink refused, or can't be reached
    ├── SetupFailed                             this machine can't be given what it lacks
    ├── ChunkFailed               retry helps   Spark lost a task of a snapshot (snapshot/waves.py)
    └── LeaseHeld                 retry helps   another run works on this source
        └── FeedFollowed                        a process carries the feed as batches come

Every message ends with what to do next; none carries a secret or the value of a row.
"""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from typing import Final, Protocol

from binlake import names

SNAPSHOTTED_BY_ITSELF: Final = "nothing to do: it is snapshotted again by itself"
"""The remedy for a table of which the next run takes a snapshot."""
UNREADABLE_REMEDY: Final = "exclude the table, and report what is said here: the others continue"
"""The remedy for a table in which an unexpected error was met."""
UNMATCHED_REMEDY: Final = "patterns are database.table; tables must be included in the YAML and exist on the server"
"""The remedy for patterns that match no table."""

DIFFERING_REMEDY: Final = (
    "put the differing rows right: binlake repair --config FILE --tables TABLE; what it leaves alone, it names with a "
    "reason: snapshot that again, where few rows differ with --keys FIRST..LAST"
)
"""The remedy for tables that differ from the server's."""
UNVERIFIED_REMEDY: Final = "see what is said of each above, then verify again"
"""The remedy for tables that couldn't be compared with the server."""
TAKEN_REMEDY: Final = "rename the table, exclude it, or take the mode out of tables.modes"
"""The remedy for a table whose place in the lake is that of a table beside a mirror."""
RESNAPSHOT: Final = "snapshot all tables again: binlake snapshot --config FILE"
"""The remedy for a log that is lost."""

FIRST_BATCH: Final = "one comes with the first binlake sync that finds a change in the log after the snapshot"
"""The remedy where no batch is recorded: a sync of a server on which nothing changed records none. The snapshot with
which a lake begins is a version where all tables were copied at one position."""


class Named(Protocol):
    """A table's name, as ``schema.table.TableName`` has it."""

    @property
    def database(self) -> str:
        """Return the name of the table's database."""

    @property
    def table(self) -> str:
        """Return the table's name in its database."""


def snapshot_command(table: Named) -> str:
    """Return the command that snapshots a table."""
    pattern = names.pattern_of(table.database, table.table)
    return f"binlake snapshot --config FILE --tables {names.shell_quote(pattern)}"


def repair_command(table: Named) -> str:
    """Return what to do about a table that differs from the server's, or can't be read."""
    pattern = names.shell_quote(names.pattern_of(table.database, table.table))
    return f"binlake repair --config FILE --tables {pattern}; where it can't, {snapshot_command(table)}"


def check_partitions(table: Named) -> str:
    """Return what to do about a table in which several rows have the same key."""
    quoted = names.shown(f"{names.mysql_quote(table.database)}.{names.mysql_quote(table.table)}")
    return (
        f"ALTER TABLE {quoted} CHECK PARTITION ALL names rows that are in a wrong partition; exchange or truncate that "
        "partition, then run the snapshot again"
    )


def repair_beside(table: Named) -> str:
    """Return what to do about a table beside a mirror that is stopped. table: the mirror's."""
    pattern = names.shell_quote(names.pattern_of(table.database, table.table))
    return (
        "write it again from the staging that is kept, or continue from the mirror with a gap that is noted: "
        f"binlake repair --config FILE --tables {pattern}; or move its folder away: it is begun again"
    )


def snapshot_again(table: Named) -> str:
    """Return the remedy for a table whose rows in the lake can't be updated from the log."""
    return f"snapshot this table again: {snapshot_command(table)}"


def resnapshot_again(table: Named) -> str:
    """Return the remedy for a table of which somebody has to ask for a new snapshot."""
    return f"snapshot it again: binlake table resnapshot --config FILE --table {names.shell_quote(str(table))} --why …"


def catch_up_again(table: Named) -> str:
    """Return the remedy for a table that missed a part of the log."""
    return f"read what it missed while the server has it: {resume_command(table)}; or {snapshot_again(table)}"


def resume_command(table: Named) -> str:
    """Return the command line that resumes a table, without the reason that its user gives."""
    return f"binlake table resume --config FILE --table {names.shell_quote(str(table))} --why …"


def answer_command(table: Named, answer: str) -> str:
    """Return the command line that answers the schema change at which a table waits. answer: its option."""
    return f"binlake table schema-change --config FILE --table {names.shell_quote(str(table))} {answer} --why …"


OF_CODE: Final = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, NotImplementedError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip
"""Errors that code raises about its arguments, Arrow's and deltalake's included. Failures of storage, network and
server raise others."""


def unexpected(error: BaseException) -> str:
    """Return an unexpected error's type and where it was raised, without its message, which may hold a row's values."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


class BinlakeError(Exception):
    """Root of all errors that binlake raises.

    remedy: what to do next. retryable: the same call can succeed later, unchanged.
    """

    exit_code = 3
    retryable = False

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.remedy}" if self.remedy else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Spark's Python workers pickle errors; keyword-only arguments need help.
        return (_rebuild, (type(self), self.__dict__.copy()))


def _rebuild(kind: type[BinlakeError], state: dict[str, object]) -> BinlakeError:
    error = kind.__new__(kind)
    Exception.__init__(error, state["message"], state["remedy"])
    error.__dict__.update(state)
    return error


class UsageError(BinlakeError):
    """Wrong use of the command line."""

    exit_code = 2


@dataclass(frozen=True)
class KeyProblem:
    """A key of a YAML, and what is wrong with it. line: from 1; 0 if it isn't known. key: with dots; empty for the
    whole file. text: what was found, and what is wanted."""

    line: int
    key: str
    text: str


class ConfigurationError(UsageError):
    """The YAML or a connection is wrong. problems: by key, where the error is of a YAML's keys."""

    def __init__(self, message: str, *, remedy: str = "", problems: tuple[KeyProblem, ...] = ()) -> None:
        super().__init__(message, remedy=remedy)
        self.problems = problems


class UnfitColumn(ConfigurationError):
    """A column can't have the name or the type in the lake that the YAML gives it. It concerns its table alone."""


class KeyUnavailable(BinlakeError):
    """The key of a hash can't be looked up now: what keeps it fails, or lacks a key that this process had from it."""

    retryable = True


class NoSnapshotYet(UsageError):
    """No table of the source has a snapshot: there is no position from which the log could be read."""

    def __init__(self) -> None:
        super().__init__("no table has a snapshot yet", remedy="run binlake snapshot (or the bootstrap DAG) first")


class CheckFailed(BinlakeError):
    """The preflight found a failing line, or the mirror differs."""

    exit_code = 1


class SetupFailed(BinlakeError):
    """Something that a machine needs can't be downloaded, or doesn't run on it."""


class SourceError(BinlakeError):
    """The server refused or failed."""


class ConnectionFailed(SourceError):
    """The server can't be reached, or the connection broke."""

    retryable = True


class LockTimeout(SourceError):
    """Another session locks a table for longer than a statement of ours waits."""

    retryable = True


class AccessDenied(SourceError):
    """Wrong password, or a grant is missing."""


class ServerSettingError(SourceError):
    """A server setting makes an exact mirror impossible."""


class NoBinlog(ServerSettingError):
    """A server that writes no log. server: as in positions. at_us: when it was seen, by its own clock."""

    def __init__(self, message: str, *, remedy: str, server: str, at_us: int) -> None:
        super().__init__(message, remedy=remedy)
        self.server = server
        self.at_us = at_us


class PositionLost(SourceError):
    """The server no longer has (or never had) the log from the lake's position on."""


class ServerIdInUse(SourceError):
    """Another replica uses the same server_id."""

    retryable = True


class BinlogError(BinlakeError):
    """The log can't be read at ``file``:``offset`` (offset in bytes from the start of the file).

    raw: the event or its first bytes, if they were read.
    """

    raw = b""

    def __init__(self, message: str, *, file: str, offset: int, remedy: str = "") -> None:
        super().__init__(f"{file}:{offset}: {message}", remedy=remedy)
        self.file = file
        self.offset = offset


class CorruptEvent(BinlogError):
    """Checksum, length or structure is wrong."""


class Malformed(Exception):
    """Bytes of the log end too early or contradict themselves. Callers that know file and offset raise CorruptEvent
    instead."""


class UnsupportedEvent(BinlogError):
    """An event that may carry data and that isn't understood."""


class TableError(BinlakeError):
    """Stops one table; the others continue. table: its ``database.table``, if the code that raised it gave one."""

    table = ""


class UnfollowedStatement(TableError):
    """A DDL statement that isn't followed."""


class UnsupportedColumn(TableError):
    """A column that can't be mirrored exactly."""


class InvalidDate(TableError):
    """A date such as 0000-00-00 under the policy ``invalid_dates: fail``."""


class InvalidText(TableError):
    """A value that isn't valid in the character set of its column."""


class SchemaMismatch(TableError):
    """The table map in the log and the recorded schema disagree."""


class StagedRowsLost(TableError):
    """Staged rows of a prepared XA transaction, of a batch that can't be staged again, are missing or damaged."""


class LakeTableChanged(TableError):
    """The Delta table isn't the one that binlake wrote."""


class CommitsLost(LakeTableChanged):
    """The Delta log went back: its newest commits are lost, or its folder was restored from a copy."""


class SnapshotUnfinished(TableError):
    """A snapshot of the table was committed, but its run ended before the life began. It is resumed, or repeated."""


class StagingError(BinlakeError):
    """A staged file is missing, or differs from its manifest; or the executor was lost that made it."""

    retryable = True


class StagedRowsDiffer(StagingError):
    """Staging a partly merged batch again gave other content than before."""

    retryable = False


class LakeError(BinlakeError):
    """The lake's storage failed."""

    retryable = True


class WrittenMeanwhile(LakeError):
    """Another process wrote a metadata table between a look at it and the write."""


class FeedError(BinlakeError):
    """A feed can't continue. The mirror does."""


class SinkFailed(FeedError):
    """A feed's sink refused what was sent, or can't be reached."""

    retryable = True


class LogUnreadable(LakeError):
    """The Delta log of one table can't be read: files of it are damaged or lost, and no cause of the storage is
    named."""


class SparkNeeded(Exception):
    """The remaining work needs Spark, and this process may not start it. Nothing failed."""


class LeftToSpark(Exception):
    """A step on a Delta table that this process leaves to Spark; nothing was changed. Its text is the reason."""


class UnknownFormat(LakeError):
    """Another binlake wrote the metadata, in a form that this one doesn't know."""

    retryable = False


class LakeGone(LakeError):
    """There is nothing at the place of a lake that this account worked on. A retry helps once its disk is mounted."""


class MetadataLost(LakeError):
    """A metadata table is gone, and the others are there."""

    retryable = False


class LeaseLost(MetadataLost):
    """The metadata table of the lease is gone."""


class LeaseHeld(BinlakeError):
    """Another run holds the source's lease."""

    retryable = True


class TablesCopied(LeaseHeld):
    """Another process copies tables of the source beside its batches, or what was copied has to wait."""


class FeedFollowed(LeaseHeld):
    """A process that carries batches as they come holds the feed's lease."""
