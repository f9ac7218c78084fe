"""The keys of hashes, by their fingerprints.

Shapes name a key by its fingerprint. The process that reads values is given the keys themselves: from the environment,
or as a part of its task, as it is given the server's password.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from binlake.errors import ConfigurationError
from binlake.schema.mask import Mask

_BLOCK = 64
_NAMED = b"binlake: fingerprint of a key"


@dataclass(frozen=True)
class HashKey:
    """A key, which is never shown. block: as the hash takes it."""

    block: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: str) -> Self:
        """Return the key of a password."""
        key = secret.encode()
        return cls((hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0"))

    @property
    def fingerprint(self) -> str:
        """Return twelve hexadecimal digits, by which the key is recorded."""
        return hmac.new(self.block, _NAMED, hashlib.sha256).hexdigest()[:12]


_keys: dict[str, HashKey] = {}


def use(keys: Iterable[HashKey]) -> None:
    """Make keys known to this process."""
    _keys.update({key.fingerprint: key for key in keys})


def keys_of(masks: Iterable[Mask]) -> tuple[HashKey, ...]:
    """Return the keys of masks, for a task elsewhere. Raises ConfigurationError."""
    return tuple(key_of(fingerprint) for fingerprint in sorted({mask.key for mask in masks if mask.key}))


def key_of(fingerprint: str) -> HashKey:
    """Return the key with a fingerprint. Raises ConfigurationError where this process doesn't have it."""
    try:
        return _keys[fingerprint]
    except KeyError:
        raise ConfigurationError(
            f"the key {fingerprint} of a hash isn't there (columns in the YAML)",
            remedy="give the connection that the hash names its former password, or take a new snapshot of the table",
        ) from None
