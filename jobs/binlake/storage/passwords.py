"""The passwords of connections that are keys of hashes.

As other secrets, one comes from ``AIRFLOW_CONN_{ID}``, or from a file that a variable names: Airflow passes it so to a
Spark job.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping

from binlake.errors import ConfigurationError
from binlake.storage.connection_text import parsed, variable_of

KEYS_FILE = "BINLAKE_HASH_KEYS_FILE"
"""Environment variable with the path of a file that holds passwords by connection."""


def from_environment(connection: str) -> str | None:
    """Return the password of a connection; None where it isn't defined. Raises ConfigurationError."""
    try:
        if path := os.environ.get(KEYS_FILE):
            with open(path, encoding="utf-8") as file:
                password = json.load(file).get(connection)
        else:
            text = os.environ.get(variable_of(connection))
            password = parsed(text)["password"] if text else None
    except (OSError, ValueError, TypeError, AttributeError):
        raise ConfigurationError(
            f"the connection {connection!r}, whose password is the key of a hash, can't be read",
            remedy="write it as Airflow's JSON form, or as generic://:password@ (percent-encode odd characters)",
        ) from None
    return None if password is None else str(password)


look_up: Callable[[str], str | None] = from_environment
"""Looks up a connection's password by its id; in Airflow's processes it is Airflow's own look-up."""


def hand_over(path: str, passwords: Mapping[str, str]) -> None:
    """Write passwords, by connection, into a new file that this account alone may read, for a process that is
    started."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(passwords, file)
