"""A way to the server through another host, by the ``ssh`` program: each connection has a process of its own.

``ssh -W`` joins its input and output to the server, so nothing listens on this machine, and the process ends with the
connection, whichever side is killed. The program rather than a library: what a company lays down for its bastions in
ssh's own configuration holds here, too, and the bytes are encrypted outside of this process.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from binlake.errors import ConfigurationError
from binlake.source.tls import PEM

CONNECT_SECONDS = 15
"""For which ssh waits for the bastion's answer: for less than the driver waits for the server's."""
_ALIVE_SECONDS, _ALIVE_COUNT = 15, 4
"""Seconds between two signs of life of the bastion, and how many may be missed."""
_GRACE_SECONDS = 0.5
"""For which a process may end by itself."""
_LINES_SAID = 2
"""Of what ssh said at last."""
_ALIAS = "binlake-bastion"
_ANSWER = "BINLAKE_SSH_ANSWER"
_ASKPASS = f"""#!/bin/sh
printf '%s\\n' "${_ANSWER}"
"""
"""The program that ssh asks for a password or a passphrase. ssh takes neither from its arguments or input."""


@dataclass(frozen=True)
class Tunnel:
    """A host that leads to the server, and the account there.

    key: a private key, as a path or as its content; without it ssh uses those that it finds. answer: its passphrase, or
    the account's password. host_key: the host's public key; without it ssh's own files must know it.
    """

    host: str
    port: int
    user: str
    key: str = field(default="", repr=False)
    answer: str = field(default="", repr=False)
    host_key: str = field(default="", repr=False)

    @property
    def address(self) -> str:
        """Return ``user@host:port``; without the parts that ssh's configuration gives."""
        account = f"{self.user}@" if self.user else ""
        return f"{account}{self.host}:{self.port}"

    def carried(self) -> Tunnel:
        """Return the tunnel with its key's content, for another machine. Raises ConfigurationError."""
        if not self.key or PEM in self.key:
            return self
        try:
            return replace(self, key=Path(self.key).expanduser().read_text(encoding="ascii", errors="replace"))
        except OSError as error:
            raise ConfigurationError(
                f"can't read the key of {self.address}: {error.strerror}",
                remedy="fix key_file in the extra of the SSH connection",
            ) from None

    def fields(self) -> dict[str, Any]:
        """Return the fields of an SSH connection that say this."""
        extra = {"private_key": self.carried().key, "host_key": self.host_key}
        return {"host": self.host, "port": self.port, "login": self.user, "password": self.answer, "extra": extra}

    def opened(self, host: str, port: int) -> Channel:
        """Begin a way to the server. Whether it leads there is seen by its first byte. Raises ConfigurationError."""
        program = shutil.which("ssh")
        if program is None:
            raise ConfigurationError(
                f"the way to {host}:{port} leads through {self.address}, and there is no program ssh",
                remedy="install OpenSSH's client here, and on Spark's executors",
            )
        carried = self.carried()
        folder = tempfile.TemporaryDirectory(prefix="binlake-ssh-", ignore_cleanup_errors=True)  # its owner's alone
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = subprocess.Popen(
                    [program, *_options(carried, Path(folder.name)), "-W", f"[{host}]:{port}", "--", self.host],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.PIPE,
                    env=_environment(carried, Path(folder.name)),
                    start_new_session=True,  # no terminal to ask on, and none whose Ctrl-C would end it
                )
        except BaseException:
            ours.close()
            folder.cleanup()
            raise
        return Channel(ours, process, folder)


