"""Random rows and schema changes, synced at random points and cut off between commits: the mirror is equal after, so is
a server that applies what a feed wrote of it, and readers of Iceberg see what those of Delta see.

``BINLAKE_WALK_SECONDS`` a server (default 6) or, if more, ``BINLAKE_WALK_STATEMENTS`` say how far,
``BINLAKE_WALK_SEED`` which way. Iceberg's readers are asked behind some syncs: ``BINLAKE_WALK_READS`` of a hundred
(default 12).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING

import comparison
from applied import AS_REPLICA, apply
from binlake.delta import opened_tables
from binlake.iceberg import table_metadata
from feeding import carried, feed
from iceberg_readers import assert_same
from random_walk import Walk
from servers import Server

if TYPE_CHECKING:
    from mirror import Mirror

VERSIONS = {"mysql": 3, "mariadb": 2}
"""Of Iceberg's format."""
SECONDS = float(os.environ.get("BINLAKE_WALK_SECONDS", "6"))
STATEMENTS = int(os.environ.get("BINLAKE_WALK_STATEMENTS", "0"))
READS = int(os.environ.get("BINLAKE_WALK_READS", "12")) / 100
SEED = int(os.environ.get("BINLAKE_WALK_SEED", "20261"))


def test_a_random_walk_ends_equal(mirror: Mirror) -> None:
    mirror.options["iceberg"] = {"every": "batch", "version": VERSIONS[mirror.server.kind]}
    config = feed(mirror, format="binlog", sink=f"binlog://{mirror.folder}/out")
    mirror.follow_from_here()
    walk = Walk(mirror.server, mirror.database, SEED)
    end = time.monotonic() + SECONDS
    synced = 0
    print(f"seed {SEED}")
    try:
        while time.monotonic() < end or len(walk.log) < STATEMENTS or not synced:
            for _ in range(walk.random.randint(5, 60)):
                walk.step()
            mirror.sync_cut_off(walk.random, 0.1)
            _assert_equal(mirror, walk)
            synced += 1
            if walk.random.random() < READS:
                _assert_published(mirror, walk)
            if walk.random.random() < 0.5:
                carried(mirror, config)
        carried(mirror, config)
        _assert_applied(mirror, walk)
        assert _assert_published(mirror, walk), "no table was published"
        print(f"{len(walk.log)} statements, {synced} syncs")
    except BaseException:
        print(f"seed {SEED}, statement {len(walk.log)}; the last ones:", *walk.log[-80:], sep="\n")
        raise
    finally:
        walk.close()


def _assert_equal(mirror: Mirror, walk: Walk) -> None:
    rows = {row["table"]: row for row in mirror.metadata.read("watermarks") if row["status"] != "dropped"}
    assert {table: row["reason"] for table, row in rows.items() if row["status"] != "following"} == {}
    assert sorted(rows) == sorted(walk.tables)
    mirror.assert_equal(*walk.tables)


def _assert_published(mirror: Mirror, walk: Walk) -> int:
    """Each table that a batch changed is published at its newest version, and reads as that does; return how many."""
    paths = [mirror.path(table) for table in walk.tables]
    published = [path for path in paths if table_metadata.newest(path)]
    for path in published:
        assert_same(path)
    for path in set(paths).difference(published):
        assert opened_tables.newest(path).version() == 0, f"{path} isn't published"
    return len(published)


def _assert_applied(mirror: Mirror, walk: Walk) -> None:
    """An empty server that applies the feed's files has the same tables."""
    folder = mirror.folder / "out" / "tests"
    files = [folder / name for name in (folder / "binlog.index").read_text().split()]
    with Server(mirror.server.kind, server_id=2, **AS_REPLICA[mirror.server.kind]) as target:
        apply(target, *files)
        for table in walk.tables:
            here, there = (
                comparison.read_server(compared, mirror.database, table)[1] for compared in (target, mirror.server)
            )
            assert Counter(here) == Counter(there), table
