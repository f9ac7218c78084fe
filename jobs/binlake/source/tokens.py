"""Tokens in the place of a password: a new one is made for each connection that is opened.

A token is a password for minutes, and the server gets it as it is (mysql_clear_password): see Endpoint.secret.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from binlake.caches import once
from binlake.errors import BinlakeError, ConfigurationError, ConnectionFailed

COMMAND_SECONDS = 30.0
"""For which a command may run."""
LONGEST = 64 << 10
"""Bytes of a token; those of the services have a few thousand."""

_RDS_HOST = re.compile(r"\.([a-z0-9-]+)\.rds\.amazonaws\.com(?:\.cn)?$")
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/sqlservice.login"
_AZURE_SCOPE = "https://ossrdbms-aad.database.windows.net/.default"


@dataclass(frozen=True)
class PasswordToken:
    """How tokens are made: by a service's own library, or by a command that prints one.

    region: of aws-rds; empty, it is that of the host's name, or of AWS_REGION.
    """

    service: str = ""
    command: tuple[str, ...] = field(default=(), repr=False)
    region: str = ""

    @property
    def maker(self) -> str:
        """Return who makes the tokens, without the command's arguments."""
        return self.service or self.command[0]

    def extra(self) -> dict[str, Any]:
        """Return the fields of a connection's extra that say this."""
        return {"token": self.service or list(self.command), "token_region": self.region}

    def made(self, host: str, port: int, user: str) -> str:
        """Return a token for one connection. Raises ConfigurationError, and ConnectionFailed where none can be had."""
        try:
            token = _SERVICES[self.service](self, host, port, user) if self.service else _printed(self.command)
        except BinlakeError:
            raise
        except ImportError:
            raise ConfigurationError(
                f"the library that makes tokens of {self.service} isn't installed",
                remedy=f"pip install 'binlake[{_EXTRAS[self.service]}]', on Spark's executors too",
            ) from None
        except Exception as error:  # the libraries have no common error, and their texts may hold secrets
            raise ConnectionFailed(
                f"no token of {self.maker} for {user}@{host}:{port}: {type(error).__name__}",
                remedy="check that this machine's account may make one (binlake help access), then run again",
            ) from None
        if not token or len(token.encode()) > LONGEST or not token.isprintable():
            raise _no_token(self.maker)
        return token


def token_of(extra: dict[str, Any]) -> PasswordToken:
    """Return what a connection's extra says of tokens. Raises ConfigurationError, which doesn't repeat it."""
    asked = extra["token"]
    with suppress(ValueError):
        asked = json.loads(asked) if isinstance(asked, str) and asked.lstrip().startswith("[") else asked
    if isinstance(asked, str) and asked in _SERVICES:
        return PasswordToken(service=asked, region=str(extra.get("token_region") or ""))
    if isinstance(asked, list) and asked and all(isinstance(part, str) and part for part in asked):
        return PasswordToken(command=tuple(asked))
    raise ConfigurationError(
        "token in the connection's extra is neither a service nor a command",
        remedy=f"write {', '.join(_SERVICES)}, or a list of the program and its arguments, which no shell reads",
    )


def _aws(asked: PasswordToken, host: str, port: int, user: str) -> str:
    in_host = _RDS_HOST.search(host.lower())
    region = asked.region or (in_host[1] if in_host else "") or os.environ.get("AWS_REGION", "")
    token: str = _rds_client(region).generate_db_auth_token(DBHostname=host, Port=port, DBUsername=user)
    return token


@once
def _rds_client(region: str) -> Any:
    """Return a client, which signs without asking the service. Its credentials are botocore's: it renews them."""
    import botocore.session
    from botocore.exceptions import NoRegionError

    try:
        return botocore.session.get_session().create_client("rds", region_name=region or None)
    except NoRegionError:
        raise ConfigurationError(
            "the region of the RDS server isn't known: its host's name has none",
            remedy="write token_region into the connection's extra, or set AWS_REGION",
        ) from None


_renewing = threading.Lock()


def _google(asked: PasswordToken, host: str, port: int, user: str) -> str:
    from google.auth.transport.requests import Request

    credentials = _google_credentials()
    with _renewing:
        if not credentials.valid:  # or ends in minutes
            credentials.refresh(Request())
        return str(credentials.token)


@once
def _google_credentials() -> Any:
    import google.auth

    return google.auth.default(scopes=[_GOOGLE_SCOPE])[0]


def _azure(asked: PasswordToken, host: str, port: int, user: str) -> str:
    return str(_azure_credential().get_token(_AZURE_SCOPE).token)


@once
def _azure_credential() -> Any:
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential()


_SERVICES: dict[str, Callable[[PasswordToken, str, int, str], str]] = {
    "aws-rds": _aws,
    "gcp-cloudsql": _google,
    "azure": _azure,
}
_EXTRAS = {"aws-rds": "aws", "gcp-cloudsql": "gcp", "azure": "azure"}
"""The extra of this package that brings a service's library."""


def _printed(command: tuple[str, ...]) -> str:
    """Return what a command prints, without the line's end. Raises ConnectionFailed and ConfigurationError."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it may repeat what it was given
            start_new_session=True,  # so that all that it starts can be ended
        )
    except OSError as error:
        raise ConfigurationError(
            f"the command {command[0]} that makes tokens can't be started: {error.strerror}",
            remedy="fix token in the connection's extra; the program must be there on Spark's executors, too",
        ) from None
    with process:
        try:
            printed = _read(process)
            code = process.wait(COMMAND_SECONDS)
        except (TimeoutError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGKILL)
            raise ConnectionFailed(
                f"the command {command[0]} that makes tokens has not ended after {COMMAND_SECONDS:g} s",
                remedy="run it by hand under this account to see what it waits for, then run again",
            ) from None
    if code:
        raise ConnectionFailed(
            f"the command {command[0]} that makes tokens failed with code {code}",
            remedy="run it by hand under this account to see why, then run again",
        )
    return printed.decode("utf-8", "replace").rstrip("\r\n")


def _read(process: subprocess.Popen[bytes]) -> bytes:
    """Return what a process prints, and end it where that is longer than a token. Raises TimeoutError."""
    assert process.stdout is not None
    deadline, read = time.monotonic() + COMMAND_SECONDS, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(deadline - time.monotonic(), 0)):
            piece = os.read(process.stdout.fileno(), LONGEST)
            read += piece
            if not piece:
                return read
            if len(read) > 2 * LONGEST:
                os.killpg(process.pid, signal.SIGKILL)
                raise _no_token(str(process.args[0]))  # type: ignore[index]
    raise TimeoutError


def _no_token(maker: str) -> ConnectionFailed:
    return ConnectionFailed(
        f"{maker} made no token: its output is empty, has several lines, or over {LONGEST} bytes",
        remedy="let it print the token alone, then run again",
    )
