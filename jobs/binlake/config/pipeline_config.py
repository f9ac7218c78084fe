"""The configuration of a source: one YAML, checked when it is read; unknown keys are errors."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, PrivateAttr, field_validator, model_validator

from binlake import names
from binlake.config import catalogs_config, sources_file, yaml_file
from binlake.config.catalogs_config import AnyCatalog, CatalogEntry, NamedCatalog, ReachedCatalog
from binlake.config.column_policies import (
    ColumnPolicies,
    ColumnPolicy,
    excluded_by,
    forms_any,
    lake_form_of,
    masks_of,
)
from binlake.config.feed_config import FeedConfig, names_once
from binlake.config.mirrored_tables import TablesConfig, columns_withheld, refuse_no_mode, refuse_patterns
from binlake.config.orchestration import AirflowConfig, FollowConfig, Schedule, VerifyConfig, VerifyWay
from binlake.config.policies import PoliciesConfig
from binlake.config.readers_config import IcebergConfig, PageConfig
from binlake.config.row_filters import RowFilter, condition_of, snapshot_condition_of
from binlake.config.schema_changes import SchemaChangeEntry, SchemaChangePolicy, policy_of
from binlake.config.section import Section
from binlake.config.shards import MergedTable, Shard, refuse_absent, refuse_same_tables, shard_of
from binlake.config.source_config import LakeConfig, SourceConfig
from binlake.config.spark_config import SparkConfig
from binlake.config.step_config import MaintainConfig, MergeConfig, SnapshotConfig
from binlake.config.table_modes import NO_MODES, BesideMode, HistoryMode, TableModes, beside_table, mirror_of
from binlake.config.yaml_file import YamlFile
from binlake.errors import ConfigurationError
from binlake.schema.invalid import InvalidDates, InvalidTexts, InvalidValues
from binlake.schema.lake_forms import LakeForm, in_form, server_shape
from binlake.schema.table import TableName, TableSchema
from binlake.storage import accounts, stores


class PipelineConfig(Section):
    """The configuration of one source: the whole YAML."""

    source: SourceConfig
    tables: TablesConfig
    lake: LakeConfig
    schedule: Schedule | None = None
    follow: FollowConfig | None = None
    spark: SparkConfig = SparkConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    merge: MergeConfig = MergeConfig()
    maintain: MaintainConfig = MaintainConfig()
    verify: VerifyConfig = VerifyConfig()
    catalog: list[AnyCatalog] = []
    iceberg: IcebergConfig | None = None
    airflow: AirflowConfig = AirflowConfig()
    page: PageConfig = PageConfig()
    invalid_dates: InvalidDates = "fail"
    invalid_text: InvalidTexts = "fail"
    policies: PoliciesConfig = PoliciesConfig()
    on_schema_change: list[SchemaChangeEntry] = []
    rows: list[RowFilter] = []
    columns: ColumnPolicies = []
    merge_tables: list[MergedTable] = []
    feeds: Annotated[list[FeedConfig], AfterValidator(names_once)] = []
    type_widening: bool = False
    """Use Delta's type widening instead of rewriting a table; not all readers know it (deltalake's don't)."""
    _answered: frozenset[str] = PrivateAttr(frozenset())
    """The patterns of columns that somebody's no leaves out; ``tables.exclude_columns`` has them, too."""
    _written: frozenset[str] = PrivateAttr(frozenset())
    """The patterns of columns that the YAML excludes."""

    @field_validator("catalog", mode="before")
    @classmethod
    def _are_entries(cls, catalog: Any) -> Any:
        return catalogs_config.entries_of(catalog)

    @field_validator("tables")
    @classmethod
    def _is_whole(cls, tables: TablesConfig) -> TablesConfig:
        refuse_patterns(tables.exclude_columns)
        refuse_no_mode(tables.modes)
        return tables

    @model_validator(mode="after")
    def _excludes_columns(self) -> Self:
        """Exclude what ``columns`` excludes as if ``tables.exclude_columns`` said it."""
        said = self.tables.exclude_columns
        if more := [pattern for pattern in excluded_by(self.columns) if pattern not in said]:
            tables = self.tables.model_copy(update={"exclude_columns": [*said, *more]})
            self.__dict__["tables"] = tables  # nobody has seen the model yet
        self._written = frozenset(self.tables.exclude_columns)
        return self

    @model_validator(mode="after")
    def _merges_tables(self) -> Self:
        """Let what is read of tables say how they are merged: a batch freezes it, and a change of it is noticed."""
        refuse_same_tables(self.merge_tables)
        refuse_absent(self.merge_tables, self.source.name)
        if self.merge_tables and self.type_widening:
            raise ValueError("merge_tables and type_widening don't go together: set type_widening to false")
        if self.tables.merge_tables != self.merge_tables:
            if self.tables.merge_tables:
                raise ValueError("tables.merge_tables isn't known; write merge_tables at the top of the YAML")
            self.__dict__["tables"] = self.tables.model_copy(update={"merge_tables": self.merge_tables})
        return self

    @model_validator(mode="after")
    def _has_catalogs(self) -> Self:
        catalogs_config.refuse_wrong(self.catalogs, publishes=self.iceberg is not None)
        return self

    @property
    def invalid(self) -> InvalidValues:
        """Return the policies on invalid dates and invalid text."""
        return InvalidValues(self.invalid_dates, self.invalid_text)

    def included(self, name: TableName) -> bool:
        """Return whether a table is mirrored."""
        return self.tables.included(name.database, name.table)

    def ghost(self, name: TableName) -> bool:
        """Return whether this may be an included table's ghost, which a schema change tool fills. A name doesn't make
        it one: see planner/tool_tables.py."""
        return self.tables.ghost_of(name.database, name.table) is not None

    def beside(self, name: TableName) -> tuple[BesideMode, ...]:
        """Return the modes that keep a table beside a table's mirror. Raises ConfigurationError."""
        return self.tables.beside(name.database, name.table)

    def history(self, name: TableName) -> HistoryMode | None:
        """Return how a table's history is kept; None where none is. Raises ConfigurationError."""
        if "history" not in self.beside(name):
            return None
        return self.tables.modes_of(name.database, name.table).history

    def mirror_modes(self, name: TableName) -> TableModes:
        """Return the modes that say how a table's mirror keeps rows. Raises ConfigurationError."""
        table = self.tables.ghost_of(name.database, name.table) or name.table
        if not self.tables.modes or not self.tables.included(name.database, table):
            return NO_MODES
        return self.tables.modes_of(name.database, table)

    def schema_changes(self, name: TableName) -> SchemaChangePolicy:
        """Return what becomes of a table when its columns change."""
        return policy_of(self.on_schema_change, name)

    def row_condition(self, name: TableName) -> str:
        """Return the condition of the rows that the lake has of a table; empty for all rows."""
        return condition_of(self.rows, name.database, name.table) if self.rows else ""

    def snapshot_condition(self, name: TableName) -> str:
        """Return the condition that a table's snapshots ask for beside that of its rows; empty without one."""
        return snapshot_condition_of(self.rows, name.database, name.table) if self.rows else ""

    def shard_of(self, name: TableName) -> Shard | None:
        """Return the place of a table in one that shows several; None for a table by itself."""
        return shard_of(self.tables.merge_tables, name, self.source.name) if self.tables.merge_tables else None

    def merged_table(self, name: TableName) -> MergedTable | None:
        """Return the entry that fills a table of the lake; None for a table that isn't merged."""
        return next((entry for entry in self.tables.merge_tables if entry.name == name), None)

    def is_listed(self, name: TableName) -> bool:
        """Return whether a table's mirror is a table of the lake's versions: a part of another one isn't."""
        return self.is_read(name) and self.shard_of(name) is None

    def is_read(self, name: TableName) -> bool:
        """Return whether readers of the lake look at the table's mirror: it has rows, and isn't the copy of a tool."""
        return not self.ghost(name) and self.mirror_modes(name).mirror

    def taken_by(self, name: TableName) -> str:
        """Return why a table can't be mirrored under its name, which a table beside a mirror has; empty where it can.

        Raises ConfigurationError.
        """
        if self.merged_table(name):
            return "its place in the lake is that of the table of this name into which merge_tables puts others"
        mirror = mirror_of(name.table)
        if mirror is None or mirror[1] not in self.tables.beside(name.database, mirror[0]):
            return ""
        table, mode = mirror
        return f"its place in the lake is that of the {mode} of {name.database}.{table}, which tables.modes asks for"

    def goes_when_dropped(self, name: TableName) -> bool:
        """Return whether a dropped table is removed from the lake: by policy, or as it isn't included. Included tables
        of schema change tools: see planner/tool_tables.py."""
        return self.policies.of(name).on_drop_table == "drop" or self.in_ghosts(name)

    def excluding(self, name: TableName, schema: TableSchema) -> TableSchema:
        """Return a table's schema with the columns that aren't mirrored marked, others masked or with their names
        and types in the lake, and set how its rows are kept. schema: with the server's names, or as this returned it.

        Raises ConfigurationError for an excluded column of the key, for a mask that a column can't have, for a hash's
        key that isn't there, and for a name or type that a column can't have.
        """
        from binlake.schema.virtual import leaving_out  # it knows expressions, of which the YAML has none

        schema = server_shape(schema)
        excluded = self.tables.excluded_columns(name.database, name.table)
        shape = schema.excluding(excluded)
        masks = masks_of(self.columns, name.database, name.table)
        if masks or schema.masks:
            from binlake.schema.masked_shapes import with_masks

            shape = with_masks(shape, {column: mask for column, mask in masks.items() if column not in excluded})
        if hidden := shape.excluded.union(shape.masks):
            from binlake.schema.withheld_values import without_values

            shape = without_values(shape, hidden)
        shape = leaving_out(in_form(shape, self.lake_form(name)))
        modes = self.mirror_modes(name)
        place = self.shard_of(TableName(name.database, self.tables.ghost_of(name.database, name.table) or name.table))
        return replace(
            shape,
            shard=place.recorded if place else (),
            invalid=self.invalid,
            soft_delete=modes.soft_delete,
            row_metadata=tuple(sorted(set(modes.row_metadata))),
            without_rows=not modes.mirror,
            where=self.row_condition(name),
            snapshot_where=self.snapshot_condition(name),
        )

    @property
    def withholds(self) -> bool:
        """Return whether anything of the server's tables may be withheld from the lake: columns, values or rows."""
        return bool(self.columns or self.tables.exclude_columns or self.rows)

    def withheld(self, name: TableName) -> frozenset[str]:
        """Return the names of a table's columns that are excluded or masked, in lower case."""
        masked = masks_of(self.columns, name.database, name.table).keys()
        return self.tables.excluded_columns(name.database, name.table) | masked

    def confidential(self, name: TableName) -> frozenset[str]:
        """Return those of a table's withheld columns that an entry withholds, not only somebody's no to a new
        column."""
        if not (answered := self._answered - self._written):
            return self.withheld(name)
        patterns = [pattern for pattern in self.tables.exclude_columns if pattern not in answered]
        masked = masks_of(self.columns, name.database, name.table).keys()
        return columns_withheld(patterns, name.database, name.table) | masked

    def lake_form(self, name: TableName) -> LakeForm:
        """Return the names and types of columns in the lake that aren't the server's."""
        return lake_form_of(self.columns, name.database, name.table)

    def masked_on_page(self, name: TableName) -> frozenset[str]:
        """Return the names of a table's columns, in lower case, whose values aren't shown: the server's and the
        lake's."""
        masked, named = self.page.masked(name), self.lake_form(name).names
        return masked | {named[column].lower() for column in masked if column in named}

    @property
    def reading(self) -> str:
        """Twelve hexadecimal digits of a hash of the settings that decide what is read of which table."""
        read = {"tables", "policies", "invalid_dates", "invalid_text"} | ({"rows"} if self.rows else set())
        settings = self.model_dump(include=read)
        if self.columns:
            settings["columns"] = [repr(policy.action()) for policy in self.columns]
            settings["masked"] = [policy.columns for policy in self.columns]
            if forms_any(self.columns):  # older versions of binlake don't know it
                settings["forms"] = [(policy.rename, policy.type) for policy in self.columns]
        if not self.merge_tables:
            del settings["tables"]["merge_tables"]  # older versions of binlake don't know it
        for entry in settings["tables"].get("merge_tables", ()):
            if not entry["sources"]:  # nor these
                del entry["sources"], entry["source_name_column"], entry["folder"]
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]

    def leaving_out(self, columns: Sequence[str]) -> Self:
        """Return a copy that excludes more columns, by somebody's no. columns: patterns, as ``tables.exclude_columns``
        has them, which it may have already where a manifest's settings are read."""
        if not columns:
            return self
        more = [column for column in columns if column not in self.tables.exclude_columns]
        tables = self.tables.model_copy(update={"exclude_columns": [*self.tables.exclude_columns, *more]})
        left_out = self.model_copy(update={"tables": tables})
        left_out._answered = self._answered.union(columns)
        return left_out

    def reading_as(
        self,
        tables: TablesConfig,
        invalid: InvalidValues,
        rows: Sequence[RowFilter] = (),
        columns: Sequence[ColumnPolicy] = (),
    ) -> Self:
        """Return a copy with other settings of what is read."""
        other = {"tables": tables, "invalid_dates": invalid.dates, "invalid_text": invalid.text, "rows": list(rows)}
        return self.model_copy(update={**other, "columns": list(columns)})

    def verified_by(self, way: VerifyWay) -> Self:
        """Return a copy whose tables are compared in this way."""
        return self.model_copy(update={"verify": self.verify.model_copy(update={"by": way})})

    @property
    def root(self) -> str:
        """The source's folder in the lake, ``{lake}/{source}``; relative paths start from the working directory."""
        return self.beside_root(self.source.name)

    def beside_root(self, name: str) -> str:
        """Return a folder of the lake: of a source, or of tables that several fill."""
        path = stores.canonical(self.lake.path.rstrip("/"))
        if "://" not in path:
            path = str(Path(path).expanduser().resolve())
        return f"{path}/{self._folder(name)}"

    @property
    def ghosts(self) -> str:
        """Folder for the ghost tables of schema change tools, away from the mirrored ones."""
        return f"{self.root}/_ghosts"

    def in_ghosts(self, name: TableName) -> bool:
        """Return whether a table's folder is in ``ghosts``: it has the name of a copy, and isn't included itself."""
        return self.tables.copied_by_name(name.database, name.table) is not None

    @property
    def catalogs(self) -> Sequence[CatalogEntry]:
        """Return all catalogs in which tables have names."""
        return (*self.catalog, *(self.iceberg.catalogs if self.iceberg else ()))

    @property
    def named_catalogs(self) -> Sequence[NamedCatalog]:
        """Return those of Delta tables that Spark reaches."""
        return [entry for entry in self.catalog if isinstance(entry, NamedCatalog)]

    @property
    def reached_catalogs(self) -> Sequence[ReachedCatalog]:
        """Return those that binlake reaches by itself."""
        return [entry for entry in self.catalogs if isinstance(entry, ReachedCatalog)]

    def table_path(self, name: TableName) -> str:
        """Return the path of a table's mirror in the lake."""
        if self.in_ghosts(name):
            return self._path_below(self.ghosts, name)
        if (place := self.shard_of(name)) is not None:
            return f"{self.merged_path(place.into, place.folder_of)}/{place.folder}"
        entry = self.merged_table(name)
        return self.merged_path(name, (entry.folder if entry else None) or "")

    def places_of(self, name: TableName, recorded: Sequence[str] | None) -> list[str]:
        """Return the paths that a table had under a shape: of its mirror, and of the merged table around it, if this
        source alone fills that. recorded: the shape's place in a merged table; None where it had none."""
        if not recorded:
            return [self._path_below(self.root, name)]
        into, column, value = recorded[:3]
        folder_of, source_column = recorded[3:] if len(recorded) > 3 else ("", "")
        shard = Shard(TableName.parse(into), column, value, folder_of, source_column, self.source.name)
        merged = self.merged_path(shard.into, folder_of)
        mirror = f"{merged}/{shard.folder}"
        return [mirror] if folder_of else [mirror, merged]

    def merged_path(self, name: TableName, folder: str) -> str:
        """Return the path of a merged table. folder: of one that several sources fill, in the lake; else empty."""
        return self._path_below(self.beside_root(folder) if folder else self.root, name)

    def _path_below(self, root: str, name: TableName) -> str:
        return f"{root}/{self._folder(name.database)}/{self._folder(name.table)}"

    def beside_path(self, name: TableName, mode: BesideMode) -> str:
        """Return the folder of the table that a mode keeps beside a table's mirror."""
        return f"{self.root}/{self._folder(name.database)}/{self._folder(beside_table(name.table, mode))}"

    def _folder(self, name: str) -> str:
        """Return a folder's name; only plain characters on HDFS, where deltalake 1.6 opens another path for others."""
        return names.folder(name, plain=stores.is_hdfs(self.lake.path))

    def metadata_path(self, table: str) -> str:
        """Return the path of a metadata table or file. table: its name."""
        return f"{self.root}/_binlake/{table}"

    def staging_path(self, *parts: str) -> str:
        """Return a path below the staging folder."""
        return "/".join([self.root, "_staging", *parts])


