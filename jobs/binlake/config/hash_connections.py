"""The connections whose passwords are keys of hashes."""

from __future__ import annotations

from collections.abc import Mapping

from binlake.errors import ConfigurationError
from binlake.schema import hash_key
from binlake.schema.hash_key import HashKey
from binlake.storage import passwords
from binlake.storage.connection_text import variable_of

_known: dict[str, HashKey] = {}


def know(keys: Mapping[str, HashKey]) -> None:
    """Make keys known, by connection, to a process that can't look them up: an executor's."""
    _known.update(keys)
    hash_key.use(keys.values())


def key(connection: str) -> HashKey:
    """Return the key that a connection's password is; a process looks it up once. Raises ConfigurationError."""
    if connection not in _known:
        password = passwords.look_up(connection)
        if not password:
            raise ConfigurationError(
                f"the key of a hash is missing: the connection {connection!r} isn't defined, or has no password",
                remedy=f"export {variable_of(connection)}='{{\"password\": …}}', or add it in Airflow",
            )
        _known[connection] = HashKey.of(password)
        hash_key.use([_known[connection]])
    return _known[connection]
