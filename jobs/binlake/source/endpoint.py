"""The address and account of a source.

The account may change while a process works: passwords are rotated, and two users take turns.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from binlake.errors import AccessDenied, ConnectionFailed, SourceError
from binlake.source.tls import Tls, carried

if TYPE_CHECKING:
    from binlake.source.tokens import PasswordToken
    from binlake.source.tunnel import Tunnel


@dataclass(frozen=True)
class Endpoint:
    """Address and account of a source. Its repr hides the password."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """pymysql's ssl settings from the connection's extras: ca, cert, key, verify_mode, check_hostname."""
    allow_cleartext: bool = False
    """Whether the password may be sent to a server that nothing proves."""
    token: PasswordToken | None = None
    """How a token is made in the place of the password, for each connection."""
    tunnel: Tunnel | None = None
    """The host through which each connection leads to the server; host and port are as that one sees them."""
    renewal: Renewal | None = field(default=None, repr=False, compare=False)
    """Looks the account up again once it is refused; None where it can't change."""

    def __reduce__(self) -> tuple[object, ...]:
        # It may be unpickled on another machine, so it carries the certificates, as it does the password.
        now = self.newest
        tls = tuple(map(carried, now.tls))
        way = now.tunnel and now.tunnel.carried()
        return (Endpoint, (now.host, now.port, now.user, now.password, tls, now.allow_cleartext, now.token, way))

    @property
    def newest(self) -> Endpoint:
        """Return the endpoint with the newest account that is known in this process."""
        return self.renewal.newest(self) if self.renewal else self

    @property
    def account(self) -> tuple[object, ...]:
        """Return what the server knows the account by."""
        return self.user, self.password, self.token

    def with_account_for(self, other: Endpoint) -> Endpoint:
        """Return another endpoint with this one's account; unchanged, if it is another server's."""
        same = (self.host, self.port) == (other.host, other.port)
        return replace(other, user=self.user, password=self.password, token=self.token) if same else other

    def secret(self) -> str:
        """Return the password, or a new token for one connection.

        Raises SourceError where a token would be sent to a server that isn't verified, and errors of making it.
        """
        if self.token is None:
            return self.password
        tls = self.encryption
        if tls is None or not tls.verified or not (tls.by_name or tls.ca):
            raise SourceError(
                f"{self.address}: a token is sent over verified TLS alone, and this connection asks for less",
                remedy="name the authority of the server's certificate in the connection's extra, ssl.ca, and leave"
                " verify_mode and check_hostname out (binlake help access)",
            )
        return self.token.made(self.host, self.port, self.user)

    @property
    def address(self) -> str:
        """Return ``host:port``."""
        return f"{self.host}:{self.port}"

    @property
    def is_this_machine(self) -> bool:
        """Return whether the host is a loopback address. Names aren't looked up, for answers can be forged.

        Behind a tunnel it is the tunnel's host, which has proved itself.
        """
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_proved(self) -> bool:
        """Return whether nobody else can pass for the server: it is this machine, or its certificate is verified."""
        return self.is_this_machine or (self.encryption is not None and self.encryption.verified)

    @property
    def sends_password(self) -> bool:
        """Return whether the password itself, not only a proof that it is known, may be sent to the server."""
        return self.is_proved or self.allow_cleartext

    @property
    def encryption(self) -> Tls | None:
        """Return the TLS settings; None without any. With a ``ca``, the server's certificate and name are verified."""
        settings = dict(self.tls)
        if not settings:
            return None
        verified = settings.get("verify_mode", "required").lower() not in ("none", "false")
        by_name = verified and settings.get("check_hostname", "true").lower() not in ("false", "0")
        return Tls(settings.get("ca"), settings.get("cert"), settings.get("key"), verified, by_name)


class Renewal:
    """Looks the connection up again once the server refuses its account, for all threads of this process.

    look_up: returns the endpoint as its place (Airflow, a file, the environment) has it now.
    """

    def __init__(self, look_up: Callable[[], Endpoint]) -> None:
        self._look_up = look_up
        self._looking_up = threading.Lock()
        self._newest: Endpoint | None = None

    def newest(self, known: Endpoint) -> Endpoint:
        """Return an endpoint with the newest account that is known."""
        return self._newest.with_account_for(known) if self._newest else known

    def renewed(self, refused: Endpoint, denied: AccessDenied) -> Endpoint:
        """Return the endpoint with another account than the refused one.

        Raises the server's refusal where its place has no other, or has another server's: that one gets nothing that
        is meant for this one. Raises ConnectionFailed where the place doesn't answer.
        """
        with self._looking_up:
            newest = self.newest(refused)
            if newest.account == refused.account:  # no other thread has looked it up
                self._newest = self._looked_up(denied)
                newest = self.newest(refused)
        if newest.account == refused.account:
            raise denied
        return newest

    def _looked_up(self, denied: AccessDenied) -> Endpoint:
        try:
            return self._look_up()
        except Exception as error:  # a backend of secrets may raise anything, and its text may hold anything
            raise ConnectionFailed(
                f"{denied.message}; and the connection can't be looked up again: {type(error).__name__}",
                remedy="check that the place of the connection (Airflow, its secrets backend) answers, then run again",
            ) from None
