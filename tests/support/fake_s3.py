"""As much of S3 as one bucket of small objects needs, on loopback: it answers what a real server rarely does, and tells
with which account it was asked. Signatures aren't looked at."""

from __future__ import annotations

import json
import re
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from loopback import Loopback, Silent

ROLE = {"AccessKeyId": "of-the-role", "SecretAccessKey": "x", "Token": "t", "Expiration": "2099-01-01T00:00:00Z"}
_TIME = "Thu, 01 Jan 2026 00:00:00 GMT"


class FakeS3(Loopback):
    """conflicts: how many of the next conditional PUTs get HTTP 409 and write nothing. before_conflict: called in each.
    accounts: how many requests each key made; token: without which no role is told at ``/role``. certificate: with its
    key, of a server behind TLS."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.conflicts = 0
        self.before_conflict: Callable[[str], None] = lambda name: None
        self.accounts: Counter[str] = Counter()
        self.token: str | None = "let-me-in"
        super().__init__(type("Handler", (_Handler,), {"fake": self}))
        if certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, True, do_handshake_on_connect=False)
        self.url = f"http{'s' * bool(certificate)}://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """Without an account."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


class _Handler(Silent):
    fake: FakeS3
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/role":
            allowed = self.headers.get("Authorization") == self.fake.token
            self._answer(200 if allowed else 403, json.dumps(ROLE).encode() if allowed else b"")
            return
        self._note()
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            asked = (query.get(name, [""])[0] for name in ("prefix", "delimiter", "start-after"))
            self._answer(200, self._listed(*asked))
        elif (data := self.fake.objects.get(self._name)) is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>")
        elif span := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(span[1]), min(int(span[2] or len(data)), len(data) - 1)
            self._answer(206, data[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(data)}"})
        else:
            self._answer(200, data)

    def do_HEAD(self) -> None:
        self._note()
        data = self.fake.objects.get(self._name)
        self._answer(404 if data is None else 200, data or b"")

    def do_POST(self) -> None:
        """An object in parts: its beginning, which has the name for an id, and its end."""
        self._note()
        self._body()
        name = self._name
        if "uploads=" in self.path or self.path.endswith("uploads"):
            said = f"<Bucket>lake</Bucket><Key>{name}</Key><UploadId>{quote(name, safe='')}</UploadId>"
            self._answer(200, f"<InitiateMultipartUploadResult>{said}</InitiateMultipartUploadResult>".encode())
            return
        self.fake.objects[name] = b"".join(data for _, data in sorted(self.fake.parts.pop(name).items()))
        said = f'<Bucket>lake</Bucket><Key>{name}</Key><ETag>"e"</ETag>'
        self._answer(200, f"<CompleteMultipartUploadResult>{said}</CompleteMultipartUploadResult>".encode())

    def do_PUT(self) -> None:
        self._note()
        data = self._body()
        if number := parse_qs(urlsplit(self.path).query).get("partNumber"):
            self.fake.parts.setdefault(self._name, {})[int(number[0])] = data
            self._answer(200)
            return
        if self.headers.get("If-None-Match") == "*":
            if self.fake.conflicts:
                self.fake.conflicts -= 1
                self.fake.before_conflict(self._name)
                self._answer(409, b"<Error><Code>ConditionalRequestConflict</Code><Message>again</Message></Error>")
                return
            if self._name in self.fake.objects:
                self._answer(412, b"<Error><Code>PreconditionFailed</Code><Message>there</Message></Error>")
                return
        self.fake.objects[self._name] = data
        self._answer(200)

    def do_DELETE(self) -> None:
        self._note()
        self.fake.objects.pop(self._name, None)
        self._answer(204)

    @property
    def _name(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/lake/")

    def _sent(self) -> bytes:
        """The body as it comes: of a length that is said, or in HTTP's own chunks."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _body(self) -> bytes:
        body = self._sent()
        if "x-amz-decoded-content-length" not in self.headers:
            return body
        data = b""
        while body:  # chunks: a size in hexadecimal, perhaps with a signature, and as many bytes
            head, _, rest = body.partition(b"\r\n")
            size = int(head.partition(b";")[0] or b"0", 16)
            data, body = data + rest[:size], rest[size + 2 :] if size else b""
        return data

    def _note(self) -> None:
        if credential := re.search("Credential=([^/]+)/", self.headers.get("Authorization", "")):
            self.fake.accounts[credential[1]] += 1

    def _listed(self, prefix: str, delimiter: str, after: str) -> bytes:
        contents, folders = "", set()
        for name, data in sorted(self.fake.objects.items()):
            if not name.startswith(prefix) or name <= after:
                continue
            inner, delimited, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
            if delimited:
                folders.add(f"{prefix}{inner}{delimiter}")
            else:
                contents += (
                    f"<Contents><Key>{name}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                    f"<ETag>e</ETag><Size>{len(data)}</Size></Contents>"
                )
        common = "".join(f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in sorted(folders))
        said = f"<Name>lake</Name><IsTruncated>false</IsTruncated>{contents}{common}"
        return f"<?xml version='1.0'?><ListBucketResult>{said}</ListBucketResult>".encode()

    def _answer(self, status: int, body: bytes = b"", more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Length": str(len(body)), "ETag": '"e"', "Last-Modified": _TIME, **(more or {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(body)
