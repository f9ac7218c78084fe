"""Clients of the catalog: their secrets, and the tokens that they get for them.

A client is a line of a file that others can't read: its id, its secret, its scopes.

    analysts  6f1c0d3ab0e94d55a1f7c8b29e3d4f60  shop:shop.orders shop:shop.customers

A token says whose it is, until when it holds, and what it may read, and is signed with the client's secret: nothing is
kept between requests, and a client with a new secret has no more old tokens.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from binlake.catalog.access import Access, Scope
from binlake.errors import UsageError
from binlake.relay.http_frame import LEAST_SECRET, read_private

_ID = re.compile(r"[A-Za-z0-9_~-]{1,64}")
_SECRET = re.compile(rf"[A-Za-z0-9._~+/=-]{{{LEAST_SECRET},512}}")
_MOST_TOKEN = 4096
"""Characters of the longest token that is looked at."""
_PURPOSE = b"binlake catalog token\0"


@dataclass(frozen=True)
class CatalogClient:
    """A client with what it may read. secret: as it is sent."""

    id: str
    secret: str = field(repr=False)
    scopes: tuple[Scope, ...]

    @property
    def access(self) -> Access:
        """Return what the client may read."""
        return Access.of(self.scopes)

    def signature(self, signed: str) -> str:
        """Return the signature of a token's first parts, as its last part has it."""
        return _encoded(hmac.digest(self.secret.encode(), _PURPOSE + signed.encode(), hashlib.sha256))


@dataclass(frozen=True)
class CatalogToken:
    """A token that is signed by its client. scopes: those that it was asked for with. expires_s: seconds since 1970."""

    client: CatalogClient
    scopes: tuple[Scope, ...]
    expires_s: int

    @property
    def access(self) -> Access:
        """Return what the token may read."""
        return Access.of(self.client.scopes, self.scopes)

    @property
    def is_expired(self) -> bool:
        """Return whether the token's time is over."""
        return time.time() >= self.expires_s

    def __str__(self) -> str:
        claims = {"expires": self.expires_s, "scopes": [str(scope) for scope in self.scopes]}
        signed = f"{self.client.id}.{_encoded(json.dumps(claims).encode())}"
        return f"{signed}.{self.client.signature(signed)}"


class CatalogClients:
    """The clients of a catalog. token_seconds: how long a token holds."""

    def __init__(self, clients: Iterable[CatalogClient], token_seconds: int) -> None:
        self._clients = {client.id: client for client in clients}
        self.token_seconds = token_seconds

    @classmethod
    def read(cls, path: str, token_seconds: int) -> CatalogClients:
        """Read the file of clients. Raises UsageError, whose words have no secrets."""
        clients = list(_clients_of(path))
        if not clients:
            raise UsageError(f"{path} names no client", remedy="write ID SECRET SCOPE… into a line for each")
        for what in ("id", "secret"):
            if len({getattr(client, what) for client in clients}) != len(clients):
                raise UsageError(f"two clients in {path} have the same {what}", remedy=f"give each its own {what}")
        return cls(clients, token_seconds)

    def of_secret(self, secret: str, client_id: str = "") -> CatalogClient | None:
        """Return the client that has a secret; None where there is none, or it has another id. Takes as long for each
        secret."""
        given = hashlib.sha256(secret.encode()).digest()
        equal = [
            client
            for client in self._clients.values()
            if hmac.compare_digest(hashlib.sha256(client.secret.encode()).digest(), given)
        ]
        return next((client for client in equal if client_id in ("", client.id)), None)

    def issue(self, client: CatalogClient, scopes: Sequence[Scope]) -> CatalogToken:
        """Make a token. scopes: those that were asked for; without any, it may read what the client may."""
        return CatalogToken(client, tuple(scopes), int(time.time()) + self.token_seconds)

    def token(self, text: str) -> CatalogToken | None:
        """Return the token of a text, also one whose time is over; None where no client has signed it."""
        if len(text) > _MOST_TOKEN:
            return None
        signed, _, signature = text.rpartition(".")
        client_id, _, claims = signed.partition(".")
        client = self._clients.get(client_id)
        if client is None or not hmac.compare_digest(client.signature(signed).encode(), signature.encode()):
            return None
        values = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        return CatalogToken(client, tuple(map(Scope.parse, values["scopes"])), values["expires"])

    def access(self, bearer: str) -> Access | None:
        """Return what whoever sends a bearer token may read: a client's secret, or a token that it got for it; None
        where it is neither, or its time is over."""
        if client := self.of_secret(bearer):
            return client.access
        token = self.token(bearer)
        return None if token is None or token.is_expired else token.access


def _clients_of(path: str) -> Iterator[CatalogClient]:
    for number, line in enumerate(read_private(path), 1):
        try:
            words = line.decode().split()
        except UnicodeDecodeError:
            raise UsageError(f"line {number} of {path} isn't UTF-8") from None
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 3 or not _ID.fullmatch(words[0]) or not _SECRET.fullmatch(words[1]):
            raise UsageError(
                f"line {number} of {path} is no client",
                remedy="write ID SECRET SCOPE…: an id of letters, digits, _ and -, a secret of at least "
                f"{LEAST_SECRET} characters (openssl rand -hex 16), and what it may read, * for everything",
            )
        try:
            scopes = tuple(map(Scope.parse, words[2:]))
        except UsageError as error:
            raise UsageError(f"line {number} of {path}: {error.message}", remedy=error.remedy) from None
        yield CatalogClient(words[0], words[1], scopes)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
