"""A host that leads to servers: an sshd of this test's own on loopback, which runs under an account without rights."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from servers import PRIVATE, die_with_parent, free_port

_UNPACKED = PRIVATE / "sshd"
_NOBODY = "nobody"
_STARTS_WITHIN = 20.0


def _program() -> Path:
    system = Path("/usr/sbin/sshd")
    return system if system.exists() else _UNPACKED / "usr" / "sbin" / "sshd"


def new_key(path: Path, passphrase: str = "") -> str:
    """Make a pair of keys, and return the public one."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


@dataclass
class Bastion:
    """Takes who has one of the public keys, and with a password who knows it."""

    keys: list[str]
    password: str = ""
    port: int = field(default_factory=free_port)

    def __enter__(self) -> Bastion:
        self.folder = Path(tempfile.mkdtemp(prefix="binlake-bastion-"))
        self.host_key = new_key(self.folder / "host")
        (self.folder / "authorized").write_text("\n".join(self.keys) + "\n")
        (self.folder / "config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\nPidFile none\nUsePAM yes\n"
            f"AuthorizedKeysFile {self.folder}/authorized\nStrictModes no\n"
            f"PasswordAuthentication {'yes' if self.password else 'no'}\n"
            "KbdInteractiveAuthentication no\nMaxStartups 100\n"
        )
        # The account may not enter the checkout's folder, wherever that is.
        self._sshd = Path(shutil.copy(_program(), self.folder / "sshd"))
        for library in _UNPACKED.glob("usr/lib/*/libwrap.so.*"):
            shutil.copy(library, self.folder / library.name)
        self._env = {"LD_LIBRARY_PATH": str(self.folder)}
        self._account: dict[str, Any] = {}
        self.user = pwd.getpwuid(os.getuid()).pw_name
        if os.getuid() == 0:
            there = pwd.getpwnam(_NOBODY)
            self.user, self._account = _NOBODY, {"user": there.pw_uid, "group": there.pw_gid, "extra_groups": []}
        if self.password:
            self._know_password()
        for path in (self.folder, *self.folder.rglob("*")) if self._account else ():
            os.chown(path, self._account["user"], self._account["group"])
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _know_password(self) -> None:
        """Give sshd a PAM of its own, in which the account has the password."""
        for library in _UNPACKED.glob("usr/lib/*/**/*pam_*.so"):
            shutil.copy(library, self.folder / library.name)
        (self.folder / "passwords").write_text(f"{self.user}:{self.password}:sshd\n")
        asks = f"required {self.folder}/pam_matrix.so passdb={self.folder}/passwords\n"
        service = self.folder / "pam" / "sshd"
        service.parent.mkdir()
        service.write_text("".join(f"{kind} {asks}" for kind in ("auth", "account", "password", "session")))
        wrapper = {"LD_PRELOAD": str(self.folder / "libpam_wrapper.so"), "PAM_WRAPPER": "1"}
        self._env |= wrapper | {"PAM_WRAPPER_SERVICE_DIR": str(service.parent), "TMPDIR": str(self.folder)}

    def start(self) -> None:
        with open(self.folder.with_suffix(".log"), "ab") as said:
            self._process = subprocess.Popen(
                [str(self._sshd), "-D", "-e", "-f", str(self.folder / "config")],
                env=self._env, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True, preexec_fn=die_with_parent, **self._account,
            )  # fmt: skip
        deadline = time.monotonic() + _STARTS_WITHIN
        while True:
            assert self._process.poll() is None, self.folder.with_suffix(".log").read_text()
            assert time.monotonic() < deadline
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)

    def stop(self) -> None:
        """End the listener, and all ways that lead through it."""
        self._process.kill()
        self._process.wait()
        self.cut()
        self.folder.with_suffix(".log").unlink(missing_ok=True)

    @property
    def accepted(self) -> int:
        """How many connections were let in since it was started."""
        return self.folder.with_suffix(".log").read_text().count("Accepted publickey")

    def cut(self) -> int:
        """Kill the ways that are open now; return how many processes they were. New ones can be opened."""
        served = [pid for pid in self._served() if pid != self._process.pid]
        for pid in served:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(served)

    def _served(self) -> list[int]:
        """The processes of this sshd: each connection has a copy of the program."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (entry / "exe").readlink() == self._sshd:
                    found.append(int(entry.name))
        return found

    def connection(self, **extra: Any) -> dict[str, Any]:
        """The fields of an Airflow connection."""
        known = {"host_key": self.host_key, **extra}
        fields = {"conn_type": "ssh", "host": "127.0.0.1", "port": self.port, "login": self.user, "extra": known}
        return fields | ({"password": self.password} if self.password else {})
