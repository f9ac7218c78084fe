"""An Iceberg REST catalog for tests: Iceberg's own handlers over SQLite, in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from binlake.spark import settings
from servers import PRIVATE

TOKEN = "of-the-tests"
_SOURCE = Path(__file__).with_name("RestCatalogServer.java")
_SPARK = Path(pyspark.__file__).parent / "jars"


def why_missing() -> str:
    """Return why none can be started here; empty where it can."""
    if not (PRIVATE / "iceberg-rest").is_dir():
        return "docker/local/setup.sh iceberg_rest brings Iceberg's REST catalog"
    return "" if shutil.which("javac") else "it is started from its source, which needs a JDK"


def _site(store: Mapping[str, str]) -> str:
    """Hadoop's settings of a store."""
    named = {
        "fs.s3a.endpoint": store["AWS_ENDPOINT_URL"],
        "fs.s3a.endpoint.region": store["AWS_REGION"],
        "fs.s3a.access.key": store["AWS_ACCESS_KEY_ID"],
        "fs.s3a.secret.key": store["AWS_SECRET_ACCESS_KEY"],
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.input.stream.type": "classic",
    }
    written = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in named.items())
    return f"<configuration>{''.join(written)}</configuration>"


@contextmanager
def iceberg_rest_server(folder: Path, store: Mapping[str, str] | None = None) -> Iterator[str]:
    """A catalog in a folder; its address. store: variables of an S3 store in which tables may be."""
    folder.mkdir()
    jars = f"{PRIVATE / 'iceberg-rest'}/*:{_SPARK}/*"
    if store:
        (folder / "core-site.xml").write_text(_site(store))
        jars += f":{folder}:{settings.JARS}/*"  # which has Hadoop's classes for S3
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
