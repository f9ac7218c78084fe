"""Published tables in an Iceberg REST catalog: registered once, and then changed by commits.

A table is registered by a copy of its metadata: a catalog that fails to register it may delete the file that it was
given. The catalog writes its own metadata files beside the copy, in ``_iceberg/registered/{catalog}`` of the table's
folder, which the upkeep of published tables leaves alone.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

from binlake.config.catalogs_config import RestCatalogConfig
from binlake.errors import LakeError
from binlake.iceberg import table_metadata
from binlake.iceberg.table_metadata import REGISTERED, TableMetadata, address_of, normal_address
from binlake.registered import rest_commits
from binlake.registered.rest_client import CONFLICT, NOT_FOUND, RestClient, RestRefused
from binlake.registered.sqlite_catalog import CatalogName
from binlake.registered.timed_client import CatalogSilent
from binlake.storage import files

_COPY, _METADATA = "binlake-", ".metadata.json"
_TRIES = 5
_UNKNOWN_SECONDS = 6 * 3600
"""For how long a copy stays to which the catalog doesn't refer: it may be about to."""


class RestCatalog:
    """The tables of a lake in a catalog. root: of the folder below which tables are ours."""

    def __init__(self, entry: RestCatalogConfig, root: str, seconds: float) -> None:
        """seconds: for all requests together. Raises LakeError where the catalog can't be reached."""
        self._client, self._entry = RestClient(entry, seconds), entry
        self._root = f"{normal_address(address_of(root))}/"

    @property
    def silent(self) -> CatalogSilent | None:
        """Return why the catalog isn't asked any more, if it isn't."""
        return self._client.silent

    def put(self, name: CatalogName, path: str) -> str:
        """Let a name be what is published of the table at a path; return why not, where the name is another's.

        Done again after whatever was done of it. Nothing is done for a table that isn't published. Raises LakeError,
        OSError, ValueError.
        """
        for _ in range(_TRIES):
            loaded = self._loaded(name)
            ours = table_metadata.newest(path)  # behind it: what another publishes meanwhile is no other table
            if ours is None:
                return ""
            try:
                if loaded is None:
                    self._register(name, ours)
                    return ""
                theirs = loaded["metadata"]
                if not self._is_ours(theirs, path):
                    return f"{name} is another's table, at {theirs.get('location')}"
                if not self._is_followed(ours, theirs):
                    self._remove(name)
                    continue
                commit = rest_commits.commit_of(ours.content, theirs)
                if commit is not None:
                    self._client.ask("POST", "namespaces", name.namespace, "tables", name.table, body=commit)
                return ""
            except RestRefused as error:
                if error.status != CONFLICT:
                    raise
        raise LakeError(
            f"{name} is changed by others all the time, in the catalog {self._entry.name}",
            remedy="see who else writes it there, then run binlake register",
        )

    def drop(self, name: CatalogName, path: str) -> None:
        """Remove the name of a table that was at a path, if it is ours. One that several sources fill stays while it is
        there. Raises LakeError."""
        loaded = self._loaded(name)
        if loaded is None or not self._is_ours(loaded["metadata"], path):
            return
        is_below = f"{normal_address(address_of(path))}/".startswith(self._root)
        if _is_at(loaded["metadata"], path) and (is_below or not files.has_folder(f"{path}/_delta_log")):
            self._remove(name)

    def tidy(self, name: CatalogName, path: str) -> None:
        """Remove copies of a table's metadata that were registered and aren't needed any more. Raises LakeError,
        OSError."""
        folder, before = f"{path}/{REGISTERED}/{self._entry.name}", time.time() - _UNKNOWN_SECONDS
        copies = (file for file in files.list_files(folder) if file.name.startswith(_COPY))
        old = [file.name for file in copies if file.modified < before]
        loaded = self._loaded(name) if old else None
        if loaded is None or not _is_at(loaded["metadata"], path):
            return
        log = loaded["metadata"].get("metadata-log") or ()
        # By their names: catalogs write the folder's address in ways of their own.
        needed = {str(loaded.get("metadata-location")), *(each["metadata-file"] for each in log)}
        names = {address.rpartition("/")[2] for address in needed}
        for copy in old:
            if copy not in names:
                files.remove_file(f"{folder}/{copy}")

    def _is_ours(self, theirs: Mapping[str, Any], path: str) -> bool:
        """Return whether a table of the catalog is of this lake, or the one at a path: several sources fill some that
        are elsewhere."""
        location = f"{normal_address(str(theirs.get('location', '')))}/"
        in_lake = location.startswith(self._root) or _is_at(theirs, path)
        return in_lake and rest_commits.is_published_by_us(theirs)

    def _is_followed(self, ours: TableMetadata, theirs: Mapping[str, Any]) -> bool:
        """Return whether a name is of this table, and what is published continues what the catalog has."""
        return _is_at(theirs, ours.table_path) and rest_commits.continues(ours.content, theirs)

    def _loaded(self, name: CatalogName) -> dict[str, Any] | None:
        try:
            return self._client.ask("GET", "namespaces", name.namespace, "tables", name.table)
        except RestRefused as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def _register(self, name: CatalogName, ours: TableMetadata) -> None:
        """Register a table by a copy of its metadata. Raises RestRefused, LakeError, OSError."""
        folder = f"{ours.table_path}/{REGISTERED}/{self._entry.name}"
        copy = f"{folder}/{_COPY}{uuid.uuid4()}{_METADATA}"
        content = rest_commits.registered(ours.content, address_of(folder))
        files.make_readers_folder(folder)
        files.write_if_absent(copy, json.dumps(content, ensure_ascii=False))
        body = {"name": name.table, "metadata-location": address_of(copy)}
        try:
            try:
                self._client.ask("POST", "namespaces", name.namespace, "register", body=body)
            except RestRefused as error:
                if error.status != NOT_FOUND:
                    raise
                self._make_namespace(name.namespace)
                self._client.ask("POST", "namespaces", name.namespace, "register", body=body)
        except RestRefused as error:
            if error.status < 500 and error.status != CONFLICT:  # it is certain that nobody refers to it
                files.remove_file(copy)
            raise

    def _make_namespace(self, namespace: str) -> None:
        try:
            self._client.ask("POST", "namespaces", body={"namespace": [namespace], "properties": {}})
        except RestRefused as error:
            if error.status != CONFLICT:
                raise

    def _remove(self, name: CatalogName) -> None:
        """Remove a name, and no file. Raises LakeError."""
        place = ("namespaces", name.namespace, "tables", name.table)
        try:
            self._client.ask("DELETE", *place, query="?purgeRequested=false")
        except RestRefused as error:
            if error.status != NOT_FOUND:
                raise


def _is_at(theirs: Mapping[str, Any], path: str) -> bool:
    """Return whether a table of the catalog is the one at a path."""
    return normal_address(str(theirs.get("location", ""))) == normal_address(address_of(path))
