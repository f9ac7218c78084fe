"""A small schema registry on loopback, of the documented HTTP API's part that feeds ask.

Subjects, versions and ids are as a registry has them; of compatibility it knows BACKWARD alone, and of that two rules:
a new field has a default, and a field keeps its type or takes more of them, in records inside records, too. What real
registries answer beyond that it doesn't prove; franz_registry.py and apicurio_registry.py are others'.
"""

from __future__ import annotations

import json
import re
import ssl
from typing import Any
from urllib.parse import unquote

from loopback import Loopback, Silent


class FakeRegistry(Loopback):
    """subjects: of each its schemas' ids, oldest first. schemas: by id less one."""

    def __init__(self, wanted: str | None = None, context: ssl.SSLContext | None = None) -> None:
        """wanted: the one Authorization that is let in, None: any. context: it speaks TLS."""
        self.wanted, self._context = wanted, context
        self.subjects: dict[str, list[int]] = {}
        self.schemas: list[str] = []
        self.compatibility: dict[str, str] = {}
        super().__init__(type("Handler", (_Handler,), {"registry": self}))
        if context:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{'https' if self._context else 'http'}://127.0.0.1:{self._server.server_address[1]}"

    def asked(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if method == "PUT" and (match := re.fullmatch(r"/config/(.+)", path)):
            self.compatibility[match[1]] = body["compatibility"]
            return 200, body
        if method == "POST" and (match := re.fullmatch(r"/subjects/(.+)/versions", path)):
            return self._register(match[1], body["schema"])
        if method == "GET" and path == "/subjects":
            return 200, list(self.subjects)
        if method == "GET" and (match := re.fullmatch(r"/schemas/ids/(\d+)", path)):
            number = int(match[1])
            if 0 < number <= len(self.schemas):
                return 200, {"schema": self.schemas[number - 1]}
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _register(self, subject: str, schema: str) -> tuple[int, dict[str, Any]]:
        versions = self.subjects.setdefault(subject, [])
        if schema in self.schemas and self.schemas.index(schema) + 1 in versions:
            return 200, {"id": self.schemas.index(schema) + 1}
        if versions and self.compatibility.get(subject, "BACKWARD") == "BACKWARD":
            before = json.loads(self.schemas[versions[-1] - 1])
            if wrong := unreadable(json.loads(schema), before):
                return 409, {"error_code": 409, "message": f"Schema being registered is incompatible: {wrong}"}
        if schema not in self.schemas:
            self.schemas.append(schema)
        versions.append(self.schemas.index(schema) + 1)
        return 200, {"id": versions[-1]}


class _Handler(Silent):
    registry: FakeRegistry

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        status, answer = self.registry.asked(self.command, unquote(self.path), body)
        if self.registry.wanted not in (None, self.headers.get("Authorization")):
            status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = _answer


def unreadable(reader: Any, writer: Any) -> str | None:
    """The first field by whose change what was written can't be read; None without one."""
    known: dict[str, Any] = {field["name"]: field for field in writer["fields"]}
    for field in reader["fields"]:
        old = known.get(field["name"])
        if old is None:
            if "default" not in field:
                return str(field["name"])
        elif wrong := _changed(field["name"], _branches(field["type"]), _branches(old["type"])):
            return wrong
    return None


def _branches(kind: Any) -> list[Any]:
    return kind if isinstance(kind, list) else [kind]


def _changed(name: str, new: list[Any], old: list[Any]) -> str | None:
    for branch in old:
        if branch in new:
            continue
        records = [other for other in new if isinstance(other, dict) and other["type"] == "record"]
        if not records or not isinstance(branch, dict) or branch["type"] != "record":
            return name
        if wrong := unreadable(records[0], branch):
            return wrong
    return None
