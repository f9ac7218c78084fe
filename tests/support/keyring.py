"""A MySQL installation with a keyring: the private one, seen through links, with component_keyring_file's two files.

Source: MySQL's manual, "Keyring Component Installation" and "Using the component_keyring_file File-Based Keyring
Component": ``mysqld.my`` stands beside the program, the component's own file beside its library.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import servers
from servers import MYSQL, Kind

COMPONENT = "component_keyring_file"
_PROGRAMS, _PLUGINS = "usr/sbin", "usr/lib/mysql/plugin"


@contextmanager
def mysql_with_keyring(folder: Path) -> Iterator[None]:
    """Servers that start meanwhile keep keys in a file of the folder."""
    root = folder / "root"
    _link(MYSQL / "root", root, (_PROGRAMS, _PLUGINS))
    (root / _PROGRAMS / "mysqld.my").write_text(json.dumps({"components": f"file://{COMPONENT}"}))
    settings = {"path": str(folder / "keys"), "read_only": False}
    (root / _PLUGINS / f"{COMPONENT}.cnf").write_text(json.dumps(settings))
    script = Path(servers.__file__).with_name("mysql.sh")

    def daemon(kind: Kind, release: str | None = None) -> list[str]:
        assert kind == "mysql"
        return ["bash", str(script), "run", str(folder), "mysqld"]

    with mock.patch.object(servers, "_daemon", daemon):
        yield


def _link(there: Path, here: Path, own: tuple[str, ...]) -> None:
    """Make a folder of links to what another holds; the folders ``own``, and those above them, are no links."""
    here.mkdir()
    for path in there.iterdir():
        below = tuple(name.partition("/")[2] for name in own if name.partition("/")[0] == path.name)
        if below:
            _link(path, here / path.name, tuple(filter(None, below)))
        else:
            (here / path.name).symlink_to(path)
