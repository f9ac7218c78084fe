"""The source of a YAML: its server or its folder of binlog files, and the lake that mirrors it."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from binlake import names
from binlake.config.section import Section, TablePattern
from binlake.config.yaml_file import NAME
from binlake.storage import stores


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
    without_deletion_vectors: patterns of the lake's tables, also of those beside mirrors, whose data files are written
    again where rows of them change.
    """

    path: Annotated[str, Field(min_length=1)]
    connection: Annotated[str, Field(min_length=1)] | None = None
    without_deletion_vectors: list[TablePattern] = []

    def has_vectors(self, database: str, table: str) -> bool:
        """Return whether rows of a table of the lake may be hidden by deletion vectors."""
        return not names.matches_any(self.without_deletion_vectors, database, table)

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
