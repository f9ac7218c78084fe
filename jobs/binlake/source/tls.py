"""How a connection is encrypted, and by what its server is proved."""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from binlake.errors import ConfigurationError

PEM = "-----BEGIN "
"""With which the content of a certificate or key begins, where it is given instead of a path."""
_BLOCK = re.compile(rf"{PEM}[^-]+-----.*?-----END [^-]+-----", re.DOTALL)


@dataclass(frozen=True)
class Tls:
    """How a connection is encrypted.

    ca, cert, key: paths, or the files' contents. verified: the server's certificate is verified. by_name: its name is
    verified, too."""

    ca: str | None
    cert: str | None
    key: str | None = field(repr=False)
    verified: bool
    by_name: bool

    def context(self) -> ssl.SSLContext:
        """Return the SSL context. Raises ConfigurationError for certificates that can't be read."""
        carried = self.ca is not None and PEM in self.ca
        try:
            context = ssl.create_default_context(
                cafile=None if carried else self.ca, cadata=self.ca if carried else None
            )
            context.check_hostname = self.by_name
            context.verify_mode = ssl.CERT_REQUIRED if self.verified else ssl.CERT_NONE
            if self.cert:
                with _in_a_file(self.cert) as cert, _in_a_file(self.key) as key:
                    context.load_cert_chain(str(cert), key)
        except OSError as error:  # ssl's own errors, too
            named = ", ".join(path for path in (self.ca, self.cert, self.key) if path and PEM not in path)
            raise ConfigurationError(
                f"can't read the certificates in {named}: {error.strerror or error}",
                remedy="fix ssl.ca, ssl.cert and ssl.key of the connection",
            ) from None
        return context


@contextmanager
def _in_a_file(pem: str | None) -> Iterator[str | None]:
    """Yield the path of a temporary file with ``pem``, because ssl loads a client's certificate only from files."""
    if pem is None or PEM not in pem:
        yield pem
        return
    with tempfile.NamedTemporaryFile("w", prefix="binlake-", encoding="utf-8") as file:  # its owner's alone
        file.write(pem)
        file.flush()
        yield file.name


def carried(setting: tuple[str, str]) -> tuple[str, str]:
    """Return a TLS setting with a file's content in the place of its path, for another machine."""
    name, value = setting
    if name not in ("ca", "cert", "key") or PEM in value:
        return setting
    return name, "\n".join(_BLOCK.findall(Path(value).read_text(encoding="utf-8", errors="replace")))


@cache
def unverified() -> ssl.SSLContext:
    """Return a context that encrypts without verifying the server, for connections without TLS settings."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
