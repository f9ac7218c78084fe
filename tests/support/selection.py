"""What each test needs, and which tests a run leaves out."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from binlake.report import counted
from servers import KINDS, RELEASES, Kind, installed

if TYPE_CHECKING:
    from mirror import Merge

TESTS = Path(__file__).parents[1]
FOLDERS = ("unit", "cases", "integration", "strangers", "ui", "faults")
"""In the order in which they run: quick tests first, and last a folder of many files, which keep all workers busy."""

NEEDS = {
    "server": frozenset({"shared_servers", "new_server"}),
    "spark": frozenset({"spark", "new_spark"}),
    "browser": frozenset({"browser"}),
    "broker": frozenset({"broker"}),
    "store_jars": frozenset({"store_jars"}),
    "environment": frozenset({"new_environment"}),
}
"""Marker → fixtures: a test that asks for one of them, or whose fixtures do, gets the marker."""

_IN_WORDS = {"spark": "Spark", "store_jars": "the jars of object stores", "environment": "an environment of its own"}

QUICK_SYNC = "test_constants_of_old_rows_are_written_without_spark"
"""The test that ``--quick`` runs although it needs a server and, for its snapshot, Spark: its syncs start none."""

FIRST_MERGES: tuple[Merge, ...] = ("rewrite", "spark", "mark")
"""Half of the tests that Spark would begin do so in the soak alone: a merge by Spark takes as long as ten others, and
what differs by it has tests of its own, test_merge_by_spark and the cases of MySQL among them."""
WITH_SPARK_S_PART = frozenset({"test_follow", "test_kill", "test_lost_executor", "test_random_walk"})
"""Files about kills and random changes, of whose tests none leaves Spark to the soak."""
IN_EVERY_ORDER = frozenset({"test_swapped_keys_and_several_tables_in_one_transaction"})
"""Tests that begin with each way of merging; others begin with one that their name decides."""

COPIED_ALONE = frozenset(
    {
        "test_bank", "test_cascades", "test_changed_settings", "test_engines", "test_errors", "test_follow",
        "test_foreign_vacuum", "test_generated_columns", "test_history_mode", "test_key_range", "test_lake_side",
        "test_log_mode", "test_maintain", "test_merge", "test_merge_without_key", "test_merged_sources",
        "test_merged_tables", "test_misplaced_rows", "test_moves", "test_newest_changes", "test_online_schema_change",
        "test_pins", "test_poison", "test_policies", "test_register", "test_replay", "test_reshape_in_process",
        "test_rewrite", "test_soft_delete", "test_status", "test_strangers_statements", "test_tool_names",
        "test_transactions", "test_watch",
    }
)  # fmt: skip
"""Files that are about what follows a snapshot: the process copies it by itself."""

NEWEST_MARIADB = "11.8"
ON_NEWEST_MARIADB = frozenset(
    {
        "test_cases", "test_generated_columns", "test_newest_mariadb", "test_virtual_columns", "test_catalog",
        "test_fidelity_matrix", "test_binlog_reader", "test_second_opinion", "test_snapshot", "test_stage", "test_sync",
        "test_merge", "test_rewrite", "test_verify", "test_feeds", "test_policies", "test_random_walk", "test_kill",
        "test_strangers", "test_bank", "test_pins", "test_misplaced_rows",
    }
)  # fmt: skip
"""Files whose tests use it, where SERVERS names none."""
OF_NEWEST_MARIADB = frozenset({"test_newest_mariadb"})
"""Those among them about what older ones don't have."""
SINCE_MARIADB_11_4 = frozenset({"test_misplaced_rows"})
"""Those of MySQL, and of what MariaDB has since 11.4."""

ON_EITHER_SERVER = frozenset(
    {
        "test_binlog_excluded", "test_bootstrap", "test_catalog", "test_catch_up", "test_changed_settings",
        "test_copies_beside", "test_ddl_times", "test_direct_reader", "test_engines", "test_errors",
        "test_feed_binlog", "test_feed_debezium", "test_feed_kafka", "test_feeds", "test_fencing", "test_few_rows",
        "test_first_commit", "test_folder", "test_foreign_vacuum", "test_history_mode", "test_iceberg", "test_init",
        "test_kept_log", "test_key_chunks", "test_key_range", "test_lake_side", "test_log_mode", "test_lost_beside",
        "test_lost_metadata", "test_maintain", "test_merge", "test_merge_without_key", "test_merged_tables",
        "test_misplaced_rows", "test_missed_changes", "test_network", "test_newest_changes", "test_open_log",
        "test_poison", "test_register", "test_relay", "test_replayed_beside", "test_reshape_in_process",
        "test_rewrite", "test_snapshot_in_process", "test_snapshot_versions", "test_soft_delete", "test_status",
        "test_tls", "test_tokens", "test_tool_names", "test_tunnel", "test_unreadable_tables", "test_verify_beside",
        "test_verify_by_executors", "test_verify_without_spark", "test_watch",
    }
)  # fmt: skip
"""Files about what the servers have in common: of a test that both could run, one of them does, and in the soak the
other. What depends on a server's grants, SQL, conditions, transactions or types runs on both."""


