"""Verification: the lake compared with the server, or checked by itself, and put right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from binlake.config import PipelineConfig, VerifyWay
from binlake.errors import NoSnapshotYet, UsageError
from binlake.metadata import lease
from binlake.metadata.lease import Lease
from binlake.metadata.metadata import Metadata, metadata_of
from binlake.position import Position
from binlake.report import Report
from binlake.source import read_replica
from binlake.source.connection import Endpoint
from binlake.source.log import Origin, server_of
from binlake.source.read_replica import ReadPlace, ReadReplica, own_place
from binlake.spark.starting import SessionFactory

if TYPE_CHECKING:
    from binlake.verify.self_test import SelfTestReport
    from binlake.verify.verify import VerifyReport

_SHORT_WAIT = 15.0
"""Seconds for which the lease is held while a replica is waited for."""


@dataclass(frozen=True)
class ComparedServer:
    """The server whose rows are compared. replica: of what it is one, where it isn't the source itself."""

    endpoint: Endpoint
    replica: ReadReplica | None = None

    @classmethod
    def of(cls, origin: Origin, replica: Endpoint | None, what: str) -> ComparedServer:
        """Return the replica, or the source without one. Raises UsageError where that is a folder of files."""
        return cls(replica, ReadReplica(replica, origin)) if replica else cls(server_of(origin, what))

    def wait_for_lake(self, metadata: Metadata) -> None:
        """Wait for a replica that is behind the lake. Raises ConnectionFailed."""
        if self.replica and (position := lease.read(metadata).position):
            self.replica.wait_for(position, read_replica.PATIENCE)

    def place(self, held: Lease, catch_up: Callable[[Position], None]) -> ReadPlace:
        """Return what reads where the server is in the log that the lake follows.

        An unfinished batch is carried to its end first: a replica may stand within it. Raises ConnectionFailed,
        NoSnapshotYet, and what ``catch_up`` raises.
        """
        if self.replica is None:
            return own_place
        if begun := held.control().open:
            catch_up(begun.range.stop)
        position = held.control().position
        if position is None:
            raise NoSnapshotYet
        self.replica.wait_for(position, _SHORT_WAIT)
        return self.replica.place_behind(position)


@dataclass(frozen=True)
class RepairAsked:
    """What is to become of differing rows. dry_run: nothing. keep_values: the lake's former values are noted, too."""

    held: Lease
    dry_run: bool
    keep_values: bool


def chosen_way(config: PipelineConfig, by: VerifyWay | None, *, by_chunks: bool) -> PipelineConfig:
    """Return the settings for comparing in a way; without one in the YAML's. Raises UsageError where only some chunks
    are to be compared by hashes."""
    way = by or config.verify.by
    if by_chunks and way == "hash":
        raise UsageError(
            "by hash all rows are compared, in one run", remedy="leave out --changed and --for, or --by hash"
        )
    return config.verified_by(way)


def compare(
    config: PipelineConfig,
    server: Endpoint,
    place: ReadPlace,
    session: SessionFactory,
    report: Report,
    catch_up: Callable[[Position], None],
    go_on: Callable[[], None] = lambda: None,
    *,
    tables: list[str] | None,
    run: str | None,
    changed: bool = False,
    seconds: float | None = None,
    repair: RepairAsked | None = None,
) -> VerifyReport:
    """Compare the tables that patterns match with the server.

    place: see ComparedServer. catch_up: brings the lake to exactly a position. go_on: called once nothing more depends
    on the lake's standing still there. changed, seconds: as of ``verify``.
    """
    from binlake.verify.repair import Repairs
    from binlake.verify.verify import verify

    metadata, repairs = metadata_of(config), None
    if repair:
        metadata = repair.held.metadata
        repairs = Repairs(repair.held, config, session, dry_run=repair.dry_run, keep_values=repair.keep_values)
    return verify(
        config, server, session, metadata, catch_up, go_on, tables=tables, report=report, repairs=repairs, run=run,
        changed=changed, seconds=seconds, place=place,
    )  # fmt: skip


def verify_lake(config: PipelineConfig, *, tables: list[str] | None = None) -> VerifyReport:
    """Check the lake's data files by the checksums of the chunks that were verified; the server isn't asked."""
    from binlake.verify.lake_check import check_lake

    return check_lake(config, metadata_of(config), tables)


def self_test(config: PipelineConfig, *, tables: list[str] | None = None) -> SelfTestReport:
    """Plant faults in copies of some rows of the lake's tables, and tell whether a verification finds each."""
    from binlake.verify.self_test import self_test_lake

    return self_test_lake(config, metadata_of(config), tables)
