"""The configuration of a source: one YAML, checked when it is read; unknown keys are errors."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from binlake import names
from binlake.config import units, yaml_file
from binlake.config.feed_config import FeedConfig, names_once
from binlake.config.mirrored_tables import (
    ColumnPattern,
    TablesConfig,
    columns_withheld,
    refuse_no_mode,
    refuse_patterns,
)
from binlake.config.orchestration import AirflowConfig, FollowConfig, Schedule, VerifyConfig, VerifyWay
from binlake.config.policies import PoliciesConfig
from binlake.config.section import Section
from binlake.config.table_modes import NO_MODES, BesideMode, HistoryMode, TableModes, beside_table, mirror_of
from binlake.config.yaml_file import CATALOG, MEMORY, NAME, YamlFile
from binlake.errors import ConfigurationError
from binlake.schema.invalid import InvalidDates, InvalidTexts, InvalidValues
from binlake.schema.table import TableName, TableSchema
from binlake.storage import accounts, stores


class SourceConfig(Section):
    """One server, or a folder of its binlog files.

    connection: an Airflow connection's id, or ``file:///folder``. server_id: the first of ``server_ids`` replica ids
    that binlake may use; files need none. allow_cleartext: the password may be sent to a server that nothing proves.
    """

    name: Annotated[str, Field(pattern=NAME)]
    connection: Annotated[str, Field(min_length=1)]
    server_id: Annotated[int, Field(ge=1, le=2**32 - 1)] | None = None
    server_ids: Annotated[int, Field(ge=1, le=1024)] = 16
    allow_cleartext: bool = False

    @property
    def is_files(self) -> bool:
        """Return whether the source is a folder of binlog files instead of a server."""
        return self.connection.startswith("file:")

    @field_validator("server_id", "server_ids", mode="before")
    @classmethod
    def _is_no_word(cls, number: Any) -> Any:
        if isinstance(number, bool):  # pydantic takes YAML's yes for 1
            raise ValueError(f"found {str(number).lower()}; wanted a whole number")
        return number

    @field_validator("connection")
    @classmethod
    def _is_a_connection(cls, connection: str) -> str:
        if "://" in connection and not connection.startswith("file:"):
            scheme = connection.partition("://")[0]
            raise ValueError(
                f"found an address, {scheme}://…; wanted the id of an Airflow connection, such as shop_mysql, or "
                "file:///folder: the address and the password belong into that connection"
            )
        return connection

    @model_validator(mode="after")
    def _is_a_replica(self) -> Self:
        if self.server_id is None and not self.is_files:
            raise ValueError("server_id is missing; choose one that no server and no replica of this source has")
        return self

    def replica_id(self, reader: int = 0) -> int:
        """Return the server_id of one of the parallel readers."""
        return (self.server_id or 0) + reader % self.server_ids

    @property
    def replica_name(self) -> str:
        """The name under which the server lists binlake's readers (Host in SHOW REPLICAS)."""
        return f"binlake/{self.name}"


class LakeConfig(Section):
    """Where the lake is. path: a folder, or a URL: s3://, s3a://, abfss://, hdfs://.

    connection: id of an Airflow connection (type aws) with the account, instead of the AWS_* variables.
    """

    path: Annotated[str, Field(min_length=1)]
    connection: Annotated[str, Field(min_length=1)] | None = None

    @field_validator("path")
    @classmethod
    def _is_known_and_has_no_secret(cls, path: str) -> str:
        stores.refuse_unknown(path)
        stores.refuse_secrets(path)
        stores.refuse_misread(path)
        return path

    @model_validator(mode="after")
    def _is_s3(self) -> Self:
        if self.connection and stores.store_of(self.path) != "s3":
            raise ValueError("a connection is taken for s3:// and s3a:// alone; leave it out")
        return self


