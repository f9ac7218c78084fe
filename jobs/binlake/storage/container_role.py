"""The role of a container, whose credentials AWS_CONTAINER_CREDENTIALS_FULL_URI returns (ECS, EKS and the like).

Java, pyarrow and deltalake ask there themselves. obstore does so only with the token in a file, and else gets a
ContainerRole to call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from obstore.store import S3Credential

_EARLIER = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
"""Variables of accounts that AWS's chain takes first, or that obstore reads itself."""
_TOKEN, _TOKEN_FILE = "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"
_PATIENCE = 5.0


@dataclass(frozen=True)
class ContainerRole:
    """A role whose address returns credentials. token: sent with each request as it is; empty for none."""

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