def in_the_soak_alone(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of ON_EITHER_SERVER on the servers that a run of all tests leaves out, as their names decide."""
    by_test: dict[str, dict[str, pytest.Item]] = {}
    for item in items:
        if item.path.stem not in ON_EITHER_SERVER or item.get_closest_marker("soak"):
            continue
        for server in _kinds(item):
            by_test.setdefault(item.nodeid.replace(server, "", 1), {})[server] = item
    pairs = ((test, of_servers) for test, of_servers in by_test.items() if len(of_servers) > 1)
    return [of_servers[sorted(of_servers)[zlib.crc32(test.encode()) % len(of_servers)]] for test, of_servers in pairs]


def place(item: pytest.Item) -> tuple[int, int]:
    """Return the rank of a test, smaller ones first: of its folder, and in the last folder of its file.

    There larger files, which mostly take longer, come first: so workers have nothing left to do at about the same time.
    """
    folder = item.path.relative_to(TESTS).parts[0]
    rank = FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)
    return rank, -_size(item.path) if folder == FOLDERS[-1] else 0


@cache
def _size(path: Path) -> int:
    return path.stat().st_size


def first_merges(test: str) -> dict[Merge, bool]:
    """Return the ways of merging with which a test begins, one run for each, and whether the soak alone has that run.

    test: its node id without parameters.
    """
    if test.rpartition("::")[2] in IN_EVERY_ORDER:
        return dict.fromkeys(FIRST_MERGES, False)
    number, way = divmod(zlib.crc32(test.encode()), len(FIRST_MERGES))
    first = FIRST_MERGES[way]
    if first != "spark" or number % 2 or Path(test.partition("::")[0]).stem in WITH_SPARK_S_PART:
        return {first: False}
    return {("rewrite", "mark")[number // 2 % 2]: False, first: True}


def reader(path: Path) -> Literal["jdbc", "direct"]:
    """Return who copies the snapshots of a file's tests of ``mirror``."""
    return "direct" if path.stem in COPIED_ALONE else "jdbc"


def needs(item: pytest.Item) -> list[str]:
    """Return the markers in NEEDS that a test's fixtures ask for."""
    fixtures = frozenset(getattr(item, "fixturenames", ()))
    return [need for need, bringing in NEEDS.items() if fixtures & bringing]


def uses_newest_mariadb(path: Path) -> bool:
    """Return whether "mariadb" is NEWEST_MARIADB in the tests of a file."""
    return not os.environ.get("SERVERS") and path.stem in ON_NEWEST_MARIADB


def reason_to_leave_out(item: pytest.Item, *, quick: bool) -> str:
    """Return why a run leaves a test out, or nothing."""
    if "BINLAKE_SOAK" not in os.environ and item.get_closest_marker("soak"):
        return "a part of the soak"
    if _is_of_another_server(item):
        return "about a server that SERVERS leaves out"
    if quick and getattr(item, "originalname", "") != QUICK_SYNC and (wanted := needs(item)):
        return "needs " + " and ".join(_IN_WORDS.get(need, f"a {need}") for need in wanted)
    return ""


def servers_of(items: Iterable[pytest.Item]) -> set[tuple[Kind, str]]:
    """Return the kind and release of each server that these tests need."""
    return {server for item in items for server in _servers(item)}


def servers_of_the_suite() -> set[tuple[Kind, str]]:
    """Return the kind and release of each server that a run of all tests needs."""
    newest: set[tuple[Kind, str]] = set() if os.environ.get("SERVERS") else {("mariadb", NEWEST_MARIADB)}
    return newest | set(RELEASES.items())


def missing(servers: Iterable[tuple[Kind, str]]) -> list[str]:
    """Return which of these servers aren't installed, as people write them."""
    return sorted(f"{kind} {release}".strip() for kind, release in servers if not installed(kind, release))


def as_lines(left_out: Counter[str]) -> list[str]:
    return [f"left out: {counted(count, 'test')}: {reason}" for reason, count in left_out.most_common()]


def _servers(item: pytest.Item) -> set[tuple[Kind, str]]:
    if "server" not in needs(item):
        return set()
    releases = {**RELEASES, "mariadb": NEWEST_MARIADB} if uses_newest_mariadb(item.path) else RELEASES
    return {(kind, releases[kind]) for kind in _kinds(item) or KINDS}


def _kinds(item: pytest.Item) -> set[Kind]:
    """Return the kinds of servers that a test's fixtures or parameters name; none where it uses any."""
    fixtures = getattr(item, "fixturenames", ())
    parameters = getattr(item, "callspec", None)
    values = [value for value in parameters.params.values() if isinstance(value, str)] if parameters else []
    kinds: tuple[Kind, ...] = ("mysql", "mariadb")
    return {kind for kind in kinds if f"{kind}_server" in fixtures or kind in values}


def _is_of_another_server(item: pytest.Item) -> bool:
    if item.path.stem in OF_NEWEST_MARIADB and os.environ.get("SERVERS") and RELEASES.get("mariadb") != NEWEST_MARIADB:
        return True
    if item.path.stem in SINCE_MARIADB_11_4 and "mariadb" in _kinds(item) and os.environ.get("SERVERS"):
        return not RELEASES.get("mariadb")  # the machine's own is older
    return not _kinds(item) <= set(KINDS)
