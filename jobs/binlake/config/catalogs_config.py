"""The catalogs of others in which the lake's tables have names: ``catalog`` in the YAML, a list of entries by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from binlake.config.section import Section
from binlake.config.yaml_file import CATALOG, NAME, REGION, WEB
from binlake.names import plain_name

CatalogOccasion = Literal["batch", "snapshot"]
"""What a catalog follows."""


def _is_pattern(database: str) -> str:
    try:
        database.format(source="", database="")
    except (KeyError, IndexError, ValueError):
        raise ValueError(f"{database!r} may hold {{source}} and {{database}}, and no other braces") from None
    return database


def _place(address: str, advice: str) -> str:
    """Return an address that says nothing but a place: messages and metadata show it. advice: for one with a secret.
    Raises ValueError, which doesn't repeat it."""
    try:
        parts = urlsplit(address)
        is_place = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_place = False
    if "@" in unquote(address) or not is_place or parts.query or parts.fragment:
        raise ValueError(f"wanted http(s)://host[:port][/path] and nothing else: this file is no secret; {advice}")
    return address


CatalogDatabase = Annotated[str, AfterValidator(_is_pattern)]
"""The name that a database gets in a catalog; may contain {source} and {database}."""


class CatalogEntry(Section):
    """What all entries have.

    name: of the catalog. every: the catalog follows each batch, or only snapshots and ``binlake register``. database:
    the name that a database gets there; may contain {source} and {database}.
    """

    kind: str
    name: Annotated[str, Field(pattern=CATALOG)]
    every: CatalogOccasion = "batch"
    database: CatalogDatabase = "{database}"

    @property
    def identity(self) -> str:
        """The catalog's identity in metadata."""
        return self.name

    def database_of(self, source: str, database: str) -> str:
        """Return the name that a source's database gets in the catalog."""
        return self.database.format(source=source, database=database)

    def follows(self, occasion: CatalogOccasion | None) -> bool:
        """Return whether the catalog follows an occasion; all follow None, which is somebody's own wish."""
        return occasion in (None, "snapshot") or self.every == "batch"


class SparkCatalogConfig(CatalogEntry):
    """A catalog as Spark's own settings have it. name: Spark's. pinned_views: pinned versions of the lake get views, in
    databases of their own."""

    kind: Literal["spark"]
    name: Annotated[str, Field(pattern=CATALOG)] = "spark_catalog"
    pinned_views: bool = False


class HiveCatalogConfig(CatalogEntry):
    """A Hive metastore.

    metastore: ``thrift://host:port``, or a folder with an embedded one, which only one process at a time can open.
    name: the catalog's name in Spark, which registers the tables. pinned_views: see SparkCatalogConfig.
    """

    kind: Literal["hive"]
    name: Annotated[str, Field(pattern=CATALOG)] = "spark_catalog"
    metastore: Annotated[str, Field(min_length=1)]
    pinned_views: bool = False

    @field_validator("metastore")
    @classmethod
    def _is_thrift_or_folder(cls, metastore: str) -> str:
        if "://" in metastore and not metastore.startswith("thrift://"):
            raise ValueError(f"{metastore!r} is neither thrift://host:port nor a folder")
        return metastore

    @property
    def identity(self) -> str:
        """The catalog's identity in metadata."""
        return f"{self.name} at {self.metastore}"


NamedCatalog = SparkCatalogConfig | HiveCatalogConfig
"""A catalog of Delta tables that Spark reaches."""


class SqliteCatalogConfig(CatalogEntry):
    """A SQL catalog of pyiceberg, of published tables, whose older files go: so it follows each batch. sqlite: its
    file."""

    kind: Literal["sqlite"] = "sqlite"
    every: Literal["batch"] = "batch"
    sqlite: Annotated[str, Field(min_length=1)]

    @property
    def identity(self) -> str:
        """The catalog's identity in metadata."""
        return f"{self.name} in {self.sqlite}"

    @field_validator("sqlite")
    @classmethod
    def _is_file(cls, sqlite: str) -> str:
        if "://" in sqlite:
            raise ValueError(f"{sqlite!r} is no path of a file")
        return sqlite


