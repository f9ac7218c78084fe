"""Accounts of object stores that Airflow connections hold, for lakes whose YAML names one.

Such a lake is reached with the variables made of its connection, in the place of the process's AWS_* variables:
one process, such as the page's, may work on lakes of several accounts. A connection is looked up again every minute.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from binlake.caches import Cache
from binlake.errors import ConfigurationError
from binlake.storage.connection_text import parsed, variable_of

CONNECTION_FILE = "BINLAKE_LAKE_CONNECTION_FILE"
"""Environment variable with the path of a file that holds the connection: how Airflow hands it to a Spark job."""

SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_OTHER_ACCOUNTS = (*SECRETS, "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE")
"""Variables that would name another account than the connection's."""
_EXTRA = {
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region_name": "AWS_REGION",
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
    "allow_http": "AWS_ALLOW_HTTP",
}
_FRESH = 60.0
"""Seconds for which a connection's variables are kept: accounts change while a process lives."""

ConnectionFields = Mapping[str, Any]
"""A connection's fields, as Airflow's JSON has them: login, password, extra."""

_connections: dict[str, str | None] = {}
"""Roots of lakes → the connection that each is reached by; None: by the environment's account. Written when a
YAML is loaded: a path shows its lake, on its way through Delta, Spark and staged manifests, but no account."""
_looked_up: Cache[str, tuple[float, dict[str, str]]] = Cache("accounts of connections")


def use(root: str, connection: str | None) -> None:
    """Reach the lake at ``root`` by a connection's account from here on; by the environment's with None."""
    _connections[root] = connection


def use_unless_known(root: str, connection: str | None) -> None:
    """Do the same for the lake of another source, unless its own YAML was loaded."""
    _connections.setdefault(root, connection)


def environment_of(path: str) -> Mapping[str, str]:
    """Return the AWS_* variables with which a path is reached. Raises ConfigurationError."""
    connected = variables_by_connection(path)
    if connected is None:
        return os.environ
    has_account = "AWS_ACCESS_KEY_ID" in connected
    own = {name: value for name, value in os.environ.items() if not has_account or name not in _OTHER_ACCOUNTS}
    return {**own, **connected}


def variables_by_connection(path: str) -> Mapping[str, str] | None:
    """Return the variables made of the connection of the lake in which a path lies; None where it has none.
    Raises ConfigurationError."""
    around = (root for root in _connections if path == root or path.startswith(f"{root}/"))
    connection = _connections.get(max(around, key=len, default=""))  # the nearest: a lake may lie in another's folder
    if connection is None:
        return None
    at, kept = _looked_up.get(connection) or (0.0, {})
    if not at or time.monotonic() - at > _FRESH:
        kept = variables(look_up(connection), connection)
        _looked_up.put(connection, (time.monotonic(), kept))
    return kept


def variables(fields: ConnectionFields, connection: str) -> dict[str, str]:
    """Return the variables made of an Airflow connection (type aws). Raises ConfigurationError, which repeats
    none of its values."""
    extra = fields.get("extra") or {}
    try:
        extra = dict(json.loads(extra) if isinstance(extra, str) else extra)
        services = dict(extra.pop("service_config", None) or {})
        extra = {**extra, **{key: value for key, value in dict(services.get("s3") or {}).items() if value}}
    except (ValueError, TypeError):
        raise _unreadable(connection) from None
    if unknown := sorted(set(extra) - set(_EXTRA)):
        raise ConfigurationError(
            f"the connection {connection!r} says what binlake doesn't know: {', '.join(map(str, unknown))}",
            remedy=f"a lake's may have login, password and in its extra {', '.join(_EXTRA)}; for a role or a "
            "profile leave lake.connection out and set the AWS_* variables: see binlake help stores",
        )
    named = {_EXTRA[key]: _text(value) for key, value in extra.items()}
    named |= {"AWS_ACCESS_KEY_ID": fields.get("login") or named.get("AWS_ACCESS_KEY_ID", "")}
    named |= {"AWS_SECRET_ACCESS_KEY": fields.get("password") or named.get("AWS_SECRET_ACCESS_KEY", "")}
    return {name: value for name, value in named.items() if value}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value or "")


def from_environment(connection: str) -> ConnectionFields:
    """Read a connection from the file that ``BINLAKE_LAKE_CONNECTION_FILE`` names, else from ``AIRFLOW_CONN_{ID}``.
    Raises ConfigurationError."""
    if path := os.environ.get(CONNECTION_FILE):
        try:
            with open(path, encoding="utf-8") as file:
                return _fields(file.read(), connection)
        except OSError as error:
            raise ConfigurationError(
                f"can't read the file of the connection {connection!r}: {error.strerror}",
                remedy=f"unset {CONNECTION_FILE}, or let it name a file with Airflow's JSON form of the connection",
            ) from None
    variable = variable_of(connection)
    if text := os.environ.get(variable):
        return _fields(text, connection)
    raise ConfigurationError(
        f"the lake's connection {connection!r} isn't defined: {variable} is not set",
        remedy=f"""export {variable}='{{"conn_type": "aws", "login": "…", "password": "…", "extra": {{…}}}}'""",
    )


look_up: Callable[[str], ConnectionFields] = from_environment
"""Looks up a connection by its id; in Airflow's processes it is Airflow's own look-up."""


def hand_over(path: str, connection: str) -> None:
    """Write a connection into a new file that this account alone may read, for ``from_environment`` of a process that
    is started. Raises ConfigurationError."""
    fields = look_up(connection)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump({name: fields.get(name) for name in ("login", "password", "extra")}, file)


def _fields(text: str, connection: str) -> ConnectionFields:
    try:
        return parsed(text)
    except (ValueError, TypeError, AttributeError):
        raise _unreadable(connection) from None


def _unreadable(connection: str) -> ConfigurationError:
    return ConfigurationError(
        f"the connection {connection!r} can't be read",
        remedy="write aws://key:secret@/?region_name=… (percent-encode odd characters), or Airflow's JSON form",
    )
