"""A Hive metastore of its own, on loopback: PySpark brings the jars of one."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

_SITE = """<configuration>
<property><name>javax.jdo.option.ConnectionURL</name><value>jdbc:derby:;databaseName={folder}/db;create=true</value></property>
<property><name>datanucleus.schema.autoCreateAll</name><value>true</value></property>
<property><name>hive.metastore.schema.verification</name><value>false</value></property>
<property><name>hive.metastore.warehouse.dir</name><value>{folder}/warehouse</value></property>
<property><name>hive.async.log.enabled</name><value>false</value></property>
</configuration>"""


@contextmanager
def hive_metastore(folder: Path) -> Iterator[str]:
    """Gives its address once it answers."""
    folder.mkdir()
    (folder / "hive-site.xml").write_text(_SITE.format(folder=folder))
    jars = Path(pyspark.__file__).parent / "jars"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    main = "org.apache.hadoop.hive.metastore.HiveMetaStore"
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}:{jars}/*", main, "-p", str(port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        for _ in range(600):
            assert process.poll() is None, (folder / "log").read_text()
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
