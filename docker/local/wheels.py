"""The last step of `make lock`: each locked package has a wheel for each machine and Python that binlake runs on.

Nothing is downloaded but what the registry says of the packages. Exit code: 0 if nothing is missing, 1 otherwise.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import platforms
from servers import ROOT

LOCK = ROOT / "docker" / "requirements.lock"
MACHINES = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")
"""As uv calls them: Linux with glibc 2.28 or newer."""
BUILT = ("pyspark", "pyspark-client")
"""Published as sources alone, of Python and jars, which are built in the same way on every machine."""
MISSING = re.compile(r"Because (\S+)==\S+ has no")


def locked(text: str) -> dict[str, str]:
    """Return the entries of a lock file, with their hashes, by package."""
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)
    return {entry.partition("==")[0].partition("[")[0]: entry for entry in entries if "==" in entry}


def missing(entries: dict[str, str], machine: str, python: str) -> str:
    """Return the package that has no wheel there, with what uv says of it; empty if each has one."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "wanted.lock"
        wanted.write_text("".join(entry for package, entry in entries.items() if package not in BUILT))
        command = [platforms.uv(), "pip", "install", "--dry-run", "-q", "--no-deps", "--require-hashes"]
        command += ["--only-binary", ":all:", "--python-platform", machine, "--python-version", python]
        done = subprocess.run([*command, "--target", folder, "-r", wanted], capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    match = MISSING.search(done.stderr)
    return match[1] if match else done.stderr.strip()


def lines(text: str) -> Iterator[tuple[bool, str]]:
    """Yield for each machine and Python whether all wheels are there, and a line that says so."""
    known = tomllib.loads(platforms.FILE.read_text(encoding="utf-8"))["python"]
    entries = locked(text)
    for machine in MACHINES:
        for row in known:
            lacking = missing(entries, machine, row["release"])
            where = f"Python {row['release']} on {machine}"
            yield not lacking, f"{where}: no wheel of {lacking}" if lacking else f"{where}: all wheels are there"


def main() -> int:
    """Print a line for each machine and Python."""
    complete = True
    for fits, line in lines(LOCK.read_text(encoding="utf-8")):
        print(line, file=sys.stdout if fits else sys.stderr)
        complete = complete and fits
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