class RestCatalogConfig(CatalogEntry):
    """An Iceberg REST catalog, of published tables.

    uri: the address below which ``/v1/config`` is. warehouse: of the catalog's own, where it has several. connection:
    id of an Airflow connection with the credentials; None for none.
    """

    kind: Literal["rest"]
    every: Literal["batch"] = "batch"
    uri: Annotated[str, Field(pattern=WEB)]
    warehouse: Annotated[str, Field(min_length=1)] | None = None
    connection: Annotated[str, Field(pattern=NAME)] | None = None

    @property
    def identity(self) -> str:
        """The catalog's identity in metadata."""
        return f"{self.name} at {self.uri}" + (f" in {self.warehouse}" if self.warehouse else "")

    @field_validator("uri")
    @classmethod
    def _is_place(cls, uri: str) -> str:
        return _place(uri, "put login and password into an Airflow connection, and its id into connection")


class GlueCatalogConfig(CatalogEntry):
    """The Data Catalog of AWS Glue. Credentials are AWS's own: of the environment, a profile, a role.

    format: whether names are of Delta tables, or of published ones. region: of AWS. endpoint: the address of a service
    that isn't at the region's usual one; None for that.
    """

    kind: Literal["glue"]
    format: Literal["delta", "iceberg"] = "delta"
    region: Annotated[str, Field(pattern=REGION)]
    endpoint: Annotated[str, Field(pattern=WEB)] | None = None

    @property
    def identity(self) -> str:
        """The catalog's identity in metadata."""
        return f"{self.name} in Glue of {self.region}" + (f" at {self.endpoint}" if self.endpoint else "")

    @property
    def is_of_published(self) -> bool:
        """Return whether names are of published tables."""
        return self.format == "iceberg"

    @field_validator("endpoint")
    @classmethod
    def _is_place(cls, endpoint: str | None) -> str | None:
        return endpoint and _place(endpoint, "credentials come from AWS's environment, profile or role")

    @model_validator(mode="after")
    def _follows_each_publication(self) -> Self:
        if self.is_of_published and self.every != "batch":
            raise ValueError("older metadata files of Iceberg tables go, so every must be batch with format: iceberg")
        return self


CommittedCatalog = RestCatalogConfig | GlueCatalogConfig
"""A catalog that is asked for one table at a time."""
ReachedCatalog = SqliteCatalogConfig | CommittedCatalog
"""A catalog that binlake reaches by itself."""
AnyCatalog = Annotated[
    HiveCatalogConfig | SparkCatalogConfig | SqliteCatalogConfig | RestCatalogConfig | GlueCatalogConfig,
    Field(discriminator="kind"),
]

PATHS = ("metastore", "sqlite")
"""Keys of entries that may be relative paths."""


def entries_of(written: Any) -> Any:
    """Return what a YAML says of catalogs as a list. A section alone is one entry, and without a kind one of Hive's or
    of Spark's, as older YAMLs have it."""
    if written is None:
        return []
    if not isinstance(written, Mapping):
        return written
    if "kind" in written:
        return [written]
    given = {key: value for key, value in written.items() if key != "metastore" or value is not None}
    return [{"kind": "hive" if "metastore" in given else "spark", **given}]


_SPARK = ("hive", "spark")


def is_of_published(entry: CatalogEntry) -> bool:
    """Return whether a catalog has names of published tables, not of the Delta tables."""
    return (isinstance(entry, GlueCatalogConfig) and entry.is_of_published) or entry.kind in ("sqlite", "rest")


def _own_name(entry: CatalogEntry) -> str:
    """Return what no other entry may have."""
    return entry.identity if entry.kind == "sqlite" else entry.name


def refuse_wrong(entries: Sequence[CatalogEntry], *, publishes: bool) -> None:
    """Raise ValueError where entries don't go together. publishes: whether the YAML publishes Iceberg tables."""
    # A REST catalog's name is also that of its folder in each table's folder.
    names = [(_SPARK if entry.kind in _SPARK else entry.kind, _own_name(entry)) for entry in entries]
    if twice := [name for (_, name), times in Counter(names).items() if times > 1]:
        raise ValueError(f"catalog has the entry {twice[0]!r} twice; give each a name of its own")
    if sum(entry.kind == "hive" for entry in entries) > 1:
        raise ValueError("catalog has two entries of kind hive, and Spark reaches one metastore; leave one out")
    # Glue's names have small letters, digits and _ alone.
    glue = [(each.region, plain_name(each.database)) for each in entries if isinstance(each, GlueCatalogConfig)]
    if twice := [database for (_, database), times in Counter(glue).items() if times > 1]:
        same = next(each.database for each in entries if plain_name(each.database) == twice[0])
        raise ValueError(f"catalog has two entries of kind glue with the database {same!r}; give each its own")
    for entry in entries:
        if is_of_published(entry) and not publishes:
            raise ValueError(f"the catalog {entry.name!r} is of Iceberg tables; add iceberg: {{every: batch}}")
