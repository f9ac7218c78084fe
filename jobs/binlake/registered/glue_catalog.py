"""Tables of a lake in AWS Glue's Data Catalog: a name is created once, and changed by its version.

Glue counts the versions of a table, and an update that names an older one is refused: then the table is read again.
Versions that are replaced aren't archived: each batch would leave one behind.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection

from deltalake.exceptions import DeltaError

from binlake.caches import Cache
from binlake.config.catalogs_config import GlueCatalogConfig
from binlake.delta import opened_tables, plain_tables
from binlake.errors import LakeError
from binlake.iceberg import table_metadata
from binlake.iceberg.table_metadata import address_of
from binlake.registered import glue_tables
from binlake.registered.glue_client import GlueClient, GlueRefused
from binlake.registered.glue_tables import TableInput
from binlake.registered.sqlite_catalog import CatalogName
from binlake.registered.timed_client import CatalogSilent
from binlake.storage import files

_TRIES = 5
_WRITTEN = "was written by others: its metadata file isn't one that binlake published"
_NONE, _THERE, _CHANGED = "EntityNotFoundException", "AlreadyExistsException", "ConcurrentModificationException"
_put: Cache[tuple[str, CatalogName], str] = Cache("tables in AWS Glue")
"""A hash of what each name was given last, by the catalog's identity and the name."""


class GlueCatalog:
    """The tables of a lake in Glue. root: of the folder below which tables are ours. others: the names of the YAML's
    other entries. believes: a name isn't asked for that this process gave just what it should have."""

    def __init__(
        self,
        entry: GlueCatalogConfig,
        root: str,
        seconds: float,
        *,
        others: Collection[str] = (),
        believes: bool = False,
    ) -> None:
        """seconds: for all requests together. Raises LakeError without credentials, and ConfigurationError without the
        library that finds them."""
        self._client, self._entry, self._root = GlueClient(entry, root, seconds), entry, address_of(root)
        self._others, self._believes = others, believes

    @property
    def silent(self) -> CatalogSilent | None:
        """Return why the service isn't asked any more, if it isn't."""
        return self._client.silent

    def put(self, name: CatalogName, path: str) -> str:
        """Let a name be the table at a path, as it is by now; return why not, where the name is another's.

        Done again after whatever was done of it. Nothing is done for a table that isn't published, where names are of
        published tables. Raises LakeError, OSError, ValueError, and what deltalake raises.
        """
        given = (self._entry.identity, name)
        if self._believes and (before := _put.get(given)) and before == _hash(wanted_of(self._entry, name, path)):
            return ""
        for _ in range(_TRIES):
            there = self._loaded(name)
            wanted = wanted_of(self._entry, name, path)  # behind it: what another publishes meanwhile is no other table
            if wanted is None:
                return ""
            if there is not None and (others := self._whose(there, path)):
                return f"{name} is {others}"
            if there is not None and self._is_written_by_others(there):
                return f"{name} {_WRITTEN}"
            try:
                self._write(name, there, wanted)
            except GlueRefused as error:
                if error.kind not in (_THERE, _CHANGED, _NONE):
                    raise
                continue
            _put.put(given, _hash(wanted))
            return ""
        raise LakeError(
            f"{name} is changed by others all the time, in the catalog {self._entry.name}",
            remedy="see who else writes it there, then run binlake register",
        )

    def drop(self, name: CatalogName, path: str) -> str:
        """Remove the name of a table that was at a path, if it is ours; return why not, where others wrote it. One that
        several sources fill stays while it is there. Raises LakeError."""
        _put.drop([(self._entry.identity, name)])
        there, place = self._loaded(name), table_metadata.normal_address(address_of(path))
        if there is None or self._whose(there, path) or glue_tables.place_of(there) != place:
            return ""
        if self._is_written_by_others(there):
            return f"{name} {_WRITTEN}"
        if not glue_tables.is_below(there, self._root) and files.has_folder(f"{path}/_delta_log"):
            return ""
        try:
            self._client.ask("DeleteTable", DatabaseName=name.namespace, Name=name.table)
        except GlueRefused as error:
            if error.kind != _NONE:
                raise
        return ""

    def _whose(self, there: TableInput, path: str) -> str:
        return glue_tables.whose(there, self._entry.name, self._others, self._root, address_of(path))

    def tidy(self, name: CatalogName, path: str) -> None:
        """Do nothing: Glue has no file in a table's folder."""

    def _is_written_by_others(self, there: TableInput) -> bool:
        """Return whether somebody committed to a published table by the catalog: to point it elsewhere would undo
        that."""
        file = str((there.get("Parameters") or {}).get(glue_tables.METADATA, ""))
        return bool(file) and not table_metadata.is_numbered(file.rpartition("/")[2])

    def _loaded(self, name: CatalogName) -> TableInput | None:
        """Return what Glue has under a name; None for nothing. Raises LakeError."""
        try:
            table: TableInput = self._client.ask("GetTable", DatabaseName=name.namespace, Name=name.table)["Table"]
        except GlueRefused as error:
            if error.kind == _NONE:
                return None
            raise
        return table

    def _write(self, name: CatalogName, there: TableInput | None, wanted: TableInput) -> None:
        """Create a table, or change the one that was read. Raises GlueRefused, LakeError."""
        if there is None:
            try:
                self._client.ask("CreateTable", DatabaseName=name.namespace, TableInput=wanted)
            except GlueRefused as error:
                if error.kind != _NONE:
                    raise
                self._make_database(name.namespace)
                self._client.ask("CreateTable", DatabaseName=name.namespace, TableInput=wanted)
            return
        changed = glue_tables.changed(there, wanted)
        if changed is not None:
            version = {"VersionId": there["VersionId"]} if there.get("VersionId") else {}
            self._client.ask(
                "UpdateTable", DatabaseName=name.namespace, TableInput=changed, SkipArchive=True, **version
            )

    def _make_database(self, name: str) -> None:
        try:
            self._client.ask("CreateDatabase", DatabaseInput={"Name": name})
        except GlueRefused as error:
            if error.kind != _THERE:
                raise


def wanted_of(entry: GlueCatalogConfig, name: CatalogName, path: str) -> TableInput | None:
    """Return what Glue should hold of the table at a path; None for one that isn't published, where names are of
    published tables. Raises LakeError, OSError, ValueError."""
    if entry.is_of_published:
        metadata = table_metadata.newest(path)
        if metadata is None:
            return None
        return glue_tables.of_iceberg(name.table, entry.name, metadata.content, address_of(metadata.path))
    try:
        table = opened_tables.newest(path)
    except DeltaError as error:
        raise LakeError(
            f"{path} can't be read: {type(error).__name__}", remedy="run binlake doctor, which says why"
        ) from error
    description = table.metadata().description or ""
    return glue_tables.of_delta(name.table, entry.name, address_of(path), plain_tables.fields_of(table), description)


def _hash(wanted: TableInput | None) -> str:
    return hashlib.sha256(json.dumps(wanted).encode()).hexdigest()
