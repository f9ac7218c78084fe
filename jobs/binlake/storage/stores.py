"""Object stores, for each library that works on a lake: Spark, deltalake, pyarrow and obstore.

Each kind of store is described by the standard variables of its own (s3.py, azure.py), which all libraries get, so that
none looks elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from binlake.retries import Retries, steady
from binlake.storage.azure import ADDRESS as _AZURE_ADDRESS, Azure as Azure, check as _check_azure
from binlake.storage.s3 import S3 as S3, Account as Account, check as _check_s3, has_profile as has_profile

_STORES = {"s3": "s3", "s3a": "s3", "abfs": "azure", "abfss": "azure"}
_FILE_SYSTEMS = ("file", "hdfs")
"""Schemes of file systems that Spark brings itself."""
_PLAIN_ON_HDFS = re.compile(r"hdfs://[A-Za-z0-9_.-]+(:\d+)?(/[A-Za-z0-9_.=~-]+)*/?")
_MISREAD = re.compile(r"[%\\?#*\[\]{}^|\x00-\x1f\x7f]")
DISKS = "file://"
"""The beginning of an address on a disk of this host."""
CONFLICTS = Retries(steady(0.1), attempts=20)
"""A write that S3 put off for another one under way."""
_CANONICAL = {"s3": "s3a", "abfs": "abfss"}


class Store(Protocol):
    """How an object store is reached. Equal ones are the same store: each library's object is made once for them."""

    def __hash__(self) -> int: ...

    @property
    def log_store(self) -> str:
        """The class that writes Delta's log there for Spark, safe for writers in several processes."""

    @property
    def authorities(self) -> str:
        """Path of a PEM file with the authorities that are trusted in the place of the system's; empty for these."""

    def spark_settings(self) -> dict[str, str]:
        """Return the settings of Hadoop's file system and of Delta's log on it, without secrets; a value is empty where
        nothing is set."""

    def hadoop_account(self) -> dict[str, str]:
        """Return Hadoop's secret settings, for its configuration of a running session, which no page shows."""

    def variables(self) -> dict[str, str]:
        """Return variables for the processes of a cluster that work on the lake."""

    def storage_options(self) -> dict[str, str]:
        """Return deltalake's options. A commit is one conditional PUT."""

    def obstore_arguments(self) -> dict[str, Any]:
        """Return the arguments of obstore's store."""


def store_of(path: str) -> str | None:
    """Return ``s3`` or ``azure``; None for a folder, and for file systems that Spark brings itself."""
    scheme, separator, _ = path.partition("://")
    return _STORES.get(scheme) if separator else None


def is_hdfs(path: str) -> bool:
    """Return whether a path lies in HDFS."""
    return path.startswith("hdfs://")


def at(path: str) -> Store:
    """Return how the store of a path is reached; S3 for other paths, as other tables of a session may lie there. Raises
    ConfigurationError."""
    return Azure.at(path) if store_of(path) == "azure" else S3.at(path)


def refuse_unknown(path: str) -> None:
    """Raise ValueError for a kind of store that was never tested with a mirror, such as gs://."""
    scheme, separator, _ = path.partition("://")
    if separator and scheme not in (*_STORES, *_FILE_SYSTEMS):
        raise ValueError(
            f"{scheme}:// isn't supported, for two runs that race weren't proved safe there: use a folder that all "
            "hosts share, s3:// (or s3a://, also of a server of your own that speaks S3), abfss:// or hdfs://; "
            "see binlake help stores"
        )


def refuse_misread(path: str) -> None:
    """Raise ValueError for characters with which the libraries find different folders, or none.

    deltalake decodes %41, takes a backslash for a slash and panics at [ ] ^ |; ? or # ends an address; Hadoop expands [
    ] { } *.
    """
    if misread := sorted(set(_MISREAD.findall(path))):
        raise ValueError(
            f"{path!r} has {' '.join(misread if misread[0] >= ' ' else map(repr, misread))}, with which Spark and "
            "deltalake find different folders; name one without % \\ ? # * [ ] { } ^ | and control characters (a "
            "symbolic link to it will do)"
        )


def canonical(path: str) -> str:
    """Return an address with the scheme that Hadoop and deltalake use: ``s3a://`` for ``s3://``, ``abfss://`` for
    ``abfs://``."""
    scheme, separator, rest = path.partition("://")
    return f"{_CANONICAL.get(scheme, scheme)}{separator}{rest}" if separator else path


def container_and_name(path: str) -> tuple[str, str]:
    """Return an object's bucket or container, and its name there."""
    host, _, name = canonical(path).partition("://")[2].partition("/")
    return host.partition("@")[0], name


def refuse_secrets(path: str) -> None:
    """Raise ValueError where an address says more than a place: logs, metadata and Spark's pages show it."""
    if "://" not in path:
        return
    parts, store = urlsplit(path), store_of(path)
    if parts.password is not None or "?" in path or (parts.username is not None and store == "s3"):
        raise ValueError("an address without account, password and '?', please: credentials come from the environment")
    if store == "azure" and not _AZURE_ADDRESS.fullmatch(parts.netloc):
        raise ValueError("the address must be like abfss://container@account.dfs.core.windows.net/folder")
    if store and not parts.netloc:
        raise ValueError("the address names no bucket")
    if is_hdfs(path) and not _PLAIN_ON_HDFS.fullmatch(path):
        raise ValueError(
            "an address hdfs://host:port/folder or hdfs://nameservice/folder, please, of ASCII's letters, digits and "
            "_ . = - ~ alone: deltalake finds no other folder there"
        )


def check(path: str, environment: Mapping[str, str] | None = None) -> None:
    """Raise ConfigurationError where the variables, or the lake's connection, can't be right for a lake."""
    if store_of(path) == "s3":
        _check_s3(path, environment)
    elif store_of(path) == "azure":
        _check_azure(path, environment)


def storage_options(path: str) -> dict[str, str] | None:
    """Return deltalake's options for a table at a path; None for a file system. Raises ConfigurationError."""
    if store_of(path) is None:
        return None
    check(path)
    return at(path).storage_options()
