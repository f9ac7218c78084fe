"""Client of AWS Glue's Data Catalog: requests of its JSON protocol, signed with what AWS's usual chain of credentials
gives, all of which end until a given time.

botocore finds the credentials and signs. It doesn't send the requests: it bounds each operation of a socket, and
repeats requests, where the source's lease is held meanwhile.

Source: "AWS Glue Web API Reference"; "AWS Signature Version 4 for API requests".
"""

from __future__ import annotations

import json
import random
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from binlake.caches import once
from binlake.config.catalogs_config import GlueCatalogConfig
from binlake.errors import BinlakeError, ConfigurationError, LakeError
from binlake.registered.timed_client import PATIENCE_SECONDS, CatalogSilent, TimedClient, refusal_of
from binlake.registered.timed_http import CallOnce
from binlake.storage import accounts

_MOST_WORDS = 300
_SERVICE = "glue"
_SEVERAL_TIMES = frozenset({"ThrottlingException", "InternalServiceException", "OperationTimeoutException"})
"""Refusals that are no refusals: asked again, the service may do it."""
_TRIES, _PAUSE_SECONDS = 5, 0.3
_looked_up = CallOnce()
"""Look-ups of credentials, by the lake's root: a program that is asked for some may hang."""


class GlueRefused(LakeError):
    """The service refused a request. kind: the name of its error, such as EntityNotFoundException."""

    def __init__(self, message: str, *, remedy: str, kind: str) -> None:
        super().__init__(message, remedy=remedy)
        self.kind = kind


class GlueClient:
    """The service of one region, and one account."""

    def __init__(self, entry: GlueCatalogConfig, root: str, seconds: float = PATIENCE_SECONDS) -> None:
        """root: of the lake, whose own account is asked for where it has one. seconds: for all requests together.

        Raises ConfigurationError without botocore, and LakeError where no credentials are to be had.
        """
        deadline = time.monotonic() + seconds
        self._entry, self._url = entry, entry.endpoint or _endpoint(entry.region)
        try:
            self._credentials = _looked_up.within(min(seconds, PATIENCE_SECONDS), root, lambda: _credentials(root))
        except ImportError:
            raise ConfigurationError(
                f"the catalog {entry.name} needs botocore, which signs requests to AWS",
                remedy="pip install 'binlake[aws]'",
            ) from None
        except BinlakeError:
            raise
        except Exception as error:  # of many classes, some with what was sent
            raise self._without_account(type(error).__name__) from None
        if self._credentials is None:
            raise self._without_account("none was found")
        try:
            tls = _tls()
        except OSError as error:
            raise ConfigurationError(
                f"the catalog {entry.name} can't be asked, as the authorities that AWS_CA_BUNDLE or ca_bundle names"
                f" can't be read: {type(error).__name__}",
                remedy="let it name a file of certificates, or take it away",
            ) from None
        remedy = "see that catalog.region and catalog.endpoint are right; the next batch makes it good"
        place = entry.endpoint or f"Glue of {entry.region}"
        self._timed = TimedClient(f"{entry.name} at {place}", remedy, deadline - time.monotonic(), tls)

    @property
    def silent(self) -> CatalogSilent | None:
        """Return why the service isn't asked any more, if it isn't."""
        return self._timed.silent

    def ask(self, action: str, **body: Any) -> dict[str, Any]:
        """Send a request, and return the answer. Raises GlueRefused, LakeError."""
        for number in range(_TRIES):
            try:
                return self._sent(action, body)
            except GlueRefused as error:
                pause = _PAUSE_SECONDS * 2**number * random.uniform(0.5, 1)
                if error.kind not in _SEVERAL_TIMES or number == _TRIES - 1 or pause > self._timed.left:
                    raise
                time.sleep(pause)
        raise AssertionError("it returns or raises")

    def _sent(self, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            said = self._timed.answer(self._signed(action, json.dumps(body, ensure_ascii=False).encode()))
        except urllib.error.HTTPError as error:
            raise self._refusal(action, error) from None
        if not isinstance(said, dict):
            raise self._timed.failed("answered what isn't of Glue's protocol")
        return said

    def _signed(self, action: str, body: bytes) -> urllib.request.Request:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        headers = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": f"AWSGlue.{action}"}
        headers["Host"] = urllib.request.Request(self._url).host  # as it is sent; botocore would write it its own way
        request = AWSRequest("POST", self._url, headers, body)
        SigV4Auth(self._credentials, _SERVICE, self._entry.region).add_auth(request)
        return urllib.request.Request(self._url, body, dict(request.headers.items()), method="POST")

    def _refusal(self, action: str, error: urllib.error.HTTPError) -> GlueRefused:
        said = refusal_of(error)
        fields = said if isinstance(said, dict) else {}
        kind = str(fields.get("__type") or error.headers.get("x-amzn-ErrorType") or error.code)
        kind = kind.rpartition("#")[2].partition(":")[0]
        why = str(fields.get("Message") or fields.get("message") or error.reason)
        if any(part in why for part in self._secrets):  # what it says of a wrong signature may repeat what was signed
            why = ""
        message = f"the catalog {self._entry.name} refused {action}: {kind} {why[:_MOST_WORDS]}".rstrip()
        remedy = "fix what it says, then run binlake register"
        if error.code == 403 or kind in ("AccessDeniedException", "UnrecognizedClientException"):
            remedy = "let this account do what binlake help register lists, then run binlake register"
        return GlueRefused(message, remedy=remedy, kind=kind)

    @property
    def _secrets(self) -> list[str]:
        own = self._credentials
        return [part for part in (own.access_key, own.secret_key, own.token) if part]

    def _without_account(self, why: str) -> LakeError:
        return LakeError(
            f"the catalog {self._entry.name} can't be asked, as AWS gives no credentials: {why}",
            remedy="give this machine's account some: by the environment, a profile, or a role (binlake help register)",
        )


def _credentials(root: str) -> Any:
    """Return the credentials of the lake's own account, where its connection has some, else those of AWS's chain; None
    where there are none."""
    from botocore.credentials import ReadOnlyCredentials

    own = accounts.variables_by_connection(root) or {}
    key, secret = own.get("AWS_ACCESS_KEY_ID"), own.get("AWS_SECRET_ACCESS_KEY")
    if key and secret:
        return ReadOnlyCredentials(key, secret, own.get("AWS_SESSION_TOKEN"))
    credentials = _session().get_credentials()
    return credentials and credentials.get_frozen_credentials()  # renewed where they end


@once
def _session() -> Any:
    """Return what finds credentials; what it asks for them answers soon, or isn't asked for long."""
    import botocore.session
    from botocore.config import Config

    session = botocore.session.get_session()
    session.set_default_client_config(Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}))
    return session


def _endpoint(region: str) -> str:
    """Return the address of a region's service, where everybody may have an account; others name an endpoint."""
    ends = {"cn": "com.cn", "eusc": "eu"}  # China, and the European Sovereign Cloud
    return f"https://{_SERVICE}.{region}.amazonaws.{ends.get(region.partition('-')[0], 'com')}"


def _tls() -> ssl.SSLContext | None:
    """Return how the service's certificate is verified, where AWS's settings name authorities."""
    authorities = _session().get_config_variable("ca_bundle")
    return ssl.create_default_context(cafile=authorities) if authorities else None
