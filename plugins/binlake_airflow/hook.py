"""The source's connection, from Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from binlake.errors import BinlakeError, ConfigurationError
from binlake.storage import accounts

if TYPE_CHECKING:
    import pymysql
    from pymysql.cursors import Cursor

    from binlake.source.connection import Endpoint
    from binlake.source.log import Origin


def lake_connection(connection_id: str) -> accounts.ConnectionFields:
    """Of a lake's account. Raises ConfigurationError when the connection isn't defined."""
    try:
        found = BaseHook.get_connection(connection_id)
    except AirflowNotFoundException:
        raise ConfigurationError(
            f"the lake's connection {connection_id!r} isn't defined in Airflow",
            remedy="add it (type Amazon Web Services) under Admin → Connections, or leave lake.connection out",
        ) from None
    return {"login": found.login, "password": found.password, "extra": found.extra_dejson}


class BinlakeHook(BaseHook):
    """A stock ``mysql`` connection by its id, spoken to with pymysql: no compiled driver is needed.

    TLS stands in the connection's extra, as ``{"ssl": {"ca": "/path/to/ca.pem"}}``, or in the form's own fields.
    """

    conn_name_attr = "connection_id"
    default_conn_name = "mysql_default"
    conn_type = "mysql"
    hook_name = "MySQL"

    def __init__(self, connection_id: str = default_conn_name) -> None:
        super().__init__()
        self.connection_id = connection_id

    def endpoint(self) -> Endpoint:
        """Address and account. Raises ConfigurationError when the connection isn't defined."""
        from binlake.source.connection import endpoint

        try:
            found = self.get_connection(self.connection_id)
        except AirflowNotFoundException:
            raise ConfigurationError(
                f"the connection {self.connection_id!r} isn't defined in Airflow",
                remedy="add it (type MySQL) under Admin → Connections, or set "
                f"AIRFLOW_CONN_{self.connection_id.upper()}='mysql://user:password@host:3306/'",
            ) from None
        return endpoint(
            host=found.host,
            port=found.port,
            user=found.login,
            password=found.password,
            extra=found.extra_dejson,
        )

    def origin(self) -> Origin:
        """Where the source is: the connection's server, or the files that a ``file://`` URI in its place names."""
        from binlake.source.log import folder_of

        return folder_of(self.connection_id) or self.endpoint()

    def get_conn(self) -> pymysql.Connection[Cursor]:
        """A control connection: utf8mb4, UTC, autocommit."""
        from binlake.source.connection import connect

        return connect(self.endpoint())

    def test_connection(self) -> tuple[bool, str]:
        """For the Test button under Admin → Connections: whether this server can be mirrored by this account, else what
        mends it. Which tables are wanted isn't known there: the preflight of each run looks at them."""
        from binlake.doctor.server_checks import server_checks

        try:
            checks = server_checks(self.endpoint())
        except BinlakeError as error:
            return False, str(error)
        failed, warned = ([check.text for check in checks if check.ok is state] for state in (False, "warn"))
        if failed:
            return False, "\n".join(failed)
        return True, "\n".join([f"{checks[0].found} can be mirrored", *(f"but {text}" for text in warned)])
