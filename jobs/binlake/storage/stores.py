"""Where a lake lies in an object store, told to each library that works on it: Spark, deltalake and those below.

Each store says so by the standard variables of its own (s3.py, azure.py), and is handed to all of them, so that none
looks elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from binlake.storage.azure import ADDRESS as _AZURE_ADDRESS
from binlake.storage.azure import Azure as Azure
from binlake.storage.azure import check as _check_azure
from binlake.storage.s3 import S3 as S3
from binlake.storage.s3 import Account as Account
from binlake.storage.s3 import check as _check_s3
from binlake.storage.s3 import has_profile as has_profile

_STORES = {"s3": "s3", "s3a": "s3", "abfs": "azure", "abfss": "azure"}
_FILE_SYSTEMS = ("file", "hdfs")
"""That Spark brings itself."""
_PLAIN_ON_HDFS = re.compile(r"hdfs://[A-Za-z0-9_.-]+(:\d+)?(/[A-Za-z0-9_.=~-]+)*/?")
_MISREAD = re.compile(r"[%\\?#*\[\]{}^|\x00-\x1f\x7f]")
_CANONICAL = {"s3": "s3a", "abfs": "abfss"}


class Store(Protocol):
    """How a store is reached. Two that say the same are one, and each library's object is made once for it."""

    def __hash__(self) -> int: ...

    @property
    def log_store(self) -> str:
        """The class that writes Delta's log there for Spark, safe for writers in several processes."""

    @property
    def authorities(self) -> str:
        """Path of a PEM file with those that are trusted in the place of the system's; empty for these."""

    def spark_settings(self) -> dict[str, str]:
        """Of Hadoop's file system and of Delta's log on it, without secrets; those that say nothing are empty."""

    def hadoop_account(self) -> dict[str, str]:
        """Hadoop's settings that are secrets: for its configuration of a session at work, which no page shows."""

    def variables(self) -> dict[str, str]:
        """For the processes of a cluster that work on the lake."""

    def storage_options(self) -> dict[str, str]:
        """deltalake's; a commit is one conditional PUT."""

    def obstore_arguments(self) -> dict[str, Any]:
        """Of obstore's store."""


def store_of(path: str) -> str | None:
    """``s3`` or ``azure``; None for a folder, and for file systems that Spark brings itself."""
    scheme, separator, _ = path.partition("://")
    return _STORES.get(scheme) if separator else None


def is_hdfs(path: str) -> bool:
    return path.startswith("hdfs://")


def at(path: str) -> Store:
    """For what lies at a path; S3 where that is no store, for other tables of the same session. Raises
    ConfigurationError."""
    return Azure.at(path) if store_of(path) == "azure" else S3.at(path)


def refuse_unknown(path: str) -> None:
    """Raises ValueError for a kind of store on which no mirror was ever proved, such as gs://."""
    scheme, separator, _ = path.partition("://")
    if separator and scheme not in (*_STORES, *_FILE_SYSTEMS):
        raise ValueError(
            f"{scheme}:// isn't supported, for two runs that race weren't proved safe there: use a folder that all "
            "hosts share, s3:// (or s3a://, also of a server of your own that speaks S3), or abfss://"
        )


def refuse_misread(path: str) -> None:
    """Raises ValueError for letters by which one of the libraries finds another folder than the others, or none.

    deltalake decodes %41, takes a backslash for a slash and panics at [ ] ^ |; ? or # ends an address; Hadoop expands
    [ ] { } *.
    """
    if misread := sorted(set(_MISREAD.findall(path))):
        raise ValueError(
            f"{path!r} has {' '.join(misread if misread[0] >= ' ' else map(repr, misread))}, with which Spark and "
            "deltalake find different folders; name one without % \\ ? # * [ ] { } ^ | and control characters (a "
            "symbolic link to it will do)"
        )


def canonical(path: str) -> str:
    """``s3://`` and ``s3a://`` are one place, as are ``abfs://`` and ``abfss://``; Hadoop, deltalake and we call it by
    the second."""
    scheme, separator, rest = path.partition("://")
    return f"{_CANONICAL.get(scheme, scheme)}{separator}{rest}" if separator else path


def container_and_name(path: str) -> tuple[str, str]:
    """Of an object: the bucket or container, and the name in it."""
    host, _, name = canonical(path).partition("://")[2].partition("/")
    return host.partition("@")[0], name


def refuse_secrets(path: str) -> None:
    """Raises ValueError where an address carries more than a place: it is told in logs, metadata and Spark's pages."""
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
    """Raises ConfigurationError where the variables, or those of its connection, can't be right for this lake."""
    if store_of(path) == "s3":
        _check_s3(path, environment)
    elif store_of(path) == "azure":
        _check_azure(path, environment)


def storage_options(path: str) -> dict[str, str] | None:
    """deltalake's for a table at this path. Raises ConfigurationError."""
    if store_of(path) is None:
        return None
    check(path)
    return at(path).storage_options()
