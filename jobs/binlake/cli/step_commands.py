"""Commands for the pipeline's steps. Results go to standard output, progress to standard error."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from binlake.cli import printing, replay_arguments
from binlake.cli.sessions import catalog_session_of, origin_of, replica_of, report_of, session_of
from binlake.config import PipelineConfig
from binlake.config.catalogs_config import CatalogOccasion
from binlake.config.pipeline_config import YamlOnDisk
from binlake.errors import TableError, UsageError
from binlake.moment import parse_moment
from binlake.report import Report

if TYPE_CHECKING:
    from binlake.verify.verify import VerifyReport


def snapshot(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Snapshot tables, or a range of one table's keys, and print the results.

    Raises UsageError for --keys with --begin.
    """
    from binlake import pipeline
    from binlake.phases.bootstrap import KeysAsked, is_short_copy

    if arguments.keys is not None and arguments.begin:
        raise UsageError("--begin begins a lake again, and --keys copies rows into one", remedy="leave one out")
    origin, report, tables, lock = origin_of(config), report_of(arguments), arguments.tables, arguments.lock
    short_lived = partial(is_short_copy, config, origin, tables)
    session = session_of("snapshot", config, report, config.snapshot.connections, short_lived)
    if arguments.keys is not None:
        asked = KeysAsked(tables, arguments.keys)
        results = pipeline.snapshot_keys(config, origin, session, report, asked, lock=lock)
    else:
        results = pipeline.bootstrap(config, origin, session, report, tables=tables, lock=lock, begin=arguments.begin)
    _register_if_due(config, report, "snapshot")
    if arguments.json:
        printing.as_json([result.to_json() for result in results])
        return
    printing.snapshots(results)


def parse_until(text: str) -> datetime | None:
    """Return None for ``now``, else the time that ``parse_moment`` reads. Raises UsageError."""
    return None if text == "now" else parse_moment(text, "--until", instead="now")


def sync(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Carry the lake along the log, and print each run."""
    from binlake import pipeline
    from binlake.phases.open_batch import is_short_run

    until, report = parse_until(arguments.until), report_of(arguments)
    session = session_of("sync", config, report, short_lived=lambda: is_short_run(config))
    result = pipeline.sync(config, origin_of(config), session, report, until=until)
    runs = (*result.earlier, result)
    if arguments.json:
        printing.as_json(result.to_json())
    else:
        for run in runs:
            printing.run_report(run)
    tables = [table for run in runs for table in run.tables]
    stopped = [table for table in tables if table.status in ("stopped", "missing", "resnapshot")]
    for table in stopped:
        print(f"{table.status}: {table.table}: {table.reason}\n  → {table.remedy}", file=sys.stderr)
    for table in tables:
        if table.status == "copied":
            print(f"snapshotted again: {table.table}: {table.reason}", file=sys.stderr)
    newly = {
        word: [table.table for table in stopped if table.newly_stopped and (table.status == "missing") == missing]
        for word, missing in (("stopped", False), ("missing in the lake", True))
    }
    _register_if_due(config, report, "batch")
    told = [f"{', '.join(named)} {word}" for word, named in newly.items() if named]
    if told:
        raise TableError(f"{'; '.join(told)}; the other tables are up to date", remedy="see above")


def follow(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Follow the log, and carry the source's feeds, until asked to end."""
    from binlake.kernels import heap

    heap.return_freed_memory()  # before the others import pyarrow
    from binlake import pipeline
    from binlake.feeds.feeds_beside import FeedsBeside, FeedsOfSource
    from binlake.feeds.registry import PARTS
    from binlake.interrupts import Ending
    from binlake.phases.follow import FollowPace

    report, ending = report_of(arguments), Ending()
    ending.listen()
    pace = FollowPace(arguments.every, None, arguments.duration or math.inf)
    file = YamlOnDisk(arguments.config, config)
    feeds = FeedsOfSource(file.read, FeedsBeside(report, PARTS))
    session = session_of("follow", config, report)
    followed = pipeline.follow(file.read, origin_of(config), session, report, pace, ending, [feeds])
    ending.over()
    if arguments.json:
        printing.as_json(asdict(followed))
    else:
        print(followed.headline)


def verify(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Compare the lake with the server, or with itself, and print the result. Raises CheckFailed where they differ."""
    from binlake import pipeline
    from binlake.phases.verification import VerifyRequest

    without_server = arguments.lake or arguments.self_test or arguments.iceberg
    if arguments.by is not None and without_server:
        raise UsageError("--by chooses how the server is compared with, and it isn't asked", remedy="leave --by out")
    if arguments.duration is not None and without_server:
        raise UsageError("--for limits the comparison with the server alone", remedy="leave it out")
    if arguments.self_test:
        tested = pipeline.self_test(config, tables=arguments.tables)
        if arguments.json:
            printing.as_json(tested.to_json())
        else:
            print(tested.to_text())
        tested.refuse_missed()
        return
    if arguments.iceberg:
        from binlake.phases.published_check import check_published

        checked = check_published(config, pipeline.metadata_of(config), arguments.tables)
        if arguments.json:
            printing.as_json(checked.to_json())
        else:
            print(checked.to_text())
        checked.refuse_unequal()
        return
    report = report_of(arguments)
    result: VerifyReport
    if arguments.lake:
        result = pipeline.verify_lake(config, tables=arguments.tables)
    else:
        asked = VerifyRequest(arguments.tables, arguments.by, arguments.changed, arguments.duration, replica_of(config))
        result = pipeline.verify(config, origin_of(config), session_of("verify", config, report), report, asked)
    if arguments.json:
        printing.as_json(result.to_json())
    else:
        print(result.to_text())
    result.refuse_unequal()


def repair(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Repair the rows that differ from the server, and print the result.

    Raises CheckFailed where some aren't repaired.
    """
    from binlake import pipeline
    from binlake.phases.verification import RepairRequest

    report = report_of(arguments)
    asked = RepairRequest(arguments.tables, arguments.dry_run, arguments.keep_values, replica_of(config))
    result = pipeline.repair(config, origin_of(config), session_of("repair", config, report), report, asked)
    if arguments.json:
        printing.as_json(result.to_json())
    else:
        print(result.to_text())
    result.refuse_unrepaired()


def replay(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Build tables again from staged files, and print them."""
    from binlake import pipeline

    request, report = replay_arguments.request(arguments), report_of(arguments)
    tables = pipeline.replay(config, session_of("replay", config, report), report, request)
    if arguments.json:
        printing.as_json([table.to_json() for table in tables])
        return
    for table in tables:
        print(table.to_text())


def maintain(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Maintain the tables' files, and print what was done."""
    from binlake import pipeline

    report = report_of(arguments)
    result = pipeline.maintain(config, session_of("maintain", config, report), report, tables=arguments.tables)
    if arguments.json:
        printing.as_json(result.to_json())
    else:
        printing.maintained(result)


def register(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Register the tables' names in the catalogs, and print what was done."""
    from binlake import pipeline

    report = report_of(arguments)
    result = pipeline.register(config, catalog_session_of(config, report), report)
    if arguments.json:
        printing.as_json(result.to_json())
    else:
        print(result.headline)


def _register_if_due(config: PipelineConfig, report: Report, occasion: CatalogOccasion) -> None:
    """Register the tables' names where a catalog's differ, after a step that may have changed tables."""
    from binlake import pipeline
    from binlake.phases.register import registration_due

    if registration_due(config, occasion):
        pipeline.register(config, catalog_session_of(config, report), report, occasion)
