"""What readers of the lake see: names in a catalog, Iceberg tables, and values on the page in Airflow."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from binlake import names
from binlake.config import units
from binlake.config.mirrored_tables import ColumnPattern, columns_withheld, refuse_patterns
from binlake.config.orchestration import Duration
from binlake.config.section import Section, TablePattern
from binlake.config.yaml_file import CATALOG
from binlake.schema.table import TableName


def _is_pattern(database: str) -> str:
    try:
        database.format(source="", database="")
    except (KeyError, IndexError, ValueError):
        raise ValueError(f"{database!r} may hold {{source}} and {{database}}, and no other braces") from None
    return database


CatalogDatabase = Annotated[str, AfterValidator(_is_pattern)]
"""The name that a database gets in a catalog; may contain {source} and {database}."""


class CatalogConfig(Section):
    """The catalog in which tables are registered by name.

    metastore: ``thrift://host:port`` of a Hive metastore, or a folder with an embedded one, which only one process at a
    time can open; None for the catalog of Spark's own settings. name: the catalog's name in Spark. database: the name
    that a database gets in the catalog; may contain {source} and {database}. pinned_views: pinned versions of the lake
    get views, in databases of their own.
    """

    metastore: Annotated[str, Field(min_length=1)] | None = None
    name: Annotated[str, Field(pattern=CATALOG)] = "spark_catalog"
    database: CatalogDatabase = "{database}"
    pinned_views: bool = False

    @field_validator("metastore")
    @classmethod
    def _is_thrift_or_folder(cls, metastore: str | None) -> str | None:
        if metastore and "://" in metastore and not metastore.startswith("thrift://"):
            raise ValueError(f"{metastore!r} is neither thrift://host:port nor a folder")
        return metastore

    @property
    def identity(self) -> str:
        """The catalog's identity in metadata."""
        return f"{self.name} at {self.metastore}" if self.metastore else self.name


class IcebergCatalogConfig(Section):
    """A catalog of others in which published tables are registered.

    name: of the catalog. sqlite: the file of pyiceberg's SQL catalog. database: see CatalogConfig.
    """

    name: Annotated[str, Field(pattern=CATALOG)]
    sqlite: Annotated[str, Field(min_length=1)]
    database: CatalogDatabase = "{database}"

    @field_validator("sqlite")
    @classmethod
    def _is_file(cls, sqlite: str) -> str:
        if "://" in sqlite:
            raise ValueError(f"{sqlite!r} is no path of a file")
        return sqlite


_ROLE = r"^arn:[\w-]+:iam:[\w-]*:\w*:role/[^\s*?]{1,512}$"
"""The name of a role, as Amazon's IAM and stores like it write it."""


def _is_time(every: Any) -> Any:
    """Return when tables are published. Raises ValueError."""
    if every not in ("batch", "upkeep"):
        try:
            units.seconds_of(str(every))
        except ValueError:
            raise ValueError(f"found {every!r}; wanted batch, upkeep or a duration such as 5m") from None
    return every


class IcebergConfig(Section):
    """Which tables of the lake are Iceberg tables, too, of the same data files.

    every: whether a batch publishes what it changed, the first batch behind a time does so with what changed within it,
    or the upkeep does. version: of Iceberg's format. tables: patterns of the lake's tables, also of those beside
    mirrors, such as ``shop.orders__history``. catalogs: in which they are registered. vended_role: of S3, whose
    credentials ``binlake catalog`` gives to readers.
    """

    every: Annotated[Literal["batch", "upkeep"] | Duration, BeforeValidator(_is_time)] = "batch"
    version: Literal[2, 3] = 3
    tables: Annotated[list[TablePattern], Field(min_length=1)] = ["*.*"]
    catalogs: list[IcebergCatalogConfig] = []
    vended_role: Annotated[str, Field(pattern=_ROLE)] | None = None

    @property
    def every_seconds(self) -> float | None:
        """Return the time after which a table that changed is published; None where a batch or the upkeep does it."""
        return None if self.every in ("batch", "upkeep") else units.seconds_of(self.every)

    def includes(self, database: str, table: str) -> bool:
        """Return whether a table of the lake is published."""
        return names.matches_any(self.tables, database, table)


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
