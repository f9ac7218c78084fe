"""An Azure Blob server of the tests' own on loopback: Microsoft's Azurite, behind TLS, its blobs in memory."""

from __future__ import annotations

import base64
import os
import secrets
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import servers
from authority import Authority

PROGRAM = servers.PRIVATE / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
START_SECONDS = 60
ACCOUNT = "binlaketests"


class BlobStorage:
    """A server with one account and no container."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.made(folder, "authority")
        self.secret = base64.b64encode(secrets.token_bytes(48)).decode()
        self.port = servers.free_port()
        self.environment = {
            "AZURE_STORAGE_ENDPOINT": f"https://127.0.0.1:{self.port}/{ACCOUNT}",
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": self.secret,
            "SSL_CERT_FILE": str(self.authority.pem),
        }

    def __enter__(self) -> BlobStorage:
        if not PROGRAM.is_file():
            raise AssertionError(f"no {PROGRAM}: run docker/local/setup.sh tests")
        certificate, key = self.authority.sign("blobs")
        options = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--disableProductStyleUrl"]
        self._process = subprocess.Popen(
            ["node", PROGRAM, "--blobPort", str(self.port), *options, "--cert", certificate, "--key", key],
            cwd=self.folder,
            env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{self.secret}"},
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
                assert self._process.poll() is None, "the Azure Blob server ended"
                assert time.monotonic() < deadline, "the Azure Blob server doesn't answer"
                time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
