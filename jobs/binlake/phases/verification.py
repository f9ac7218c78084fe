"""Verification: the lake compared with the server, or checked by itself, and put right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from binlake.config import PipelineConfig, VerifyWay
from binlake.errors import UsageError
from binlake.metadata.lease import Lease
from binlake.metadata.metadata import metadata_of
from binlake.position import Position
from binlake.report import Report
from binlake.source.connection import Endpoint
from binlake.spark.starting import SessionFactory

if TYPE_CHECKING:
    from binlake.verify.self_test import SelfTestReport
    from binlake.verify.verify import VerifyReport


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

    catch_up: brings the lake to exactly a position. go_on: called once nothing more depends on the lake's standing
    still there. changed, seconds: as of ``verify``.
    """
    from binlake.verify.repair import Repairs
    from binlake.verify.verify import verify

    metadata, repairs = metadata_of(config), None
    if repair:
        metadata = repair.held.metadata
        repairs = Repairs(repair.held, config, dry_run=repair.dry_run, keep_values=repair.keep_values)
    return verify(
        config, server, session, metadata, catch_up, go_on, tables=tables, report=report, repairs=repairs, run=run,
        changed=changed, seconds=seconds,
    )  # fmt: skip


def verify_lake(config: PipelineConfig, *, tables: list[str] | None = None) -> VerifyReport:
    """Check the lake's data files by the checksums of the chunks that were verified; the server isn't asked."""
    from binlake.verify.lake_check import check_lake

    return check_lake(config, metadata_of(config), tables)


def self_test(config: PipelineConfig, *, tables: list[str] | None = None) -> SelfTestReport:
    """Plant faults in copies of some rows of the lake's tables, and tell whether a verification finds each."""
    from binlake.verify.self_test import self_test_lake

    return self_test_lake(config, metadata_of(config), tables)
