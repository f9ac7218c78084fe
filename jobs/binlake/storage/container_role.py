"""The role of a container, as AWS_CONTAINER_CREDENTIALS_FULL_URI tells it (ECS, EKS, and what acts like them).

Java, pyarrow and deltalake ask there themselves; obstore alone wants the token in a file, and is given this otherwise.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from obstore.store import S3Credential

_EARLIER = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
"""What AWS's chain takes before it; and what follows obstore reads itself."""
_TOKEN, _TOKEN_FILE = "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"
_PATIENCE = 5.0


@dataclass(frozen=True)
class ContainerRole:
    """Gives the role's credentials of now. token: sent as it is; empty for none."""

    address: str
    token: str = field(repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self | None:
        """None where another kind of account is meant, or obstore finds the role without help."""
        address = environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
        if not address.startswith(("http://", "https://")):
            return None
        if any(environment.get(name) for name in (*_EARLIER, _TOKEN_FILE)):
            return None
        return cls(address, environment.get(_TOKEN, ""))

    def __call__(self) -> S3Credential:
        """Raises OSError, ValueError and KeyError, which obstore tells as its own errors."""
        headers = {"Authorization": self.token} if self.token else {}
        with urllib.request.urlopen(urllib.request.Request(self.address, headers=headers), timeout=_PATIENCE) as answer:
            told = json.load(answer)
        return {
            "access_key_id": told["AccessKeyId"],
            "secret_access_key": told["SecretAccessKey"],
            "token": told.get("Token"),
            "expires_at": datetime.fromisoformat(told["Expiration"]) if told.get("Expiration") else None,
        }
