"""Hadoop's own HDFS on loopback: a NameNode and a DataNode, each a process."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pyspark

import peers
from servers import die_with_parent, free_port

START_SECONDS = 120
_SERVER = "org.apache.hadoop.hdfs.server"
_JAVA = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class HdfsServers:
    """Raises PeerMissing where they can't be had."""

    def __init__(self, folder: Path) -> None:
        built = peers.built("hdfs")
        self._folder, port = folder, free_port()
        self.url = f"hdfs://127.0.0.1:{port}"
        free = {
            f"dfs.{which}": "127.0.0.1:0"
            for which in ("namenode.http-address", "datanode.address", "datanode.ipc.address", "datanode.http.address")
        }
        properties = {
            "fs.defaultFS": self.url,
            "dfs.namenode.name.dir": f"file://{folder}/names",
            "dfs.datanode.data.dir": f"file://{folder}/blocks",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.replication": "1",
            **free,
        }
        folder.mkdir(parents=True)
        lines = (
            f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items()
        )
        (folder / "hdfs-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
        jars = f"{folder}:{built}/target/lib/*:{Path(pyspark.__file__).parent}/jars/*"
        self._java = ["java", *_JAVA, "-cp", jars]
        self._port = port

    def __enter__(self) -> HdfsServers:
        with (self._folder / "log").open("wb") as log:
            name, data = f"{_SERVER}.namenode.NameNode", f"{_SERVER}.datanode.DataNode"
            command = [*self._java, name, "-format", "-nonInteractive"]
            subprocess.run(command, stdout=log, stderr=log, check=True, cwd=self._folder)
            self._processes = [
                subprocess.Popen(
                    [*self._java, server], stdout=log, stderr=log, cwd=self._folder, preexec_fn=die_with_parent
                )
                for server in (name, data)
            ]
        deadline = time.monotonic() + START_SECONDS
        while not self._is_up():
            assert all(process.poll() is None for process in self._processes), (self._folder / "log").read_text()
            assert time.monotonic() < deadline, "HDFS doesn't answer"
            time.sleep(0.2)
        return self

    def _is_up(self) -> bool:
        """A DataNode that has its folder of blocks has spoken with its NameNode."""
        with socket.socket() as tried:
            answers = tried.connect_ex(("127.0.0.1", self._port)) == 0
        return answers and any(self._folder.glob("blocks/current/BP-*/current/finalized"))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