class SnapshotConfig(Section):
    """Settings of snapshots. connections: how many copy in parallel; None for as many as there are cores.

    reader: ``jdbc`` is Spark's; ``direct`` is binlake's own, with the same results for a part of the CPU time, and
    without Spark where that would be on this machine. max_writes_stopped: seconds for which a write on the
    server may wait for a lock of a snapshot or a verification.
    """

    connections: Annotated[int, Field(ge=1, le=1024)] | None = None
    reader: Literal["jdbc", "direct"] = "jdbc"
    max_writes_stopped: Annotated[float, Field(ge=0.5, le=60)] = 2


class MergeConfig(Section):
    """Settings of merges.

    without_spark_mb: a table is merged without Spark if at most so many megabytes (10**6 bytes) of it were staged; 0
    for none.
    """

    without_spark_mb: Annotated[float, Field(ge=0, le=1024)] = 128

    @property
    def without_spark_bytes(self) -> int:
        """Return ``without_spark_mb`` in bytes."""
        return units.bytes_of_mb(self.without_spark_mb)


class MaintainConfig(Section):
    """The upkeep of the lake, and how long its past is kept.

    history_hours: how many hours every table's earlier versions stay readable. every_version_hours: for how many hours
    that holds of each batch, and of older batches of seconds for the newest of each hour; None: of each. log_hours: how
    many hours Delta's logs keep commits. file_mb: target size of a data file in megabytes (10**6 bytes). sort: rows are
    sorted by an integer key if more than ``overlap`` files overlap in one range of keys. metadata_hours: how many hours
    replaced files of the metadata tables are kept. staging_hours: how many hours a recorded batch's staged mutations
    are kept, for a replay; 0 for only as long as they are needed. runs_days: how many days rows of runs, batches,
    snapshots and verifications are kept. quarantine_days: how many days the quarantine is kept. ddl_history_days: how
    many days DDL statements are kept; None for ever.
    """

    schedule: Schedule | None = "@daily"
    history_hours: Annotated[float, Field(ge=0)] = 168
    every_version_hours: Annotated[float, Field(ge=0)] | None = 24
    log_hours: Annotated[float, Field(ge=0)] = 720
    file_mb: Annotated[float, Field(gt=0, le=4096)] = 128
    sort: bool = True
    overlap: Annotated[int, Field(ge=2)] = 4
    metadata_hours: Annotated[float, Field(ge=0)] = 168
    staging_hours: Annotated[float, Field(ge=0)] = 0
    runs_days: Annotated[float, Field(gt=0)] = 90
    quarantine_days: Annotated[float, Field(gt=0)] = 90
    ddl_history_days: Annotated[float, Field(gt=0)] | None = None

    @property
    def file_bytes(self) -> int:
        """Return ``file_mb`` in bytes."""
        return units.bytes_of_mb(self.file_mb)

    @model_validator(mode="after")
    def _keeps_what_history_needs(self) -> Self:
        hours = {"log_hours": self.log_hours, "runs_days": self.runs_days * 24}
        if self.ddl_history_days is not None:
            hours["ddl_history_days"] = self.ddl_history_days * 24
        for name, kept in hours.items():
            if kept < self.history_hours:
                raise ValueError(f"{name} keeps less than history_hours ({self.history_hours:g}) promises; raise it")
        return self


class CatalogConfig(Section):
    """The catalog in which tables are registered by name.

    metastore: ``thrift://host:port`` of a Hive metastore, or a folder with an embedded one, which only one process at a
    time can open; None for the catalog of Spark's own settings. name: the catalog's name in Spark. database: the name
    that a database gets in the catalog; may contain {source} and {database}. pinned_views: pinned versions of the lake
    get views, in databases of their own.
    """

    metastore: Annotated[str, Field(min_length=1)] | None = None
    name: Annotated[str, Field(pattern=CATALOG)] = "spark_catalog"
    database: str = "{database}"
    pinned_views: bool = False

    @field_validator("metastore")
    @classmethod
    def _is_thrift_or_folder(cls, metastore: str | None) -> str | None:
        if metastore and "://" in metastore and not metastore.startswith("thrift://"):
            raise ValueError(f"{metastore!r} is neither thrift://host:port nor a folder")
        return metastore

    @field_validator("database")
    @classmethod
    def _is_pattern(cls, database: str) -> str:
        try:
            database.format(source="", database="")
        except (KeyError, IndexError, ValueError):
            raise ValueError(f"{database!r} may hold {{source}} and {{database}}, and no other braces") from None
        return database

    @property
    def identity(self) -> str:
        """The catalog's identity in metadata."""
        return f"{self.name} at {self.metastore}" if self.metastore else self.name