def load(path: str | Path) -> PipelineConfig:
    """Read one YAML, and let storage reach its lake by the connection that it names.

    Raises ConfigurationError, which names the file and each wrong key.

    Relative folders in it start from the project: the folder that contains ``dags``, if the file is below that, else
    the file's own folder. So they mean the same wherever commands and tasks are started.
    """
    config = config_of(yaml_file.read(path))
    accounts.use(config.root, config.lake.connection)
    for entry in config.merge_tables:
        for name in (entry.folder, *entry.sources) if entry.folder else ():
            accounts.use_unless_known(config.beside_root(name), config.lake.connection)
    return config


def config_of(file: YamlFile) -> PipelineConfig:
    """Return the configuration in a parsed YAML, read or not written yet. Raises ConfigurationError."""
    document = file.document
    _from_project(document.get("lake"), "lake.path", file.path)
    iceberg = document.get("iceberg")
    places = {"catalog": document.get("catalog")}
    places |= {"iceberg.catalogs": iceberg.get("catalogs")} if isinstance(iceberg, dict) else {}
    for place, written in places.items():
        for entry in written if isinstance(written, list) else [written]:
            for key in catalogs_config.PATHS:
                _from_project(entry, f"{place}.{key}", file.path)
    sources_file.put_in_place(document, file.path)
    return file.model(PipelineConfig)


