"""The connections whose passwords are keys of hashes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from binlake.errors import BinlakeError, ConfigurationError, KeyUnavailable
from binlake.schema import hash_key
from binlake.schema.hash_key import HashKey
from binlake.storage import passwords
from binlake.storage.connection_text import variable_of

LOOKED_UP_EACH = 60.0
"""Seconds after which a process that works on looks a key up again."""
_known: dict[str, HashKey] = {}
_looked_up_at: dict[str, float] = {}


def know(keys: Mapping[str, HashKey]) -> None:
    """Make keys known, by connection, to a process that can't look them up: an executor's."""
    _known.update(keys)
    hash_key.use(keys.values())


def key(connection: str) -> HashKey:
    """Return the key that a connection's password is; a process looks it up once, until ``look_again``. Raises
    ConfigurationError, and KeyUnavailable."""
    if connection not in _known:
        know({connection: _looked_up(connection)})
    return _known[connection]


def look_again(connections: Iterable[str]) -> None:
    """Look keys up that this process looked up a minute ago or longer: their passwords may be others by now.

    Raises KeyUnavailable, also for a key that isn't there any more: an unreachable store of secrets looks like that.
    """
    for connection in connections:
        if time.monotonic() - _looked_up_at.get(connection, time.monotonic()) >= LOOKED_UP_EACH:
            try:
                know({connection: _looked_up(connection)})
            except ConfigurationError as error:
                raise KeyUnavailable(error.message, remedy=error.remedy) from None


def hand_over(path: str, connections: Iterable[str]) -> None:
    """Write the passwords of connections into a new file for a process that is started, see passwords.hand_over. Raises
    ConfigurationError, and KeyUnavailable, before there is a file."""
    passwords.hand_over(path, {connection: _password(connection) for connection in connections})


def _looked_up(connection: str) -> HashKey:
    password = _password(connection)
    _looked_up_at[connection] = time.monotonic()
    return HashKey.of(password)


def _password(connection: str) -> str:
    """Return a connection's password. Raises ConfigurationError where it has none, and KeyUnavailable."""
    try:
        password = passwords.look_up(connection)
    except BinlakeError:
        raise
    except Exception as error:  # Airflow's, or of its store of secrets; its text may show what is in there
        raise KeyUnavailable(
            f"the key of a hash can't be looked up: {type(error).__name__} for the connection {connection!r}",
            remedy="see whether Airflow, and what keeps its secrets, can be reached; then run again: nothing is lost",
        ) from None
    if not password:
        raise ConfigurationError(
            f"the key of a hash is missing: the connection {connection!r} isn't defined, or has no password",
            remedy=f"export {variable_of(connection)}='{{\"password\": …}}', or add it in Airflow",
        )
    return password
