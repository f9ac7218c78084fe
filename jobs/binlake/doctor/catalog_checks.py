"""Checks of the catalogs in which tables have names: whether each can be reached, and what it lacks by now."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from binlake.config import PipelineConfig
from binlake.config.catalogs_config import (
    CatalogEntry,
    GlueCatalogConfig,
    HiveCatalogConfig,
    RestCatalogConfig,
    SqliteCatalogConfig,
)
from binlake.doctor.check import Check
from binlake.errors import BinlakeError, LakeError
from binlake.records import catalog_problems
from binlake.registered.glue_client import GlueClient
from binlake.registered.rest_client import RestClient
from binlake.store.metadata import metadata_of

_PATIENCE = 5.0
_UNTIL_THEN = "until then tables are mirrored without names there"


def checks(config: PipelineConfig) -> Iterator[Check]:
    """Yield a check of each catalog of the YAML. What is registered there is changed by none."""
    if not config.catalogs:
        return
    try:
        lacking = {each.catalog: each for each in catalog_problems.read(config, metadata_of(config))}
    except BinlakeError:
        lacking = {}  # a check of the lake says why
    for entry in config.catalogs:
        name = f"catalog {entry.name}"
        try:
            said = _reached(entry, config.root)
        except BinlakeError as error:
            yield Check(name, "warn", error.message, error.remedy)
            continue
        if problem := lacking.get(entry.name):
            yield Check(name, "warn", f"{said}, and lacks something: {problem.problem}", problem.remedy)
        elif said:
            yield Check(name, True, said)


def _reached(entry: CatalogEntry, root: str) -> str:
    """Return that a catalog can be reached; empty where only Spark can tell. Raises LakeError, ConfigurationError."""
    if isinstance(entry, HiveCatalogConfig) and "://" in entry.metastore:
        return _listens(entry.metastore)
    if isinstance(entry, SqliteCatalogConfig):
        return _opens(entry.sqlite)
    if isinstance(entry, RestCatalogConfig):
        RestClient(entry)
        return f"{entry.uri} answers"
    if isinstance(entry, GlueCatalogConfig):
        GlueClient(entry, root).ask("GetDatabases", MaxResults=1)
        return f"Glue of {entry.region} answers"
    return ""


def _listens(address: str) -> str:
    """Return that something listens at a metastore. Raises LakeError."""
    try:
        host = urlsplit(address)
        socket.create_connection((host.hostname or "", host.port or 9083), timeout=_PATIENCE).close()
    except (OSError, ValueError) as error:
        raise LakeError(
            f"{address} can't be reached: {error}",
            remedy=f"start the metastore, or fix catalog.metastore in the YAML; {_UNTIL_THEN}",
        ) from None
    return f"{address} can be reached"


def _opens(path: str) -> str:
    """Return that a file of SQLite is there, or can be made. Raises LakeError."""
    remedy = f"see that its folder is there, and that this account may write it; {_UNTIL_THEN}"
    if not Path(path).exists():
        if not Path(path).parent.is_dir():
            raise LakeError(f"there is no folder for {path}", remedy=remedy)
        return f"{path} will be made"
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=_PATIENCE)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        raise LakeError(f"{path} can't be opened: {error}", remedy=remedy) from None
    return f"{path} can be opened"
