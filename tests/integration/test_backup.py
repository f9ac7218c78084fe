"""A lake is copied while its source is followed, and the copy continues as the page on backups says."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from binlake import pipeline
from binlake.errors import MetadataLost
from binlake.interrupts import Ending
from binlake.lake.opened_lake import place_of
from binlake.lease import lease
from binlake.maintain.table_upkeep import TablesUpkeep
from binlake.phases.follow import FollowPace
from binlake.phases.verification import VerifyRequest
from binlake.records import decisions, watermarks
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.spark.starting import no_session
from mirror import WAYS, Mirror, on_mariadb
from no_session import NoSession
from servers import Server
from writers import writing

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

SECONDS = 60
SOURCE = "tests"


@pytest.fixture
def mirror(server: Server, database: str, lake: Path) -> Mirror:
    """Two tables that follow, one of which is quiet."""
    mirror = Mirror(server, database, lake, None, options={"merge": WAYS[0]}, reader="direct")  # type: ignore[arg-type]
    mirror.execute(
        "CREATE TABLE busy (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE quiet (id INT PRIMARY KEY, v INT)",
        "INSERT INTO busy VALUES (1, 1)",
        "INSERT INTO quiet VALUES (1, 1)",
    )
    pipeline.bootstrap(mirror.config, mirror.origin, NoSession(), Report())  # type: ignore[arg-type]
    mirror.execute("INSERT INTO busy VALUES (2, 2)")
    sync(mirror)
    return mirror


def sync(mirror: Mirror) -> None:
    pipeline.sync(mirror.config, mirror.origin, NoSession(), Report())  # type: ignore[arg-type]


@contextmanager
def followed(mirror: Mirror) -> Iterator[None]:
    """Follow the source in a thread, until its end is asked for and the batch at work is recorded."""
    ending = Ending()
    pace = FollowPace(every=0.1, spark_idle=60, duration=SECONDS)
    arguments = (lambda: mirror.config, mirror.origin, NoSession(), Report(quiet=True), pace, ending)
    thread = threading.Thread(target=pipeline.follow, args=arguments)
    thread.start()
    before = batch(mirror)
    try:
        until(lambda: batch(mirror) > before + 2)
        yield
    finally:
        ending.ask()
        thread.join(SECONDS)


def batch(mirror: Mirror) -> int:
    return lease.read(mirror.metadata).batch


def until(is_so: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < SECONDS
        time.sleep(0.05)


def change(cursor: Cursor, number: int) -> None:
    cursor.execute("REPLACE INTO busy VALUES (%s, %s)", (number % 9, number))
    time.sleep(0.01)


def copied(mirror: Mirror, folder: Path) -> Mirror:
    return replace(mirror, folder=folder, options=dict(mirror.options))


def copy_logs(mirror: Mirror, copy: Mirror) -> None:
    """Copy metadata, what is staged, and the logs of all tables."""
    root = mirror.folder / SOURCE
    for folder in (root / "_binlake", root / "_staging", *root.glob("[!_]*/*/_delta_log")):
        shutil.copytree(folder, copy.folder / folder.relative_to(mirror.folder))


def copy_data(mirror: Mirror, copy: Mirror) -> None:
    """Copy what the tables' logs may name."""
    root = mirror.folder / SOURCE
    for file in sorted(path for path in root.glob("[!_]*/*/**/*") if path.is_file() and "_delta_log" not in path.parts):
        target = copy.folder / file.relative_to(mirror.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def assert_equal(mirror: Mirror) -> None:
    asked = VerifyRequest()
    verified = pipeline.verify(mirror.config, mirror.origin, NoSession(), Report(), asked)  # type: ignore[arg-type]
    assert verified.equal, verified.to_text()


def statuses(mirror: Mirror) -> dict[str, str]:
    return {row.table: row.status for row in watermarks.read(mirror.metadata)}


@on_mariadb
def test_a_copy_of_which_only_the_logs_need_a_pause_goes_on(mirror: Mirror, tmp_path: Path) -> None:
    copy = copied(mirror, tmp_path / "copy")
    with writing(mirror, change):
        with followed(mirror):
            pass
        copy_logs(mirror, copy)
        at_copy = batch(mirror)
        with followed(mirror):
            copy_data(mirror, copy)
        assert batch(mirror) > at_copy
    sync(copy)
    assert statuses(copy) == {"busy": "following", "quiet": "following"}
    assert_equal(copy)
    version = place_of(copy.config).at(batch=at_copy)
    assert len(version.arrow(f"{mirror.database}.quiet")) == 1
    assert_equal(mirror)


@on_mariadb
@pytest.mark.parametrize("upkeep", [False, True], ids=["sync first", "upkeep first"])
def test_a_table_that_is_ahead_of_restored_metadata_stops_and_is_named(
    mirror: Mirror, tmp_path: Path, upkeep: bool
) -> None:
    copy = copied(mirror, tmp_path / "copy")
    shutil.copytree(mirror.folder / SOURCE / "_binlake", copy.folder / SOURCE / "_binlake")
    mirror.execute("INSERT INTO busy VALUES (3, 3)")
    sync(mirror)
    shutil.copytree(mirror.folder / SOURCE / mirror.database, copy.folder / SOURCE / mirror.database)
    if upkeep:
        (busy, _) = TablesUpkeep(copy.config, no_session, copy.metadata, Report(), 60.0).tables(None)
        assert "of which metadata know nothing" in busy.left
    mirror.execute("INSERT INTO busy VALUES (4, 4)", "INSERT INTO quiet VALUES (4, 4)")
    sync(copy)
    assert statuses(copy) == {"busy": "stopped", "quiet": "following"}
    row = next(row for row in watermarks.read(copy.metadata) if row.table == "busy")
    assert "it has batch 2 up to" in (row.reason or "")
    assert "of which metadata know nothing: they are from an earlier time" in (row.reason or "")
    assert "binlake snapshot --config FILE --tables" in (row.remedy or "")
    decisions.resnapshot(copy.config, TableName(mirror.database, "busy"), Reason("a test", "it was restored"))
    sync(copy)
    assert statuses(copy) == {"busy": "following", "quiet": "following"}
    assert_equal(copy)


@on_mariadb
def test_metadata_of_different_times_are_refused(mirror: Mirror, tmp_path: Path) -> None:
    copy = copied(mirror, tmp_path / "copy")
    lease_then = Path(mirror.metadata.location("lease"))
    shutil.copytree(lease_then, copy.folder / SOURCE / "_binlake" / "lease")
    mirror.execute("INSERT INTO busy VALUES (3, 3)")
    sync(mirror)
    shutil.copytree(mirror.folder, copy.folder, ignore=lambda _, names: {"lease"} & set(names), dirs_exist_ok=True)
    with pytest.raises(MetadataLost, match="the lease knows batch 1, and watermarks batch 2"):
        sync(copy)
    pipeline.bootstrap(copy.config, copy.origin, NoSession(), Report())  # type: ignore[arg-type]
    mirror.execute("INSERT INTO busy VALUES (4, 4)")
    sync(copy)
    assert_equal(copy)
