"""An S3 server of the tests' own on loopback: versitygw over a folder, which honours If-None-Match."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import servers

PROGRAM = servers.PRIVATE / "versitygw"
START_SECONDS = 30


class ObjectStore:
    """A server with one bucket, ``lake``, whose objects are files below ``folder``/lake. certificate: with its key, of
    one behind TLS."""

    def __init__(self, folder: Path, certificate: tuple[Path, Path] | None = None) -> None:
        self.folder = folder
        (folder / "lake").mkdir(parents=True)
        self.secret = secrets.token_hex(20)
        self.port = servers.free_port()
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

    def __enter__(self) -> ObjectStore:
        if not PROGRAM.is_file():
            raise AssertionError(f"no {PROGRAM}: run docker/local/setup.sh tests")
        account = {"ROOT_ACCESS_KEY": self.environment["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": self.secret}
        self._process = subprocess.Popen(
            [PROGRAM, "--port", f"127.0.0.1:{self.port}", "--quiet", *self._tls, "posix", self.folder],
            env={**os.environ, **account},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=servers.die_with_parent,
        )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                assert self._process.poll() is None, "the S3 server ended"
                assert time.monotonic() < deadline, "the S3 server doesn't answer"
                time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
