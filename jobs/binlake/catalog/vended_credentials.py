"""Credentials of S3 that the catalog gives to readers of a table: for an hour, to read the table's folder alone.

They are those of the role that the YAML names, got by AssumeRole of the store's STS with a policy for that folder. STS
is asked by the lake's own account.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from binlake.caches import Cache
from binlake.errors import BinlakeError, ConfigurationError, LakeError
from binlake.storage import accounts, stores
from binlake.storage.stores import S3

HEADER = "X-Iceberg-Access-Delegation"
KIND = "vended-credentials"
"""The word that a client sends in HEADER, among others, if it wants credentials."""
SECONDS = 3600
"""How long they hold: the most that STS gives where the lake's own account is a role, too."""
_WILDCARDS = str.maketrans({sign: f"${{{sign}}}" for sign in "*?$"})
"""Escapes of the characters that have a meaning in a policy's resource."""


@dataclass(frozen=True)
class VendedCredentials:
    """Credentials with what else a client needs to reach the store. prefix: the address of what they are for.
    properties: as clients of Iceberg call them. expires_s: seconds since 1970."""

    prefix: str
    properties: Mapping[str, str] = field(repr=False)
    expires_s: float

    @property
    def is_fresh(self) -> bool:
        """Return whether they hold for half of their time at least."""
        return time.time() < self.expires_s - SECONDS / 2

    def as_answer(self) -> list[dict[str, Any]]:
        """Return them as the specification has them: a list of one."""
        return [{"prefix": self.prefix, "config": dict(self.properties)}]


_kept: Cache[tuple[str, str], VendedCredentials] = Cache("credentials of readers")
"""By role and folder."""


@dataclass(frozen=True)
class VendedRole:
    """The role whose credentials readers of a source's tables get. arn: its name."""

    arn: str

    @classmethod
    def of(cls, arn: str | None, root: str) -> Self | None:
        """Return the role that a YAML names; None for none. root: of the source's lake. Raises ConfigurationError where
        that isn't on S3, or the library that asks STS is missing."""
        if arn is None:
            return None
        if stores.store_of(root) != "s3":
            raise ConfigurationError(
                f"iceberg.vended_role names a role of S3, and the lake is at {root}",
                remedy="take vended_role out of the YAML: readers reach this lake with an account of their own",
            )
        try:
            import botocore.session  # noqa: F401 - so that its lack is said at the start
        except ImportError:
            raise ConfigurationError(
                "iceberg.vended_role needs botocore, which asks STS for credentials",
                remedy="pip install 'binlake[aws]'",
            ) from None
        return cls(arn)

    def credentials(self, folder: str) -> VendedCredentials:
        """Return credentials for a table's folder, which hold for half an hour at least. Raises ConfigurationError, and
        LakeError where STS gives none."""
        kept = _kept.get((self.arn, folder))
        if kept is None or not kept.is_fresh:
            kept = self._asked(folder)
            _kept.put((self.arn, folder), kept)
        return kept

    def _asked(self, folder: str) -> VendedCredentials:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            given = _sts(folder).assume_role(
                RoleArn=self.arn,
                RoleSessionName="binlake-catalog",
                DurationSeconds=SECONDS,
                Policy=policy(self.arn, folder),
            )["Credentials"]
        except BinlakeError:
            raise
        except (BotoCoreError, ClientError) as error:
            said = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
            raise LakeError(
                f"STS gives no credentials of {self.arn}: {said}",
                remedy="the role must trust the lake's account, and hold for an hour: see binlake help catalog",
            ) from None
        ends: datetime = given["Expiration"]
        return VendedCredentials(f"{stores.canonical(folder)}/", _properties(folder, given), ends.timestamp())


def policy(arn: str, folder: str) -> str:
    """Return the policy by which a role may read the objects of a table's folder, and do nothing else.

    It is ASCII alone: STS takes no characters beyond Latin 1.
    """
    bucket, name = stores.container_and_name(folder)
    partition = arn.split(":")[1]
    objects = f"arn:{partition}:s3:::{bucket}/{name.translate(_WILDCARDS)}/*"
    statement = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": [objects]}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]}, separators=(",", ":"))


def _properties(folder: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Return what clients need, as they call it. given: the credentials, as STS gives them."""
    store = S3.at(folder)
    properties = {
        "s3.access-key-id": given["AccessKeyId"],
        "s3.secret-access-key": given["SecretAccessKey"],
        "s3.session-token": given["SessionToken"],
        "s3.session-token-expires-at-ms": str(int(given["Expiration"].timestamp() * 1000)),
        "s3.region": store.region,
        "client.region": store.region,
        "s3.endpoint": store.endpoint,
        "s3.path-style-access": "true" if store.endpoint else "",
    }
    return {key: value for key, value in properties.items() if value}


def _sts(folder: str) -> Any:
    """Return a client of the STS of a lake's store, which asks by the lake's account. Raises ConfigurationError."""
    import botocore.session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    store, variables = S3.at(folder), accounts.environment_of(folder)
    options: dict[str, Any] = {
        "region_name": store.region,
        "endpoint_url": variables.get("AWS_ENDPOINT_URL_STS") or variables.get("AWS_ENDPOINT_URL"),
        "verify": store.authorities,
    }
    if store.account:
        options |= {"aws_access_key_id": store.account.key, "aws_secret_access_key": store.account.secret}
        options |= {"aws_session_token": store.account.token}
    patience = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 3})
    try:
        given = {key: value for key, value in options.items() if value}
        return botocore.session.Session().create_client("sts", config=patience, **given)
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError(
            f"STS can't be asked for credentials: {type(error).__name__}",
            remedy="set AWS_REGION, or AWS_ENDPOINT_URL where the store isn't Amazon's",
        ) from None
