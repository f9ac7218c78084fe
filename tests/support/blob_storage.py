"""An Azure Blob server of the tests' own on loopback: Microsoft's Azurite, behind TLS, its blobs in memory."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

import servers
from authority import Authority
from store_server import StoreServer

PROGRAM = servers.PRIVATE / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
ACCOUNT = "binlaketests"


class BlobStorage(StoreServer):
    """A server with one account and no container."""

    def __init__(self, folder: Path) -> None:
        super().__init__("Azure Blob", PROGRAM, folder)
        self.authority = Authority.made(folder, "authority")
        self.secret = base64.b64encode(secrets.token_bytes(48)).decode()
        self.environment = {
            "AZURE_STORAGE_ENDPOINT": f"https://127.0.0.1:{self.port}/{ACCOUNT}",
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": self.secret,
            "SSL_CERT_FILE": str(self.authority.pem),
        }

    def _command(self) -> Sequence[str | Path]:
        certificate, key = self.authority.sign("blobs")
        options = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--disableProductStyleUrl"]
        return ["node", PROGRAM, "--blobPort", str(self.port), *options, "--cert", certificate, "--key", key]

    def _account(self) -> Mapping[str, str]:
        return {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{self.secret}"}
