"""The java program that Spark is started with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from binlake.errors import UsageError
from binlake.versions import JAVA, JAVAS

_OPTIONS_SHOWN = "Picked up "
"""The line that Java prints first where JAVA_TOOL_OPTIONS is set, which may hold a password."""


@dataclass(frozen=True)
class Java:
    """The java program that pyspark starts. major: its version, 0 if unknown. said: its first line about itself."""

    program: str
    major: int
    said: str


def path() -> Path | None:
    """Return the java of JAVA_HOME, else that on PATH; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return Path(program) if program and Path(program).exists() else None


def java() -> Java | None:
    """Return the java that is started here, by what it prints; None if there is none."""
    program = path()
    if program is None:
        return None
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=30).stderr
    except OSError as error:
        return Java(str(program), 0, f"no program that runs: {error.strerror}")
    match = re.search(r'version "(\d+)', said)
    lines = [line for line in said.splitlines() if not line.startswith(_OPTIONS_SHOWN)]
    return Java(str(program), int(match[1]) if match else 0, lines[0] if lines else "no answer")


def fitting() -> Java:
    """Return the java that is started here. Raises UsageError where Spark can't run on it: what is there, what is
    wanted, and how to get it."""
    there = java()
    if there is None:
        raise _error("Java isn't installed")
    if there.major not in JAVAS:
        raise _error(f"{there.program} is " + (f"Java {there.major}" if there.major else there.said))
    return there


def refuse_misfit() -> None:
    """Raise UsageError if Spark can't be started with the Java here; where spark-submit's JVM runs it isn't asked."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    program = path()
    if program is None or _release(program) not in JAVAS:
        fitting()


def _error(there: str) -> UsageError:
    wanted = " or ".join(map(str, JAVAS))
    return UsageError(
        f"{there}, and binlake needs Java {wanted} where Spark is started",
        remedy=f"apt install openjdk-{JAVA}-jre-headless, or set JAVA_HOME to the folder of a Java {wanted}",
    )


def _release(program: Path) -> int:
    """Return the major version by the file ``release`` of Java's folder, as starting a JVM takes a tenth of a second;
    0 where there is none."""
    try:
        text = (program.resolve().parents[1] / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    match = re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE)
    return int(match[1]) if match else 0
