"""AWS Glue for tests: moto's server, in a process of its own, and boto3, by which pyiceberg reads from it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from servers import PRIVATE

_MOTO = PRIVATE / "moto"
_SERVE = """
import sys
sys.path.append(sys.argv[1])
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(*server.get_host_and_port(), flush=True)
sys.stdin.read()
"""
REGION = "eu-central-1"
ACCOUNT = {
    "AWS_ACCESS_KEY_ID": "AKIA0000000000000001",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests",
    "AWS_SESSION_TOKEN": "token-of-the-tests",
    "AWS_CONFIG_FILE": "/nowhere",
    "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Variables of AWS's chain of credentials, which looks nowhere else with them."""


def why_missing() -> str:
    """Return why none can be started here; empty where it can."""
    return "" if _MOTO.is_dir() else "docker/local/setup.sh moto brings a stand-in of AWS Glue"


def make_boto3_importable() -> None:
    """Let boto3 be found, behind everything else."""
    if str(_MOTO) not in sys.path:
        sys.path.append(str(_MOTO))


@contextmanager
def glue_server() -> Iterator[str]:
    """A server; its address. It ends with this process, too."""
    command = [sys.executable, "-c", _SERVE, str(_MOTO)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            host, port = server.stdout.readline().split()
            yield f"http://{host}:{port}"
        finally:
            server.kill()
