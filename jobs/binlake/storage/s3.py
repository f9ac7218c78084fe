"""A lake on S3, for each library that works on it: Spark (S3A), deltalake, pyarrow and obstore.

Endpoint and region come from the AWS_* variables that all of them know, and are handed to each, so that none looks
elsewhere. Secrets in the variables are handed to none: each takes them by AWS's own chain (these variables, a profile,
a role), so that no setting of Spark, argument or file holds them. The secrets of a lake's connection are handed to each
library's objects alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from binlake.errors import ConfigurationError
from binlake.storage import accounts
from binlake.storage.trusted import SYSTEMS_OWN, own_authorities

if TYPE_CHECKING:
    from obstore.store import S3Credential

_EARLIER = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
"""Variables of accounts that AWS's chain takes first, or that obstore reads itself."""
_TOKEN, _TOKEN_FILE = "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"
_PATIENCE = 5.0

LOG_STORE = "binlake.ConditionalLogStore"
"""The class in spark/ConditionalLogStore.scala."""
_DEFAULT_REGION = "us-east-1"
"""The region that requests to other servers than Amazon's are signed for, where none is set."""


@dataclass(frozen=True)
class Account:
    """An account from an Airflow connection, of which no repr shows anything. token: of a session, else empty."""

    key: str = field(repr=False)
    secret: str = field(repr=False)
    token: str = field(repr=False)


@dataclass(frozen=True)
class S3:
    """How S3 is reached.

    endpoint: empty for Amazon's own. region: empty where each library's chain finds it. account: None where that chain
    finds it. has_key: the variables hold the account. role: a container's, for which obstore needs help. authorities:
    path of a PEM file with the authorities that are trusted in the place of the system's; empty for these.
    """

    endpoint: str
    region: str
    account: Account | None = None
    has_key: bool = False
    role: ContainerRole | None = None
    authorities: str = ""

    log_store = LOG_STORE

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return how the AWS_* variables say that S3 is reached."""
        endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
        region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or ""
        return cls(
            endpoint.rstrip("/"),
            region or (_DEFAULT_REGION if endpoint else ""),
            has_key=bool(environment.get("AWS_ACCESS_KEY_ID")),
            role=ContainerRole.of(environment),
            authorities=own_authorities(endpoint, environment),
        )

    @classmethod
    def at(cls, path: str) -> Self:
        """Return the account with which a path is reached, by the lake's connection where it has one. Raises
        ConfigurationError."""
        connected = accounts.variables_by_connection(path) or {}
        s3 = cls.of(accounts.environment_of(path))
        if "AWS_ACCESS_KEY_ID" not in connected:
            return s3
        return replace(s3, account=Account(*(connected.get(name, "") for name in accounts.SECRETS)))

    @property
    def is_plain(self) -> bool:
        """Return whether requests aren't encrypted."""
        return self.endpoint.startswith("http://")

    def spark_settings(self) -> dict[str, str]:
        """Return the settings of S3A and of Delta's log on it, without secrets; a value is empty where nothing is
        set."""
        return {
            "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": self.region,
            "spark.hadoop.fs.s3a.path.style.access": "true" if self.endpoint else "",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false" if self.is_plain else "",
            "spark.hadoop.fs.s3a.aws.credentials.provider": (
                "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
            ),
            # The default keeps what it read of files by name; Delta overwrites one of its own.
            "spark.hadoop.fs.s3a.input.stream.type": "classic",
            "spark.hadoop.fs.s3a.create.conditional.enabled": "true",
            "spark.delta.logStore.s3a.impl": LOG_STORE,
            "spark.delta.logStore.s3.impl": LOG_STORE,
        }

    def hadoop_account(self) -> dict[str, str]:
        """Return S3A's secret settings, for Hadoop's configuration of a running session, which no page shows."""
        if self.account is None:
            return {}
        kind = "TemporaryAWSCredentialsProvider" if self.account.token else "SimpleAWSCredentialsProvider"
        options = {
            "fs.s3a.aws.credentials.provider": f"org.apache.hadoop.fs.s3a.{kind}",
            "fs.s3a.access.key": self.account.key,
            "fs.s3a.secret.key": self.account.secret,
            "fs.s3a.session.token": self.account.token,
        }
        return {key: value for key, value in options.items() if value}

    def variables(self) -> dict[str, str]:
        """Return variables for the processes of a cluster that work on the lake."""
        options = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_ALLOW_HTTP": "true" if self.is_plain else "",
        }
        if self.account is not None:
            account = (self.account.key, self.account.secret, self.account.token)
            options |= dict(zip(accounts.SECRETS, account, strict=True))
        # A host's own token mustn't be used with this account.
        return {key: value for key, value in options.items() if value or key in accounts.SECRETS}

    def storage_options(self) -> dict[str, str]:
        """Return deltalake's options. A commit is one conditional PUT."""
        options = {"aws_endpoint_url": self.endpoint, "aws_region": self.region, "aws_conditional_put": "etag"}
        if self.account is None and not self.has_key:
            # With another endpoint than Amazon's it asks no profile, and not every role, unless this is set.
            options["aws_force_credential_load"] = "true"
        if self.account is not None:
            options |= {"aws_access_key_id": self.account.key, "aws_secret_access_key": self.account.secret}
            options |= {"aws_session_token": self.account.token, "allow_http": "true" if self.is_plain else ""}
        return {key: value for key, value in options.items() if value}

    def arrow_arguments(self) -> dict[str, Any]:
        """Return the arguments of pyarrow's S3FileSystem."""
        # It looks for the variable itself, but once in a process.
        options: dict[str, Any] = {"region": self.region, "tls_ca_file_path": self.authorities}
        if self.endpoint:
            options["scheme"], _, options["endpoint_override"] = self.endpoint.partition("://")
        if self.account is not None:
            options |= {"access_key": self.account.key, "secret_key": self.account.secret}
            options |= {"session_token": self.account.token}
        return {key: value for key, value in options.items() if value}

    def obstore_arguments(self) -> dict[str, Any]:
        """Return the arguments of obstore's S3Store."""
        options = {"endpoint": self.endpoint, "region": self.region, "conditional_put": "etag"}
        if self.account is not None:
            options |= {"access_key_id": self.account.key, "secret_access_key": self.account.secret}
            options |= {"session_token": self.account.token}
        config = {key: value for key, value in options.items() if value}
        by_role = {"credential_provider": self.role} if self.role else {}
        return {"config": config, "client_options": {"allow_http": self.is_plain}, **by_role}


