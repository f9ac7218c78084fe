"""As much of Amazon's STS as AssumeRole needs, on loopback. It notes what it was asked, and by which account."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from urllib.parse import parse_qs

from loopback import Loopback, Silent

_GIVEN = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>vended-secret</SecretAccessKey><SessionToken>vended-token</SessionToken>
<Expiration>{ends}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""
_REFUSED = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>
<Code>AccessDenied</Code><Message>user of-the-lake may not assume the role</Message></Error></ErrorResponse>"""


@dataclass(frozen=True)
class Asked:
    """A request. account: the key that signed it. form: what it says."""

    account: str
    form: dict[str, str]


class FakeSts(Loopback):
    """asked: all requests. refuses: whether the next ones get no credentials. holds_for: seconds of what is given."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.refuses = False
        self.holds_for = 3600
        super().__init__(type("Handler", (_Handler,), {"fake": self}))
        self.url = f"http://127.0.0.1:{self._server.server_port}"


class _Handler(Silent):
    fake: FakeSts

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        signed = re.search(r"Credential=([^/]+)/\d+/([^/]+)/sts/", self.headers.get("Authorization", ""))
        assert signed
        self.fake.asked.append(Asked(signed[1], {name: value for name, (value,) in parse_qs(body).items()}))
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.fake.holds_for))
        text = _REFUSED if self.fake.refuses else _GIVEN.format(key=f"vended-{len(self.fake.asked)}", ends=ends)
        self.send_response(403 if self.fake.refuses else 200)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
