"""Other programs of this field, built from docker/peers by the machine's own go and mvn, for benches and tests."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from servers import PRIVATE, ROOT

SOURCES = ROOT / "docker" / "peers"
BUILT = PRIVATE / "peers"
BUILD_SECONDS = 900
_NOT_TO_BE_HAD = re.compile(r"could not (be )?(resolve|transfer|find artifact)|dial tcp|no such host", re.IGNORECASE)


class PeerMissing(Exception):
    """It can't be built here; the text says why."""


def built(name: str) -> Path:
    """The folder with what was built of docker/peers/``name``, made again when its sources changed.

    Raises PeerMissing where its tools, or what they would fetch, can't be had, SystemExit where its sources are wrong.
    """
    source, target = SOURCES / name, BUILT / name
    tool = "mvn" if (source / "pom.xml").exists() else "go"
    stamp, sources = target / ".built", _digest(source)
    if stamp.exists() and stamp.read_text() == sources:
        return target
    program = shutil.which(tool) or shutil.which(tool, path="/usr/local/go/bin:/usr/share/maven/bin")
    if program is None:
        raise PeerMissing(f"{tool} isn't installed")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    command = [program, "build", "-o", "peer", "."] if tool == "go" else [program, "-q", "-B", "package"]
    done = subprocess.run(command, cwd=target, capture_output=True, text=True, timeout=BUILD_SECONDS)
    if done.returncode:
        output = (done.stdout + done.stderr).strip()[-2000:]
        if _NOT_TO_BE_HAD.search(output):
            raise PeerMissing(f"{tool} can't fetch what it is built of: {output}")
        raise SystemExit(f"{name} doesn't build:\n{output}")
    stamp.write_text(sources)
    return target


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def java(name: str, main: str, *options: str, libraries: str | None = None) -> list[str]:
    """The command of a class of a peer that Maven built, without its arguments. libraries: of another peer's."""
    lib = BUILT / (libraries or name) / "target" / "lib"
    return ["java", *options, "-cp", f"{BUILT / name / 'target' / 'peer.jar'}:{lib}/*", f"peers.{main}"]