def has_profile(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the credentials may be in AWS's files, which obstore doesn't read."""
    if environment.get("AWS_ACCESS_KEY_ID"):
        return False
    named = any(environment.get(name) for name in ("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"))
    return named or (Path.home() / ".aws").exists()


def check(path: str, environment: Mapping[str, str] | None = None) -> None:
    """Raise ConfigurationError where the variables, or the lake's connection, can't be right for a lake."""
    environment = accounts.environment_of(path) if environment is None else environment
    s3 = S3.of(environment)
    if s3.endpoint and "://" not in s3.endpoint:
        raise ConfigurationError(
            f"AWS_ENDPOINT_URL is {s3.endpoint}, which is no address", remedy="write it with https:// before it"
        )
    if s3.is_plain and environment.get("AWS_ALLOW_HTTP", "").lower() not in ("true", "1"):
        raise ConfigurationError(
            f"AWS_ENDPOINT_URL is {s3.endpoint}: rows would go over the network as plain text",
            remedy="use https://, or set AWS_ALLOW_HTTP=true where that is meant",
        )
    halves = [name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if environment.get(name)]
    if len(halves) == 1:
        raise ConfigurationError(f"of the credentials {halves[0]} alone is set", remedy="set both, or neither")
    _refuse_other_token(path)
    bundle = environment.get("AWS_CA_BUNDLE")
    if bundle and not s3.is_plain and bundle not in (*SYSTEMS_OWN, s3.authorities):
        raise ConfigurationError(
            "AWS_CA_BUNDLE is set, which neither Spark nor deltalake, pyarrow and obstore read",
            remedy=f"set SSL_CERT_FILE={bundle}, by which all of them trust its authorities; or unset AWS_CA_BUNDLE",
        )


def _refuse_other_token(path: str) -> None:
    """Raise ConfigurationError where deltalake and obstore would add the environment's token to the connection's
    account."""
    connected = accounts.variables_by_connection(path) or {}
    has_token = "AWS_SESSION_TOKEN" in connected
    if "AWS_ACCESS_KEY_ID" in connected and not has_token and os.environ.get("AWS_SESSION_TOKEN"):
        raise ConfigurationError(
            "AWS_SESSION_TOKEN is set, but the account of the lake's connection has no token: deltalake would send it",
            remedy="unset AWS_SESSION_TOKEN, or give the connection a key and its aws_session_token",
        )


@dataclass(frozen=True)
class ContainerRole:
    """A container's role, whose address returns credentials (ECS, EKS and the like).

    Java, pyarrow and deltalake ask there themselves. obstore does so only with the token in a file, and else gets this
    to call. token: sent with each request as it is; empty for none.
    """

    address: str
    token: str = field(repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self | None:
        """Return the role that the variables name; None where they mean another kind of account, or obstore finds the
        role by itself."""
        address = environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
        if not address.startswith(("http://", "https://")):
            return None
        if any(environment.get(name) for name in (*_EARLIER, _TOKEN_FILE)):
            return None
        return cls(address, environment.get(_TOKEN, ""))

    def __call__(self) -> S3Credential:
        """Ask for the role's credentials. Raises OSError, ValueError and KeyError, which obstore raises as its own
        errors."""
        headers = {"Authorization": self.token} if self.token else {}
        import urllib.request  # costs a tenth of a command that reads no role

        with urllib.request.urlopen(urllib.request.Request(self.address, headers=headers), timeout=_PATIENCE) as answer:
            credentials = json.load(answer)
        return {
            "access_key_id": credentials["AccessKeyId"],
            "secret_access_key": credentials["SecretAccessKey"],
            "token": credentials.get("Token"),
            "expires_at": datetime.fromisoformat(credentials["Expiration"]) if credentials.get("Expiration") else None,
        }
