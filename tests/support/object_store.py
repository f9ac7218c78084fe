"""An S3 server of the tests' own on loopback: versitygw over a folder, which honours If-None-Match."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import servers
from store_server import StoreServer

PROGRAM = servers.PRIVATE / "versitygw"


class ObjectStore(StoreServer):
    """A server with one bucket, ``lake``, whose objects are files below ``folder``/lake. certificate: with its key, of
    one behind TLS."""

    def __init__(self, folder: Path, certificate: tuple[Path, Path] | None = None) -> None:
        super().__init__("S3", PROGRAM, folder)
        (folder / "lake").mkdir(parents=True)
        self.secret = secrets.token_hex(20)
        self._tls = ("--cert", certificate[0], "--key", certificate[1]) if certificate else ()
        self.environment = {
            "AWS_ENDPOINT_URL": f"http{'s' * bool(certificate)}://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "binlake-tests",
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def connection(self) -> dict[str, Any]:
        """The same as an Airflow connection."""
        variables = self.environment
        extra = {
            "endpoint_url": variables["AWS_ENDPOINT_URL"],
            "region_name": variables["AWS_REGION"],
            "allow_http": True,
        }
        return {"conn_type": "aws", "login": variables["AWS_ACCESS_KEY_ID"], "password": self.secret, "extra": extra}

    def _command(self) -> Sequence[str | Path]:
        return [PROGRAM, "--port", f"127.0.0.1:{self.port}", "--quiet", *self._tls, "posix", self.folder]

    def _account(self) -> Mapping[str, str]:
        return {"ROOT_ACCESS_KEY": self.environment["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": self.secret}
