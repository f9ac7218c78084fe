"""Rows about runs: what each did, what comparisons with the server found, what repairs put right, and what catalogs
lack."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from binlake.store.typed_rows import OfTable, Row


@dataclass(frozen=True)
class TableRun:
    """A run's work on one table: counts of the log's mutations, and the table's position now.

    why_spark: why Spark did some of it; empty where it wasn't needed.
    """

    table: str
    status: str
    inserted: int
    updated: int
    deleted: int
    delta_version: int | None
    position: str
    seconds: float
    reason: str = ""
    remedy: str = ""
    newly_stopped: bool = False
    why_spark: str = ""


class RunRow(Row, table="runs"):
    """A run. tables, phases: JSON."""

    run: str
    kind: str
    batch: int | None = None
    started_us: int = 0
    ended_us: int = 0
    outcome: str
    position: str | None = None
    tables: str = "[]"
    phases: str = "{}"
    bytes: int = 0
    mutations: int = 0
    message: str = ""
    why_spark: str = ""

    @property
    def did(self) -> tuple[TableRun, ...]:
        """Return what a run that carried a batch did to tables."""
        return tuple(TableRun(**table) for table in json.loads(self.tables))

    @property
    def noted(self) -> list[dict[str, Any]]:
        """Return what a run without a batch noted of tables."""
        tables: list[dict[str, Any]] = json.loads(self.tables)
        return tables

    @property
    def seconds(self) -> dict[str, float]:
        """Return the phases, and how long each took."""
        seconds: dict[str, float] = json.loads(self.phases)
        return seconds


class VerifiedRow(OfTable, table="verified"):
    """A chunk of a table. batch: up to which it is known equal, None where it isn't. ranges: chunks are ranges of the
    key's first column, each from ``least`` on. at_us: when its rows were read last. problem: why the table isn't known
    equal, though these chunks were: its files can't be read, or hold other rows by now.
    """

    table_id: str
    database: str
    table: str
    chunk: int
    chunks: int
    ranges: bool = False
    least: str | None = None
    batch: int | None = None
    position: str | None = None
    delta_version: int | None = None
    shape: str | None = None
    rows: int | None = None
    checksum: str | None = None
    at_us: int | None = None
    problem: str | None = None


class RepairRow(OfTable, table="repairs"):
    """Rows that a repair put right, as they were before. key, columns, before (values, if they are kept): JSON."""

    repair: str
    run: str | None = None
    at_us: int
    table_id: str
    database: str
    table: str
    batch: int
    position: str | None = None
    delta_version: int | None = None
    kind: str
    rows: int | None = None
    key: str = "{}"
    columns: str = "[]"
    before: str | None = None


class VerificationRow(OfTable, table="verifications"):
    """A comparison of a table with the server. rows: the first that differ (kind, count, columns, key), JSON; keys are
    kept where the YAML's ``page.show_values`` says so, without values of masked columns.
    """

    verification: str
    at_us: int
    database: str
    table: str
    batch: int | None
    position: str | None = None
    delta_version: int | None = None
    source_rows: int | None = None
    lake_rows: int | None = None
    chunks: int | None = None
    differing: int | None = None
    equal: bool | None = None
    looked_chunks: int | None = None
    looked_rows: int | None = None
    seconds: float = 0.0
    differing_rows: int | None = None
    rows: str = "[]"


class UnfinishedRow(Row, table="unfinished_verifications"):
    """A verification of all rows that began and didn't come to its end. tables: their patterns, JSON."""

    tables: str
    begun_us: int


class CatalogProblemRow(Row, table="catalog_problems"):
    """Why a catalog of others lacks what the lake has. catalog: its identity. since_us: when that began."""

    catalog: str
    problem: str
    remedy: str
    since_us: int
