"""The address and account of a source, and connections to it."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pymysql
from pymysql.constants import CR, ER
from pymysql.cursors import Cursor

from binlake.errors import (
    AccessDenied,
    ConfigurationError,
    ConnectionFailed,
    LockTimeout,
    SourceError,
    UsageError,
)
from binlake.source import authentication, driver, error_numbers, session_settings
from binlake.source.endpoint import Endpoint, Renewal
from binlake.storage.connection_text import is_json, parsed, variable_of

if TYPE_CHECKING:
    from binlake.source.tokens import PasswordToken
    from binlake.source.tunnel import Tunnel

CONNECT_TIMEOUT = 20
"""Seconds for the TCP connection, and for each answer of the handshake."""
READ_TIMEOUT = 300
"""Seconds for each answer to a query; callers of longer queries give their own."""
WRITE_TIMEOUT = 60
"""Seconds for sending a command."""

CONNECTION_FILE = "BINLAKE_CONNECTION_FILE"
"""Environment variable with the path of a file that holds the connection; Airflow passes it so to a Spark job."""
REPLICA_FILE = "BINLAKE_REPLICA_CONNECTION_FILE"
"""The same for the replica that is compared in the source's place."""

_SCHEMES = ("mysql", "mariadb")
_TLS = {"ca", "cert", "key", "verify_mode", "check_hostname"}
TLS_FIELDS = {f"ssl_{name}": name for name in _TLS}
"""TLS settings as single fields of a connection's extra, as Airflow's form has them; an empty one counts as missing."""


def parse_airflow_connection(text: str, *, name: str) -> Endpoint:
    """Parse an Airflow connection as its environment variable holds it: a URI or JSON.

    Raises ConfigurationError, which doesn't repeat the text, for it holds a password.
    """
    scheme = "" if is_json(text) else _scheme(text)
    if scheme and scheme not in _SCHEMES:
        raise ConfigurationError(
            f"the connection {name} is of {scheme}://, and a source's is a MySQL or MariaDB server",
            remedy="write mysql://user:password@host:3306/ (percent-encode odd characters), or Airflow's JSON form",
        )
    try:
        fields = _fields(text)
        return endpoint(
            host=fields["host"],
            port=fields["port"],
            user=fields["login"],
            password=fields["password"],
            extra=fields["extra"],
        )
    except (ValueError, AttributeError, TypeError):
        raise ConfigurationError(
            f"the connection {name} can't be read",
            remedy="write mysql://user:password@host:3306/ (percent-encode odd characters), or Airflow's JSON form",
        ) from None


def _scheme(uri: str) -> str:
    """Return a URI's scheme; empty if the text is no URI."""
    scheme, separator, _ = uri.partition("://")
    return scheme.strip().lower() if separator and scheme.strip().isalnum() else ""


def _fields(text: str) -> dict[str, Any]:
    fields = parsed(text)
    if not is_json(text):
        _refuse_broken(text, fields["host"])
    return fields


def _refuse_broken(text: str, host: str | None) -> None:
    """Raise ValueError if a text is no URI, or if its password has an unquoted delimiter.

    The rest of such a password would be taken for the host, and shown in messages.
    """
    parts = urlsplit(text)
    if not (host and parts.scheme) or "@" in parts.path + parts.query + parts.fragment:
        raise ValueError("not a URI")


def fields_of(connection: str) -> dict[str, Any]:
    """Return the fields of any service's Airflow connection, from its environment variable.

    These are host, port, login and password (None if missing), and extra. Raises ConfigurationError, which repeats none
    of them.
    """
    variable = variable_of(connection)
    try:
        return _fields(os.environ[variable])
    except (KeyError, ValueError, AttributeError, TypeError):
        raise ConfigurationError(
            f"the connection {connection!r} isn't there, or is neither a URI nor Airflow's JSON form",
            remedy=f'export {variable}=\'{{"login": …, "password": …, "extra": {{…}}}}\'',
        ) from None


def _ssh_fields(connection: str) -> dict[str, Any]:
    """Return the fields of an SSH connection, by its id or as a URI. Raises ConfigurationError, ValueError."""
    return _fields(connection) if "://" in connection else fields_of(connection)


