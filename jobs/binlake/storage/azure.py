"""A lake in Azure's Blob Storage, by the AZURE_* variables that deltalake and obstore know.

Hadoop's file system (ABFS) reads none of them: it gets the same as settings, and the account by its configuration
alone, which no page shows and no log holds. All three libraries use the Blob API, where one alone of two requests that
write a name under ``If-None-Match: *`` succeeds: deltalake's commit is such a PUT, Spark's (Delta's AzureLogStore) a
copy of a file with a random name. Tested are accounts without a hierarchical namespace; see opened_tables.
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
"""The host part of an address: container and account."""
_KEY = "AZURE_STORAGE_ACCOUNT_KEY"
_SHARED_ACCESS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
"""Shared access signatures: with them Spark's rename, and deleting many objects, failed on Azurite."""
_OF_PRINCIPAL = ("AZURE_CLIENT_ID", "AZURE_TENANT_ID")
_LOGIN = "https://login.microsoftonline.com"
_PROVIDERS = "org.apache.hadoop.fs.azurebfs.oauth2"


@dataclass(frozen=True)
class Azure:
    """How a storage account is reached.

    endpoint: empty for Microsoft's own, else with the account as its path. key, token_file, secret: all libraries take
    the first of them that isn't empty, or the machine's identity where all are.
    """

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
        """Return how the AZURE_* variables say that an account is reached."""

        def value(name: str) -> str:
            return environment.get(name) or ""

        endpoint = value("AZURE_STORAGE_ENDPOINT").rstrip("/")
        return cls(
            account,
            endpoint,
            own_authorities(endpoint, environment),
            key=value(_KEY),
            token_file=value("AZURE_FEDERATED_TOKEN_FILE"),
            secret=value("AZURE_CLIENT_SECRET"),
            client=value("AZURE_CLIENT_ID"),
            tenant=value("AZURE_TENANT_ID"),
        )

    @classmethod
    def at(cls, path: str) -> Self:
        """Return the account with which a path is reached, by the variables."""
        return cls.of(account_of(path))

    def spark_settings(self) -> dict[str, str]:
        """Return the settings of ABFS and of Delta's log on it, without secrets; a value is empty where nothing is
        set."""
        return {
            "spark.hadoop.fs.azure.abfs.endpoint": urlsplit(self.endpoint).netloc,
            # The Blob API for all, and no question by the other one that a server of one's own may lack.
            "spark.hadoop.fs.azure.account.hns.enabled": "false",
            "spark.hadoop.fs.azure.fns.account.service.type": "BLOB",
            "spark.hadoop.fs.azure.ingress.service.type": "BLOB",
            # The default asks for OpenSSL by a jar that isn't there.
            "spark.hadoop.fs.azure.ssl.channel.mode": "Default_JSSE",
            # Else a JVM that ends sends figures of its requests there, and tries for long where nobody answers.
            "spark.hadoop.fs.azure.metrics.collection.enabled": "false",
            "spark.delta.logStore.abfss.impl": self.log_store,
            "spark.delta.logStore.abfs.impl": self.log_store,
        }

    def hadoop_account(self) -> dict[str, str]:
        """Return ABFS's secret settings, for Hadoop's configuration of a running session, which no page shows."""
        by = "fs.azure.account.oauth2"
        if self.key:
            return {"fs.azure.account.auth.type": "SharedKey", "fs.azure.account.key": self.key}
        if self.token_file:
            kind, settings = "WorkloadIdentityTokenProvider", {f"{by}.token.file": self.token_file}
            settings |= {f"{by}.msi.tenant": self.tenant, f"{by}.client.id": self.client}
        elif self.secret:
            kind, settings = "ClientCredsTokenProvider", {f"{by}.client.secret": self.secret}
            settings |= {
                f"{by}.client.endpoint": f"{_LOGIN}/{self.tenant}/oauth2/token",
                f"{by}.client.id": self.client,
            }
        else:
            kind, settings = "MsiTokenProvider", {f"{by}.msi.tenant": self.tenant, f"{by}.client.id": self.client}
        named = {"fs.azure.account.auth.type": "OAuth", "fs.azure.account.oauth.provider.type": f"{_PROVIDERS}.{kind}"}
        return {key: value for key, value in {**named, **settings}.items() if value}

    def variables(self) -> dict[str, str]:
        """Return variables for the processes of a cluster; they get the account as the driver does."""
        return {"AZURE_STORAGE_ENDPOINT": self.endpoint} if self.endpoint else {}

    def storage_options(self) -> dict[str, str]:
        """Return deltalake's options; it takes the account's secret from the variables itself."""
        options = {"azure_storage_account_name": self.account, "azure_storage_endpoint": self.endpoint}
        return {key: value for key, value in options.items() if value}

    def obstore_arguments(self) -> dict[str, Any]:
        """Return the arguments of obstore's AzureStore, which takes the account's secret from the variables itself."""
        options = {"account_name": self.account, "endpoint": self.endpoint}
        return {"config": {key: value for key, value in options.items() if value}}


def account_of(path: str) -> str:
    """Return the storage account that an address names; empty where it names none."""
    match = ADDRESS.fullmatch(urlsplit(path).netloc)
    return match["account"] if match else ""


def check(path: str, environment: Mapping[str, str] | None = None) -> None:
    """Raise ConfigurationError where the variables can't be right for a lake."""
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
                f"AZURE_STORAGE_ENDPOINT is {parts.scheme}://{parts.hostname}…, which Spark can't be given",
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