class PageConfig(Section):
    """Values of rows that the page in Airflow shows, only to users who may edit the source's sync DAG.

    show_values: show values of the newest mutations while they are staged. mask_columns: columns whose values are never
    shown, also not as keys of rows that a verification or a repair names.
    """

    show_values: bool = False
    mask_columns: list[ColumnPattern] = []

    @field_validator("mask_columns")
    @classmethod
    def _are_in_full(cls, columns: list[ColumnPattern]) -> list[ColumnPattern]:
        refuse_patterns(columns)
        return columns

    def masked(self, name: TableName) -> frozenset[str]:
        """Return the names of a table's masked columns, in lower case."""
        return columns_withheld(self.mask_columns, name.database, name.table)


_OF_THEIR_OWN = {
    "spark.master": "master",
    "spark.driver.memory": "driver_memory",
    "spark.executor.memory": "executor_memory",
    "spark.jars": "jars",
}
_SECRET = re.compile(r"(?i)(secret|password|token|access[.]?key|secret[.]?key)$")


class SparkConfig(Section):
    """Where and how Spark runs; in Airflow, the Spark connection's master overrides this one.

    master: None for inside the process. jars: paths or URLs of further jars for driver and executors. conf: any setting
    of Spark except those that keep the mirror exact (spark/settings.py lists them).
    """

    master: Annotated[str, Field(min_length=1)] | None = None
    driver_memory: Annotated[str, Field(pattern=MEMORY)] | None = None
    executor_memory: Annotated[str, Field(pattern=MEMORY)] | None = None
    jars: list[str] = []
    conf: dict[str, str | bool | int | float] = {}

    @field_validator("conf")
    @classmethod
    def _is_sparks(cls, conf: dict[str, Any]) -> dict[str, Any]:
        for key in conf:
            if not key.startswith("spark."):
                raise ValueError(f"{key!r} is no setting of Spark's; they begin with spark.")
            if own := _OF_THEIR_OWN.get(key):
                raise ValueError(f"{key!r} has a key of its own; write spark: {{{own}: …}}")
            if _SECRET.search(key):
                raise ValueError(
                    f"{key!r} is a secret, and this file is none; put it into spark-defaults.conf below SPARK_CONF_DIR"
                )
        return conf

    @property
    def settings(self) -> dict[str, str]:
        """``conf`` with values as Spark writes them."""
        return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in self.conf.items()}

    def history_of(self, application: str) -> str | None:
        """Return the address of an application in Spark's history server; None if ``conf`` names no server."""
        server = self.settings.get("spark.yarn.historyServer.address", "").rstrip("/")
        if not server or "$" in server:
            return None
        return f"{server if '://' in server else f'http://{server}'}/history/{application}/"


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
    catalog: CatalogConfig | None = None
    airflow: AirflowConfig = AirflowConfig()
    page: PageConfig = PageConfig()
    invalid_dates: InvalidDates = "fail"
    invalid_text: InvalidTexts = "fail"
    policies: PoliciesConfig = PoliciesConfig()
    feeds: Annotated[list[FeedConfig], AfterValidator(names_once)] = []
    type_widening: bool = False
    """Use Delta's type widening instead of rewriting a table; not all readers know it (deltalake's don't)."""

    @field_validator("tables")
    @classmethod
    def _is_whole(cls, tables: TablesConfig) -> TablesConfig:
        refuse_patterns(tables.exclude_columns)
        refuse_no_mode(tables.modes)
        return tables

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

    def is_read(self, name: TableName) -> bool:
        """Return whether readers of the lake look at the table's mirror: it has rows, and isn't the copy of a tool."""
        return not self.ghost(name) and self.mirror_modes(name).mirror

    def taken_by(self, name: TableName) -> str:
        """Return why a table can't be mirrored under its name, which a table beside a mirror has; empty where it can.

        Raises ConfigurationError.
        """
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
        """Return a table's schema with the columns that aren't mirrored marked, and set how its rows are kept.

        Raises ConfigurationError for an excluded column of the key.
        """
        from binlake.schema.virtual import leaving_out  # it knows expressions, of which the YAML has none

        shape = leaving_out(schema.excluding(self.tables.excluded_columns(name.database, name.table)))
        modes = self.mirror_modes(name)
        return replace(
            shape,
            invalid=self.invalid,
            soft_delete=modes.soft_delete,
            row_metadata=tuple(sorted(set(modes.row_metadata))),
            without_rows=not modes.mirror,
        )

    @property
    def reading(self) -> str:
        """Twelve hexadecimal digits of a hash of the settings that decide what is read of which table."""
        settings = self.model_dump(include={"tables", "policies", "invalid_dates", "invalid_text"})
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]

    def reading_as(self, tables: TablesConfig, invalid: InvalidValues) -> Self:
        """Return a copy with other settings of what is read."""
        return self.model_copy(update={"tables": tables, "invalid_dates": invalid.dates, "invalid_text": invalid.text})

    def verified_by(self, way: VerifyWay) -> Self:
        """Return a copy whose tables are compared in this way."""
        return self.model_copy(update={"verify": self.verify.model_copy(update={"by": way})})

    @property
    def root(self) -> str:
        """The source's folder in the lake, ``{lake}/{source}``; relative paths start from the working directory."""
        path = stores.canonical(self.lake.path.rstrip("/"))
        if "://" not in path:
            path = str(Path(path).expanduser().resolve())
        return f"{path}/{self._folder(self.source.name)}"

    @property
    def ghosts(self) -> str:
        """Folder for the ghost tables of schema change tools, away from the mirrored ones."""
        return f"{self.root}/_ghosts"

    def in_ghosts(self, name: TableName) -> bool:
        """Return whether a table's folder is in ``ghosts``: it has the name of a copy, and isn't included itself."""
        return self.tables.copied_by_name(name.database, name.table) is not None

    def table_path(self, name: TableName) -> str:
        """Return the path of a table's mirror in the lake."""
        root = self.ghosts if self.in_ghosts(name) else self.root
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
    return config


def config_of(file: YamlFile) -> PipelineConfig:
    """Return the configuration in a parsed YAML, read or not written yet. Raises ConfigurationError."""
    for section, key in (("lake", "path"), ("catalog", "metastore")):
        _from_project(file.document, section, key, file.path)
    return file.model(PipelineConfig)


def _from_project(document: dict[Any, Any], name: str, key: str, file: Path) -> None:
    """Make a relative folder of the YAML absolute; values of other types are left to the model's checks. Raises
    ConfigurationError for one that leads nowhere."""
    section = document.get(name)
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
        said = f"{file}: {name}.{key}: {folder!r} leads to no folder: {error}"
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


class YamlOnDisk:
    """A YAML that a long-lived process reads again once it has changed."""

    def __init__(self, path: str, config: PipelineConfig) -> None:
        self._path, self._config = path, config
        self._seen = file_stand(path)

    def read(self) -> PipelineConfig:
        """Return the configuration in the file as it is now. Raises ConfigurationError."""
        stand = file_stand(self._path)
        if stand != self._seen:
            self._config = load(self._path)
            self._seen = stand
        return self._config