def endpoint(
    *,
    host: Any,
    port: Any,
    user: Any,
    password: Any,
    extra: dict[str, Any],
    ssh_fields: Callable[[str], dict[str, Any]] = _ssh_fields,
) -> Endpoint:
    """Return an endpoint with the fields of an Airflow connection. ssh_fields: returns those of the SSH connection that
    the extra names.

    Raises ConfigurationError for unknown TLS settings: ignoring one could leave a connection unencrypted that its owner
    thinks is encrypted.
    """
    tls = extra.get("ssl") or {}
    tls = json.loads(tls) if isinstance(tls, str) else tls
    unknown = {key for key in extra if key.lower().startswith("ssl")} - {"ssl", *TLS_FIELDS}
    unknown |= set(tls) - _TLS if isinstance(tls, dict) else {"ssl"}
    if unknown:
        raise ConfigurationError(
            f"the connection's extra has TLS settings that aren't known: {', '.join(sorted(map(str, unknown)))}",
            remedy='write {"ssl": {"ca": "/path/to/ca.pem"}}; there are also cert, key, verify_mode and check_hostname',
        )
    allowed = extra.get("allow_cleartext", False)
    if str(allowed).lower() not in ("true", "false"):
        raise ConfigurationError(
            "allow_cleartext in the connection's extra is neither true nor false", remedy="write true, or leave it out"
        )
    tls = {**tls, **{name: extra[field] for field, name in TLS_FIELDS.items() if extra.get(field) not in (None, "")}}
    token = _token_of(extra)
    if token and password:
        raise ConfigurationError(
            "the connection has a password, and its extra a token", remedy="take one of the two away"
        )
    if token and not tls:
        tls = {"verify_mode": "required"}  # by the authorities that the system trusts
    ssh = extra.get("ssh")
    through = _fields(json.dumps(ssh)) if isinstance(ssh, dict) else ssh_fields(str(ssh)) if ssh else None
    return Endpoint(
        host=host or "127.0.0.1",
        port=int(port or 3306),
        user=user or "",
        password=password or "",
        tls=tuple(sorted((str(key), str(value)) for key, value in tls.items())),
        allow_cleartext=str(allowed).lower() == "true",
        token=token,
        tunnel=_tunnel_of(through) if through else None,
    )


def _token_of(extra: dict[str, Any]) -> PasswordToken | None:
    """Return what a connection's extra says of tokens; None where it has none. Raises ConfigurationError."""
    if extra.get("token") in (None, ""):
        return None
    from binlake.source.tokens import token_of  # tokens and tunnels run programs, and few connections have any

    return token_of(extra)


def _tunnel_of(fields: dict[str, Any]) -> Tunnel:
    """Return the tunnel that an SSH connection describes. Raises ConfigurationError."""
    from binlake.source.tunnel import tunnel_of  # see _token_of

    return tunnel_of(fields)


def from_environment(connection: str, file_variable: str = CONNECTION_FILE) -> Endpoint:
    """Read the endpoint from the file that a variable names, else from ``AIRFLOW_CONN_{ID}``.

    Raises ConfigurationError. It is read again once its account is refused.
    """
    return renewed_by(lambda: _from_environment(connection, file_variable))


def renewed_by(look_up: Callable[[], Endpoint]) -> Endpoint:
    """Return the endpoint that is looked up, and is again once its account is refused. Raises as ``look_up``."""
    return replace(look_up(), renewal=Renewal(look_up))


def _from_environment(connection: str, file_variable: str) -> Endpoint:
    if path := os.environ.get(file_variable):
        return _from_file(path, file_variable)
    variable = variable_of(connection)
    text = os.environ.get(variable)
    if not text:
        raise ConfigurationError(
            f"the connection {connection!r} isn't defined: {variable} is not set",
            remedy=f"export {variable}='mysql://user:password@host:3306/'",
        )
    return parse_airflow_connection(text, name=variable)


def endpoint_of(uri: str) -> Endpoint:
    """Parse ``mysql://user:password@host:port/``. A URI without a password takes it from ``MYSQL_PWD``.

    Raises UsageError, which doesn't repeat the URI.
    """
    if _scheme(uri) not in _SCHEMES:
        raise UsageError(
            "the URI is neither a server's nor a file's",
            remedy="write mysql://user@host:3306/ (and the password into MYSQL_PWD), or file:///folder",
        )
    where = parse_airflow_connection(uri, name="URI")
    return where if where.password or where.token else replace(where, password=os.environ.get("MYSQL_PWD", ""))


def write_file(where: Endpoint, path: str) -> None:
    """Write an endpoint for a job into a new file that only this account may read."""
    more = {**(where.token.extra() if where.token else {}), **({"ssh": where.tunnel.fields()} if where.tunnel else {})}
    fields = {
        "host": where.host,
        "port": where.port,
        "login": where.user,
        "password": where.password,
        "extra": {"ssl": dict(where.tls), "allow_cleartext": where.allow_cleartext, **more},
    }
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(fields, file)


def _from_file(path: str, variable: str) -> Endpoint:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise ConfigurationError(
            f"can't read the connection's file {path}: {error.strerror}",
            remedy=f"unset {variable}, or let it name a file with Airflow's JSON form of the connection",
        ) from None
    return parse_airflow_connection(text, name=variable)