class Channel:
    """A way that is open, or about to be. socket: leads to the server. said: what ssh said, once the way is closed."""

    def __init__(
        self, ours: socket.socket, process: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str]
    ) -> None:
        self.socket, self.said = ours, ""
        self._process, self._folder = process, folder

    def answered(self) -> None:
        """Note that the server has answered: ssh needs its files no more."""
        self._folder.cleanup()

    def close(self) -> None:
        """End the way."""
        with suppress(OSError):
            self.socket.close()
        if self._process.returncode is None:
            self._end()
        self._folder.cleanup()

    def _end(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            try:
                self._process.wait(_GRACE_SECONDS)  # it ends with its input, once the server hangs up
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            os.set_blocking(stream.fileno(), False)  # a program that ssh began may still hold it
            lines = (stream.read() or b"").decode("utf-8", "replace").split("\n")
        self.said = "; ".join([line.strip() for line in lines if line.strip()][-_LINES_SAID:])


def tunnel_of(fields: dict[str, Any]) -> Tunnel:
    """Return the tunnel that an SSH connection describes, by Airflow's names of its fields.

    ``no_host_key_check`` is ignored: the host's key is always verified. Raises ConfigurationError, which repeats no
    field.
    """
    extra = fields["extra"]
    host = fields.get("host")
    if not host:
        raise ConfigurationError("the SSH connection has no host", remedy="write the bastion's host into it")
    passphrase = extra.get("private_key_passphrase") or ""
    return Tunnel(
        host=str(host),
        port=int(fields.get("port") or 22),
        user=fields.get("login") or "",
        key=str(extra.get("private_key") or extra.get("key_file") or ""),
        answer=str(passphrase or fields.get("password") or ""),
        host_key=_public_key(str(extra.get("host_key") or "")),
    )


def _public_key(text: str) -> str:
    """Return ``TYPE BASE64`` of a host's key, of which Airflow lets the type be left out. Raises ConfigurationError."""
    if not text:
        return ""
    try:
        encoded = next(part for part in text.split() if part.startswith("AAAA"))
        blob = base64.b64decode(encoded, validate=True)
        kind = blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii")
    except (StopIteration, ValueError):
        raise ConfigurationError(
            "host_key in the extra of the SSH connection isn't a public key",
            remedy="write what ssh-keyscan prints behind the host's name, such as ssh-ed25519 AAAA…",
        ) from None
    return f"{kind} {encoded}"


def _options(tunnel: Tunnel, folder: Path) -> Sequence[str]:
    """Return ssh's options, and write the files that they name."""
    options = [
        "StrictHostKeyChecking=yes",
        f"ConnectTimeout={CONNECT_SECONDS}",
        f"ServerAliveInterval={_ALIVE_SECONDS}",
        f"ServerAliveCountMax={_ALIVE_COUNT}",
        "NumberOfPasswordPrompts=1",
        "UpdateHostKeys=no",
        "ControlPath=none",  # a shared connection would be verified by whoever made it
        "PermitLocalCommand=no",
        "LogLevel=INFO",  # with less it doesn't say why the host can't reach the server
        f"BatchMode={'no' if tunnel.answer else 'yes'}",
    ]
    if tunnel.host_key:
        known = _written(folder / "known_hosts", f"{_ALIAS} {tunnel.host_key}\n")
        options += [f"UserKnownHostsFile={known}", "GlobalKnownHostsFile=none", f"HostKeyAlias={_ALIAS}"]
    chosen = [part for option in options for part in ("-o", option)]
    if tunnel.key:
        text = tunnel.key.strip().replace("\r\n", "\n")
        chosen += ["-o", "IdentitiesOnly=yes", "-i", str(_written(folder / "key", f"{text}\n"))]
    if tunnel.answer:
        _written(folder / "askpass", _ASKPASS).chmod(0o700)
    account = ["-l", tunnel.user] if tunnel.user else []
    return [*chosen, "-p", str(tunnel.port), *account]


def _environment(tunnel: Tunnel, folder: Path) -> dict[str, str]:
    if not tunnel.answer:
        return {**os.environ}
    asked = {"SSH_ASKPASS": str(folder / "askpass"), "SSH_ASKPASS_REQUIRE": "force", _ANSWER: tunnel.answer}
    return {**os.environ, **asked}


def _written(path: Path, text: str) -> Path:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path
