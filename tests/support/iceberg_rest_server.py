"""An Iceberg REST catalog for tests: Iceberg's own handlers over SQLite, in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from servers import PRIVATE

TOKEN = "of-the-tests"
_SOURCE = Path(__file__).with_name("RestCatalogServer.java")
_SPARK = Path(pyspark.__file__).parent / "jars"


def why_missing() -> str:
    """Return why none can be started here; empty where it can."""
    if not (PRIVATE / "iceberg-rest").is_dir():
        return "docker/local/setup.sh iceberg_rest brings Iceberg's REST catalog"
    return "" if shutil.which("javac") else "it is started from its source, which needs a JDK"


@contextmanager
def iceberg_rest_server(folder: Path) -> Iterator[str]:
    """A catalog in a folder; its address."""
    folder.mkdir()
    jars = f"{PRIVATE / 'iceberg-rest'}/*:{_SPARK}/*"
    command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jars, str(_SOURCE), str(folder), TOKEN]
    with open(folder / "log", "w") as log:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ)
        try:
            assert server.stdout is not None
            word, _, port = server.stdout.readline().partition(" ")
            assert word == "port", (folder / "log").read_text()
            yield f"http://127.0.0.1:{port.strip()}"
        finally:
            server.kill()
            server.wait()
