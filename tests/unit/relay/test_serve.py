"""The relay's start: it keeps staging once it listens on all its ports, and not before."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from binlake.cli import command_line
from binlake.records.feed_watermarks import RELAY
from binlake.store.metadata import Metadata
from recorded_lake import record_lake
from servers import die_with_parent


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    record_lake(tmp_path / "shop", {"shop.t": pa.table({"id": [1]})})
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("a secret of the tests")
    (tmp_path / "shop.yaml").write_text(
        "source: {name: shop, connection: c, server_id: 4001}\n"
        f"tables: {{include: ['shop.*']}}\nlake: {{path: {tmp_path}}}\n"
    )
    return ["relay", "--config", f"{tmp_path}/shop.yaml", "--secret-file", f"{tmp_path}/secret", "--port", "0"]


def feeds(folder: Path) -> list[str]:
    return [row["feed"] for row in Metadata(f"{folder}/shop/_binlake").read("feeds")]


def test_a_relay_that_can_not_listen_keeps_no_staging(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert command_line.run([*arguments, "--monitor-port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"can't listen on 127.0.0.1:{port}: " in said
    assert "the relay listens" not in said
    assert feeds(tmp_path) == []


def test_a_relay_listens_on_both_ports_until_it_is_ended(tmp_path: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "binlake.cli.command_line", *arguments, "--monitor-port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent) as process:
        assert process.stderr is not None
        assert "the relay listens on 127.0.0.1:" in process.stderr.readline()
        page = process.stderr.readline()
        with socket.create_connection(("127.0.0.1", int(page.rstrip("/\n").rpartition(":")[2]))) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"
        for host, answer in (("localhost:80", b"200"), ("evil.example", b"400"), ("127.0.0.1.evil.example", b"400")):
            with socket.create_connection(("127.0.0.1", int(page.rstrip("/\n").rpartition(":")[2]))) as connection:
                connection.sendall(f"GET /status.json HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                assert connection.recv(12) == b"HTTP/1.1 " + answer
        assert feeds(tmp_path) == [RELAY]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
