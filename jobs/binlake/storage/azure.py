"""A lake in Azure's Blob Storage, by the AZURE_* variables that deltalake and obstore know.

Hadoop's file system (ABFS) reads none of them: it is told what they mean, the account by its configuration alone, which
no page shows and no log tells. All three libraries speak the Blob API, in which of two requests that write one name
under ``If-None-Match: *`` one alone succeeds: deltalake's commit is such a PUT, Spark's (Delta's AzureLogStore) a copy
of a file that nobody else knows. So accounts without a hierarchical namespace are what is proved; see
storage/files.py, has_real_folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

from binlake.errors import ConfigurationError
from binlake.storage.trusted import own_authorities

ADDRESS = re.compile(r"[a-z0-9$][a-z0-9-]{2,62}@(?P<account>[a-z0-9]{3,24})\.dfs\.core\.windows\.net")
"""Container and account."""
_KEY = "AZURE_STORAGE_ACCOUNT_KEY"
_SHARED_ACCESS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
"""With which Spark's rename and the removal of many objects failed where they were tried, on Azurite."""
_OF_PRINCIPAL = ("AZURE_CLIENT_ID", "AZURE_TENANT_ID")
_LOGIN = "https://login.microsoftonline.com"
_PROVIDERS = "org.apache.hadoop.fs.azurebfs.oauth2"


@dataclass(frozen=True)
class Azure:
    """How an account is reached. endpoint: empty for Microsoft's own, else with the account as its path. key, then
    token_file and secret: the first that isn't empty is what all libraries take, else the machine's identity."""

    account: str
    endpoint: str = ""
    authorities: str = ""
    key: str = field(default="", repr=False)
    token_file: str = ""
    secret: str = field(default="", repr=False)
    client: str = ""
    tenant: str = ""

    log_store = "io.delta.storage.AzureLogStore"
    """Writes a file of a random name, then renames it: to a name that isn't taken, or not at all."""

    @classmethod
    def of(cls, account: str, environment: Mapping[str, str] = os.environ) -> Self:
        def told(name: str) -> str:
            return environment.get(name) or ""

        endpoint = told("AZURE_STORAGE_ENDPOINT").rstrip("/")
        return cls(
            account,
            endpoint,
            own_authorities(endpoint, environment),
            key=told(_KEY),
            token_file=told("AZURE_FEDERATED_TOKEN_FILE"),
            secret=told("AZURE_CLIENT_SECRET"),
            client=told("AZURE_CLIENT_ID"),
            tenant=told("AZURE_TENANT_ID"),
        )

    @classmethod
    def at(cls, path: str) -> Self:
        """For what lies at a path."""
        return cls.of(account_of(path))

    def spark_settings(self) -> dict[str, str]:
        """Of ABFS and of Delta's log on it, without secrets; those that say nothing are empty."""
        return {
            "spark.hadoop.fs.azure.abfs.endpoint": urlsplit(self.endpoint).netloc,
            # The Blob API for all, and no question by the other one that a server of one's own may lack.
            "spark.hadoop.fs.azure.account.hns.enabled": "false",
            "spark.hadoop.fs.azure.fns.account.service.type": "BLOB",
            "spark.hadoop.fs.azure.ingress.service.type": "BLOB",
            # The default asks for OpenSSL by a jar that isn't there.
            "spark.hadoop.fs.azure.ssl.channel.mode": "Default_JSSE",
            "spark.delta.logStore.abfss.impl": self.log_store,
            "spark.delta.logStore.abfs.impl": self.log_store,
        }

    def hadoop_account(self) -> dict[str, str]:
        """ABFS's settings that are secrets: for Hadoop's configuration of a session at work, which no page shows."""
        by = "fs.azure.account.oauth2"
        if self.key:
            return {"fs.azure.account.auth.type": "SharedKey", "fs.azure.account.key": self.key}
        if self.token_file:
            kind, told = "WorkloadIdentityTokenProvider", {f"{by}.token.file": self.token_file}
            told |= {f"{by}.msi.tenant": self.tenant, f"{by}.client.id": self.client}
        elif self.secret:
            kind, told = "ClientCredsTokenProvider", {f"{by}.client.secret": self.secret}
            told |= {f"{by}.client.endpoint": f"{_LOGIN}/{self.tenant}/oauth2/token", f"{by}.client.id": self.client}
        else:
            kind, told = "MsiTokenProvider", {f"{by}.msi.tenant": self.tenant, f"{by}.client.id": self.client}
        named = {"fs.azure.account.auth.type": "OAuth", "fs.azure.account.oauth.provider.type": f"{_PROVIDERS}.{kind}"}
        return {key: value for key, value in {**named, **told}.items() if value}

    def variables(self) -> dict[str, str]:
        """For the processes of a cluster that work on the lake; their account they have as the driver does."""
        return {"AZURE_STORAGE_ENDPOINT": self.endpoint} if self.endpoint else {}

    def storage_options(self) -> dict[str, str]:
        """deltalake's, which takes the account's secret from the variables itself."""
        told = {"azure_storage_account_name": self.account, "azure_storage_endpoint": self.endpoint}
        return {key: value for key, value in told.items() if value}

    def obstore_arguments(self) -> dict[str, Any]:
        """Of obstore's AzureStore, which does so, too."""
        told = {"account_name": self.account, "endpoint": self.endpoint}
        return {"config": {key: value for key, value in told.items() if value}}


def account_of(path: str) -> str:
    """The storage account that an address names; empty where it names none."""
    found = ADDRESS.fullmatch(urlsplit(path).netloc)
    return found["account"] if found else ""


def check(path: str, environment: Mapping[str, str] | None = None) -> None:
    """Raises ConfigurationError where the variables can't be right for this lake."""
    environment = os.environ if environment is None else environment
    account = account_of(path)
    azure = Azure.of(account, environment)
    named = environment.get("AZURE_STORAGE_ACCOUNT_NAME")
    if named and named != account:
        raise ConfigurationError(
            f"AZURE_STORAGE_ACCOUNT_NAME is {named}, but lake.path names the account {account}",
            remedy="unset it, or let both name one account",
        )
    if azure.endpoint:
        parts = urlsplit(azure.endpoint)
        if parts.scheme != "https" or parts.port is None or parts.path != f"/{account}":
            raise ConfigurationError(
                f"AZURE_STORAGE_ENDPOINT is {parts.scheme}://{parts.hostname}…, which Spark can't be told of",
                remedy=f"unset it for Microsoft's own, or write it as https://HOST:PORT/{account}",
            )
    shared_access = next((name for name in _SHARED_ACCESS if environment.get(name)), None)
    if shared_access and not (azure.key or azure.token_file or azure.secret):
        raise ConfigurationError(
            f"{shared_access} is set: with a shared access signature no mirror was ever proved",
            remedy=f"unset it, and set {_KEY}, or let an identity work on the lake",
        )
    lacking = [name for name in _OF_PRINCIPAL if not environment.get(name)]
    if (azure.token_file or azure.secret) and not azure.key and lacking:
        raise ConfigurationError(
            f"an account by AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE lacks {' and '.join(lacking)}",
            remedy=f"set {' and '.join(lacking)}, too, or {_KEY} in their place",
        )
