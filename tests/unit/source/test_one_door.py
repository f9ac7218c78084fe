"""Every connection to a server is opened in one place, which knows of TLS, tokens, tunnels and deadlines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import binlake
import binlake_airflow

ENGINE, PLUGIN = Path(binlake.__file__).parent, Path(binlake_airflow.__file__).parent
SCRIPTS = ENGINE.parent.glob("*.py")
MAY_OPEN = {ENGINE / "source" / "connection.py", ENGINE / "source" / "driver.py"}
OPENING = {
    "binlake.source.driver.DriverConnection", "pymysql.connect", "pymysql.Connect", "pymysql.Connection",
    "pymysql.connections.Connection",
}  # fmt: skip
READER = "BinLogStreamReader"
"""The class of mysql-replication, which opens connections of its own where it is given no wrapper."""


def full_names(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {
                name.asname or name.name.partition(".")[0]: (name.asname and name.name) or "" for name in node.names
            }
        if isinstance(node, ast.ImportFrom):
            names |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    return names


def dotted(node: ast.AST, names: dict[str, str]) -> str:
    match node:
        case ast.Name(id=name):
            return names.get(name) or name
        case ast.Attribute(value=value, attr=attribute):
            return f"{dotted(value, names)}.{attribute}"
    return ""


def for_types(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes of annotations."""
    for node in ast.walk(tree):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(annotation, ast.AST):
                yield from ast.walk(annotation)


def opened(text: str) -> list[int]:
    """The lines that name what opens a connection, annotations aside."""
    tree = ast.parse(text)
    names, types = full_names(tree), set(for_types(tree))
    named = (node for node in ast.walk(tree) if isinstance(node, ast.expr) and node not in types)
    lines = {node.lineno for node in named if dotted(node, names) in OPENING}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func, names).endswith(READER):
            lines |= set() if "pymysql_wrapper" in {given.arg for given in node.keywords} else {node.lineno}
    return sorted(lines)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import pymysql\npymysql.connect(host='h')", [2]),
        ("import pymysql.connections\nopen = pymysql.connections.Connection", [2]),
        ("import pymysql as p\nclass Own(p.Connection): ...", [2]),
        ("from pymysql import connect as c\nmap(c, [])", [2]),
        (
            "from pymysql.connections import Connection\ndef f(c: Connection) -> Connection:\n    return Connection()",
            [3],
        ),
        ("import pymysql\nc: pymysql.Connection[int]\nraise pymysql.MySQLError", []),
        ("from pymysqlreplication import BinLogStreamReader as B\nB({}, 7)\nB(pymysql_wrapper=w)", [2]),
    ],
)
def test_what_opens_a_connection_is_seen(text: str, lines: list[int]) -> None:
    assert opened(text) == lines


def test_connections_are_opened_in_one_place() -> None:
    files = {*ENGINE.rglob("*.py"), *PLUGIN.rglob("*.py"), *SCRIPTS}
    assert files >= MAY_OPEN
    opening = {file: lines for file in files if (lines := opened(file.read_text(encoding="utf-8")))}
    assert opening.keys() == MAY_OPEN
