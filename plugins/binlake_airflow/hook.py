"""The source's and the lake's connections, from Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from binlake.errors import BinlakeError, ConfigurationError
from binlake.storage import accounts
from binlake_airflow.compat import AirflowNotFoundException, BaseHook

if TYPE_CHECKING:
    import pymysql
    from pymysql.cursors import Cursor

    from binlake.config import PipelineConfig
    from binlake.source.endpoint import Endpoint
    from binlake.source.log import Origin


def lake_connection(connection_id: str) -> accounts.ConnectionFields:
    """Return the fields of a lake's connection. Raises ConfigurationError if it isn't defined."""
    try:
        connection = BaseHook.get_connection(connection_id)
    except AirflowNotFoundException:
        raise ConfigurationError(
            f"the lake's connection {connection_id!r} isn't defined in Airflow",
            remedy="add it (type Amazon Web Services) under Admin → Connections, or leave lake.connection out",
        ) from None
    return {"login": connection.login, "password": connection.password, "extra": connection.extra_dejson}


def password_of(connection_id: str) -> str | None:
    """Return the password of a connection; None where it isn't defined."""
    try:
        password: str | None = BaseHook.get_connection(connection_id).password
    except AirflowNotFoundException:
        return None
    return password


def ssh_fields(connection_id: str) -> dict[str, Any]:
    """Return the fields of the SSH connection that a server's names. Raises ConfigurationError if it isn't defined."""
    try:
        connection = BaseHook.get_connection(connection_id)
    except AirflowNotFoundException:
        raise ConfigurationError(
            f"the SSH connection {connection_id!r}, which the server's names, isn't defined in Airflow",
            remedy="add it (type SSH) under Admin → Connections, or take ssh out of the server's extra",
        ) from None
    return fields_of(connection)


def fields_of(connection: Any) -> dict[str, Any]:
    """Return the fields of an Airflow connection as the engine has them."""
    names = ("host", "port", "login", "password")
    return {**{name: getattr(connection, name) for name in names}, "extra": connection.extra_dejson}


class BinlakeHook(BaseHook):
    """Hook of a stock ``mysql`` connection, by its id. It uses pymysql, so that no compiled driver is needed.

    TLS is set in the connection's extra, as ``{"ssl": {"ca": "/path/to/ca.pem"}}``, or in the form's own fields.
    """

    conn_name_attr = "connection_id"
    default_conn_name = "mysql_default"
    conn_type = "mysql"
    hook_name = "MySQL"

    def __init__(self, connection_id: str = default_conn_name) -> None:
        super().__init__()
        self.connection_id = connection_id

    def endpoint(self) -> Endpoint:
        """Return address and account. Raises ConfigurationError if the connection isn't defined.

        Once the server refuses the account, the connection is looked up again.
        """
        from binlake.source.connection import renewed_by

        return renewed_by(self._looked_up)

    def _looked_up(self) -> Endpoint:
        from binlake.source.connection import endpoint

        try:
            connection = self.get_connection(self.connection_id)
        except AirflowNotFoundException:
            raise ConfigurationError(
                f"the connection {self.connection_id!r} isn't defined in Airflow",
                remedy="add it (type MySQL) under Admin → Connections, or set "
                f"AIRFLOW_CONN_{self.connection_id.upper()}='mysql://user:password@host:3306/'",
            ) from None
        return endpoint(
            host=connection.host,
            port=connection.port,
            user=connection.login,
            password=connection.password,
            extra=connection.extra_dejson,
            ssh_fields=ssh_fields,
        )

    def origin(self) -> Origin:
        """Return the connection's server, or the folder of binlog files if the id is a ``file://`` URI."""
        from binlake.source.log import folder_of

        return folder_of(self.connection_id) or self.endpoint()

    @classmethod
    def origin_of(cls, config: PipelineConfig) -> Origin:
        """Return the server of a source, or its folder of binlog files."""
        from binlake.source.endpoint import Endpoint
        from binlake.source.log import allowed

        origin = cls(config.source.connection).origin()
        return allowed(origin, config.source) if isinstance(origin, Endpoint) else origin

    @classmethod
    def replica_of(cls, config: PipelineConfig) -> Endpoint | None:
        """Return the server that a verification reads in the source's place; None where it reads the source itself."""
        from binlake.source.log import allowed

        connection = config.verify.connection
        return allowed(cls(connection).endpoint(), config.source) if connection else None

    def get_conn(self) -> pymysql.Connection[Cursor]:
        """Return a control connection: utf8mb4, UTC, autocommit."""
        from binlake.source.connection import connect

        return connect(self.endpoint())

    def test_connection(self) -> tuple[bool, str]:
        """Check whether this account can mirror the server, for the Test button under Admin → Connections.

        The message says what was checked, and what to fix. The preflight of each run also checks the tables, which
        aren't known here.
        """
        from binlake.doctor.server_checks import server_checks

        try:
            checks = server_checks(self.endpoint())
        except BinlakeError as error:
            return False, str(error)
        failed, warned = ([check.text for check in checks if check.ok is state] for state in (False, "warn"))
        if failed:
            return False, "\n".join(failed)
        checked = "; ".join(f"{check.name}: {check.found}" for check in checks[1:] if check.ok is True)
        said = [f"{checks[0].found} can be mirrored", *(f"but {text}" for text in warned), f"checked: {checked}"]
        return True, "\n".join(said)
