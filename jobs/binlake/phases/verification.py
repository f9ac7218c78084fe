"""Verification: the lake compared with the server, or checked by itself, and put right."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from binlake.config import PipelineConfig, VerifyWay
from binlake.errors import NoSnapshotYet, UsageError
from binlake.lease import lease
from binlake.lease.lease import Lease
from binlake.merge.published_tables import publish_now
from binlake.phases import asked_tables
from binlake.position import Position
from binlake.report import Report
from binlake.source import read_replica
from binlake.source.endpoint import Endpoint
from binlake.source.log import Origin, server_of
from binlake.source.read_replica import ReadPlace, ReadReplica, own_place
from binlake.spark.starting import SessionFactory
from binlake.store.metadata import Metadata, metadata_of

if TYPE_CHECKING:
    from binlake.verify.self_test import SelfTestReport
    from binlake.verify.verify import VerifyReport

_SHORT_WAIT = 15.0
"""Seconds for which the lease is held while a replica is waited for."""


@dataclass(frozen=True)
class ComparedServer:
    """The server whose rows are compared. replica: the server as a replica of the source; None for the source
    itself."""

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

    def place(self, held: Lease, catch_up: Callable[[Position], object]) -> ReadPlace:
        """Return a function that reads the server's position in the log that the lake follows.

        An unfinished batch is carried to its end first: a replica may be within it. Raises ConnectionFailed,
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
class VerifyRequest:
    """The tables to compare, and how.

    tables: patterns, None for all. by: overrides the YAML's ``verify.by``. changed: compare rows that may have changed
    since they were compared, and a share of the rest. seconds: stop once so many have passed; the next verification
    continues there. replica: read in the server's place, which isn't locked then.
    """

    tables: list[str] | None = None
    by: VerifyWay | None = None
    changed: bool = False
    seconds: float | None = None
    replica: Endpoint | None = None

    def settings(self, config: PipelineConfig) -> PipelineConfig:
        """Return the settings to compare under. Raises UsageError where only some chunks are compared by hashes."""
        way = self.by or config.verify.by
        if way == "hash" and (self.changed or self.seconds is not None):
            raise UsageError(
                "by hash all rows are compared, in one run", remedy="leave out --changed and --for, or --by hash"
            )
        return config.verified_by(way)


@dataclass(frozen=True)
class RepairRequest:
    """The differences to put right. dry_run: nothing is changed. keep_values: the lake's former values are noted, too.
    tables, replica: as of VerifyRequest."""

    tables: list[str] | None = None
    dry_run: bool = False
    keep_values: bool = False
    replica: Endpoint | None = None


CarryTo = Callable[[Lease, Position], object]
"""Carries the lake to exactly a position, under the lease."""


def verify(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    asked: VerifyRequest,
    carry_to: CarryTo,
    run: str | None,
) -> VerifyReport:
    """Compare tables with the server. The lease is held until the lake is at the position of the server's views."""
    from binlake.verify.verify import VerifyScope, verify as compare

    config = config.leaving_out(lease.read(metadata_of(config)).columns_left_out)
    chosen = asked.settings(config)
    server = ComparedServer.of(origin, asked.replica, "verify")
    asked_tables.snapshot_asked(config, origin, session, report, run)
    server.wait_for_lake(metadata_of(config))
    with ExitStack() as standing_still:
        held = standing_still.enter_context(lease.held(metadata_of(config)))
        under_lease = partial(carry_to, held)
        place = server.place(held, under_lease)
        scope = VerifyScope(asked.tables, asked.changed, asked.seconds, run=run, place=place)
        go_on = standing_still.close
        return compare(chosen, server.endpoint, session, metadata_of(chosen), under_lease, go_on, scope, report)


def repair(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    asked: RepairRequest,
    carry_to: CarryTo,
    run: str | None,
) -> VerifyReport:
    """Compare tables with the server, and put right what differs. The lease is held to the end."""
    from binlake.verify.repair.repair import Repairs
    from binlake.verify.verify import VerifyScope, verify as compare

    config = config.leaving_out(lease.read(metadata_of(config)).columns_left_out)
    by_read = config.verified_by("read")
    server = ComparedServer.of(origin, asked.replica, "repair")
    server.wait_for_lake(metadata_of(config))
    with lease.held(metadata_of(config)) as held:
        under_lease = partial(carry_to, held)
        repairs = Repairs(held, by_read, session, run, dry_run=asked.dry_run, keep_values=asked.keep_values)
        scope = VerifyScope(asked.tables, repairs=repairs, run=run, place=server.place(held, under_lease))
        done = compare(by_read, server.endpoint, session, held.metadata, under_lease, scope=scope, report=report)
    publish_now(config, [table.name for table in done.tables], report)
    return done


def verify_lake(config: PipelineConfig, *, tables: list[str] | None = None) -> VerifyReport:
    """Check the lake's data files by the checksums of the chunks that were verified; the server isn't asked."""
    from binlake.verify.lake_check import check_lake

    return check_lake(config, metadata_of(config), tables)


def self_test(config: PipelineConfig, *, tables: list[str] | None = None) -> SelfTestReport:
    """Plant faults in copies of some rows of the lake's tables, and return whether a verification finds each."""
    from binlake.verify.self_test import self_test_lake

    return self_test_lake(config, metadata_of(config), tables)