def connect(where: Endpoint, *, read_timeout: float = READ_TIMEOUT, **options: Any) -> pymysql.Connection[Cursor]:
    """Open a connection in utf8mb4, whose session depends on no default of the server (see ``session_settings``).

    It has no open transaction, and a deadline for everything it waits for. A refused account is looked up again. Raises
    ConnectionFailed, AccessDenied, and SourceError if TLS is demanded and can't be trusted, or the password itself is
    asked for and nothing proves the server.
    """
    account = where.newest
    try:
        return _opened(account, read_timeout, options)
    except AccessDenied as denied:
        if where.renewal is None:
            raise
        return _opened(where.renewal.renewed(account, denied), read_timeout, options)


def _opened(where: Endpoint, read_timeout: float, options: dict[str, Any]) -> pymysql.Connection[Cursor]:
    guarded = where.password and not where.token and not where.sends_password
    try:
        connection = driver.DriverConnection(
            host=where.host,
            port=where.port,
            user=where.user,
            password=where.secret().encode(),  # pymysql takes text for Latin-1, the server for UTF-8
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=CONNECT_TIMEOUT,
            write_timeout=CONNECT_TIMEOUT,  # TLS is agreed upon under it
            ssl=where.encryption.context() if where.encryption else None,
            auth_plugin_map=authentication.WITHHOLDING if guarded else None,
            init_command=session_settings.statement(),
            defer_connect=True,
            **options,
        )
        connection.enter(where.tunnel)
        connection.rollback()  # init_connect may have begun a transaction
    except pymysql.err.MySQLError as error:
        raise translate(error, where) from None
    # pymysql has the same timeouts for the handshake and for queries, which may take longer.
    connection._read_timeout = read_timeout  # type: ignore[attr-defined]
    connection._write_timeout = WRITE_TIMEOUT  # type: ignore[attr-defined]
    connection.encoding = driver.ANY_BYTES
    return connection


def translate(error: pymysql.err.MySQLError, where: Endpoint) -> SourceError:
    """Return the error of binlake's tree for the server's error."""
    code = error_numbers.number_of(error)
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    if untrusted := _untrusted(error, code, text):
        return SourceError(
            f"{where.address}: no TLS that can be trusted: {untrusted}",
            remedy="fix the server's certificate, or ssl in the connection: ca is to name the authority that signed"
            " it, and host a name that is in it",
        )
    if code in error_numbers.FULL:
        return ConnectionFailed(
            f"{where.user}@{where.address}: {text}",
            remedy="raise max_connections (or the account's limit) on the server, or run again later",
        )
    if code in error_numbers.DENIED:
        checked = f"rights of who makes the token ({where.token.maker})" if where.token else "password"
        return AccessDenied(
            f"{where.user}@{where.address}: {text}",
            remedy=_grant_lacking(text) or f"check the {checked}, and the account's grants: {_GRANTS_LISTED}",
        )
    if code in error_numbers.LOST or isinstance(error, pymysql.err.InterfaceError):  # asked on a connection lost before
        text = text or "the connection is lost"
        return ConnectionFailed(
            f"{where.address}: {text}",
            remedy="check that the server runs and that host and port in the connection are right, then run again",
        )
    if code == ER.LOCK_WAIT_TIMEOUT:
        return LockTimeout(
            f"{where.address}: another session locks a table that binlake reads: {text}",
            remedy="run again when that session has ended its LOCK TABLES, DDL or backup (SHOW PROCESSLIST shows it)",
        )
    return SourceError(
        f"{where.address}: error {code}: {text}",
        remedy="run binlake doctor; where it says the same, raise the limit or fix the setting that the server names",
    )


_LACKING = re.compile(r"you need \(at least one of\) the ([A-Z_, ]+) privilege")
_GRANTS_LISTED = "binlake help servers lists them"


def _grant_lacking(text: str) -> str:
    """Return the remedy where a server names the privileges of which an account needs one; empty where it names none.

    SUPER, which it names first, gives far more than is needed.
    """
    if not (match := _LACKING.search(text)):
        return ""
    least = sorted(match[1].split(", "), key="SUPER".__eq__)[0]
    return f"GRANT {least} ON *.* to the account; see all grants that it needs: {_GRANTS_LISTED}"


def _untrusted(error: pymysql.err.MySQLError, code: int, text: str) -> str:
    """Return why TLS was refused; empty for any other error."""
    cause = getattr(error, "original_exception", None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return cause.verify_message
    return text if code == CR.CR_SSL_CONNECTION_ERROR else ""