def _from_project(section: object, place: str, file: Path) -> None:
    """Make a relative path in a section absolute; values of other types are left to the model's checks. place: of its
    key in the YAML, such as ``lake.path``. Raises ConfigurationError for one that leads nowhere."""
    key = place.rpartition(".")[2]
    if not isinstance(section, dict):
        return
    folder = section.get(key)
    if not isinstance(folder, str) or not folder or "://" in folder:
        return
    above = file.resolve().parents
    project = next((parent.parent for parent in above if parent.name == "dags"), above[0])
    try:
        section[key] = str((project / Path(folder).expanduser()).resolve())
    except (OSError, RuntimeError) as error:  # a loop of links, or a ~user that isn't there
        said = f"{file}: {place}: {folder!r} leads to no folder: {error}"
        raise ConfigurationError(said, remedy="name a folder that is there, or can be made") from error


FileStand = tuple[int, int, int]
"""Time of change, size and inode of a file."""


def file_stand(path: str | Path) -> FileStand | None:
    """Return a mark that differs once a file has other content; None where there is no file."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def files_stand(path: str | Path) -> dict[Path, FileStand | None]:
    """Return the marks of a source's YAML and of the files that it names."""
    return {file: file_stand(file) for file in sources_file.files_of(path)}


class YamlOnDisk:
    """A YAML that a long-lived process reads again once it has changed."""

    def __init__(self, path: str, config: PipelineConfig) -> None:
        self._path, self._config = path, config
        self._seen = files_stand(path)

    def read(self) -> PipelineConfig:
        """Return the configuration in the file as it is now. Raises ConfigurationError."""
        if any(file_stand(file) != stand for file, stand in self._seen.items()):
            seen = files_stand(self._path)
            self._config = load(self._path)
            self._seen = seen
        return self._config
