"""What readers of the lake see: Iceberg tables, and values on the page in Airflow."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from binlake import names
from binlake.config import units
from binlake.config.catalogs_config import SqliteCatalogConfig
from binlake.config.mirrored_tables import ELSEWHERE, ColumnPattern, columns_withheld, refuse_patterns
from binlake.config.orchestration import Duration
from binlake.config.section import Section, TablePattern
from binlake.schema.table import TableName

_ROLE = r"^arn:[A-Za-z0-9_-]+:iam:[A-Za-z0-9_-]*:[A-Za-z0-9_]*:role/[!-)+->@-~]{1,512}$"
"""The name of a role, as Amazon's IAM and stores like it write it: of ASCII alone. To compile 512 repetitions of any of
Unicode's characters takes 5 ms."""


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
    mirrors, such as ``shop.orders__history``. catalogs: older YAMLs have entries of kind sqlite here. vended_role: of
    S3, whose credentials ``binlake catalog`` gives to readers.
    """

    every: Annotated[Literal["batch", "upkeep"] | Duration, BeforeValidator(_is_time)] = "batch"
    version: Literal[2, 3] = 3
    tables: Annotated[list[TablePattern], Field(min_length=1)] = ["*.*"]
    catalogs: Annotated[list[SqliteCatalogConfig], Field(json_schema_extra=ELSEWHERE)] = []
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
