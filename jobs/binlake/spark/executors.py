"""Code that runs on an executor to find what it lacks. It needs only the stdlib: all else may be missing there."""

from __future__ import annotations

import importlib
import os
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_LOADED = ("pandas", "pyarrow")
"""By every function of ours that Spark runs; they are tried, too."""


@dataclass(frozen=True)
class LakeProbe:
    """A small file that the driver has written into the lake, and its content."""

    path: str
    content: str


@dataclass(frozen=True)
class Lack:
    """The things that the executors of a host lack.

    python: their interpreter. problems: what is wrong with it. wanted: what pip is to install. lake: why the lake can't
    be read there, if nothing else is wrong. others: versions of Spark and Java that differ from the driver's.
    """

    host: str
    python: str
    problems: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    lake: str = ""
    others: tuple[str, ...] = ()


def lack(
    versions: Mapping[str, str], probe: LakeProbe | None = None, driver: Mapping[str, str] | None = None
) -> Lack | None:
    """Return what this executor lacks: packages in these versions, the lake, the driver's Spark and Java; None if
    nothing."""
    problems, wanted = [], []
    for name, version in versions.items():
        try:
            here = metadata.version(name)
        except metadata.PackageNotFoundError:
            here = None
        if here != version:
            problems.append(f"{name} is {here}, not {version}" if here else f"{name} is missing")
            wanted.append(f"{name}=={version}")
    for name in () if problems else _LOADED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            problems.append(f"{name} can't be loaded: {error}")
    lake = _unread(probe) if probe and not problems else ""
    engines = {"Spark": _spark(), "Java": java_of(os.getppid())}
    others = [
        f"{name} {engines[name]}, not {of}" for name, of in (driver or {}).items() if engines[name] not in ("", of)
    ]
    # As Spark calls the machine, where Spark was given a name.
    host = os.environ.get("SPARK_LOCAL_HOSTNAME") or os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()
    result = Lack(host, sys.executable, tuple(problems), tuple(wanted), lake, tuple(others))
    return result if problems or lake or others else None


def _spark() -> str:
    """Return the version of pyspark on this executor. Spark puts its own before an installed one."""
    import pyspark

    return str(pyspark.__version__)


def java_of(process: int) -> str:
    """Return the major version of the JVM that the process is, or was started by; empty where that isn't known."""
    while process > 1:
        try:
            program = Path(os.readlink(f"/proc/{process}/exe"))
            if program.name == "java":
                match = re.search(r'^JAVA_VERSION="(\d+)', (program.parents[1] / "release").read_text(), re.MULTILINE)
                return match[1] if match else ""
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return ""
    return ""


def _unread(probe: LakeProbe) -> str:
    """Return why the lake isn't read by the engine that was shipped; empty where it is."""
    from binlake.errors import BinlakeError
    from binlake.storage import files

    try:
        return "" if files.read_text(probe.path) == probe.content else f"{probe.path} is another file there"
    except BinlakeError as error:
        return error.message
