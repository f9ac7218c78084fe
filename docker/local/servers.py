"""Private MySQL and MariaDB servers for the demo, the tests and the benchmark.

Each server owns its data folder, a free loopback port and a socket in a short temporary folder; root has
no password and is let in from this machine alone. A server dies with the process that started it.

    with Server("mysql") as server:
        server.execute("CREATE DATABASE shop")
        server.restart(binlog_row_metadata="MINIMAL")

SERVERS in the environment chooses among ``mysql``, ``mariadb`` (the machine's own), ``mariadb-11.4`` and
``mariadb-11.8``: ``SERVERS="mysql mariadb-11.8"``. Without it there are MySQL and the machine's own MariaDB.
"""

from __future__ import annotations

import ctypes
import fcntl
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import pymysql
from pymysql.cursors import Cursor

import time_zones

Kind = Literal["mysql", "mariadb"]
Setting = str | int | bool | None
"""A bool is written ON or OFF, an empty string leaves a bare option, None takes the option away."""

ROOT = Path(__file__).resolve().parents[2]
PRIVATE = ROOT / ".binlake"
MYSQL = PRIVATE / "mysql"

MARIADB_RELEASES = ("11.4", "11.8")
"""Those that docker/local/mariadb.sh brings, each into a folder of its own."""


def chosen(text: str) -> dict[Kind, str]:
    """Return the release for each kind of server that SERVERS names; an empty one is the machine's own.

    Raises ValueError for a name that isn't a server's.
    """
    releases: dict[Kind, str] = {}
    for name in text.replace(",", " ").split() or ["mysql", "mariadb"]:
        kind, _, release = name.partition("-")
        if name != "mysql" and (kind != "mariadb" or (release and release not in MARIADB_RELEASES)):
            known = ["mysql", "mariadb", *(f"mariadb-{known}" for known in MARIADB_RELEASES)]
            raise ValueError(f"SERVERS names {name!r}: {', '.join(known)} are known")
        releases["mysql" if kind == "mysql" else "mariadb"] = release
    return releases


RELEASES = chosen(os.environ.get("SERVERS", ""))
"""What a server's kind stands for, where a release isn't given."""
KINDS: tuple[Kind, ...] = tuple(RELEASES)

START_SECONDS = 90
STOP_SECONDS = 90

COMMON: dict[str, Setting] = {
    "bind_address": "127.0.0.1",
    "skip_name_resolve": True,
    "server_id": 1,
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "log_bin_trust_function_creators": True,
    "default_time_zone": "+00:00",
    "character_set_server": "utf8mb4",
    "max_connections": 100,
    # Small and quick: these servers hold little, and needn't survive the loss of power.
    "innodb_buffer_pool_size": "128M",
    "innodb_flush_log_at_trx_commit": 2,
    "innodb_doublewrite": False,
    "sync_binlog": 0,
}
OF_KIND: dict[Kind, dict[str, Setting]] = {
    "mysql": {
        "mysqlx": False,
        "secure_file_priv": "NULL",
        "gtid_mode": True,
        "enforce_gtid_consistency": True,
        "innodb_redo_log_capacity": "64M",
    },
    "mariadb": {"performance_schema": False, "innodb_log_file_size": "64M"},
}

_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class ServerFailed(Exception):
    """The server isn't installed, didn't start or didn't answer; the text holds the end of its error log."""


def die_with_parent() -> None:
    """Of a child process, before it runs its program."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def program(kind: Kind, name: str, release: str | None = None) -> list[str]:
    """The command that runs a program of this kind's installation: mysqld, mysqlbinlog, mariadb-binlog …

    Raises ServerFailed when the server isn't installed.
    """
    release = RELEASES.get(kind, "") if release is None else release
    private = PRIVATE / f"{kind}-{release}" if release else PRIVATE / kind
    if (private / "root").is_dir():
        return ["bash", str(Path(__file__).with_name(f"{kind}.sh")), "run", str(private), name]
    if release:
        raise ServerFailed(f"{kind} {release} isn't installed; run docker/local/setup.sh {kind}-{release}")
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    # Debian's MariaDB calls itself mysqld too.
    if path is None or (kind == "mysql" and "mariadb" in os.path.realpath(path)):
        raise ServerFailed(f"{name} of {kind} isn't installed; run make setup, or install it yourself")
    return [path]


def _daemon(kind: Kind, release: str | None = None) -> list[str]:
    return program(kind, "mysqld" if kind == "mysql" else "mariadbd", release)


def installed(kind: Kind, release: str | None = None) -> bool:
    try:
        return bool(_daemon(kind, release))
    except ServerFailed:
        return False


def version(kind: Kind, release: str | None = None) -> str:
    """``9.7.4`` or ``10.11.14-MariaDB…``."""
    done = subprocess.run([*_daemon(kind, release), "--no-defaults", "--version"], capture_output=True, text=True)
    words = done.stdout.split()
    if "Ver" not in words:
        raise ServerFailed(f"{kind} doesn't run here:\n{done.stdout}{done.stderr}")
    return words[words.index("Ver") + 1]


def free_port() -> int:
    """Return a port on which nobody listens, of those that the system gives to no connection.

    So it is as free when a server that starts for seconds, or starts again, takes it.
    """
    first_of_connections = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    others = range(max(1024, first_of_connections - 12_000), first_of_connections)
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", secrets.choice(others) if others else 0))
            return int(probe.getsockname()[1])


def _options(settings: dict[str, Setting]) -> list[str]:
    texts: list[str] = []
    for name, value in settings.items():
        option = f"--{name.replace('_', '-')}"
        if value is None:
            continue
        if isinstance(value, bool):
            value = "ON" if value else "OFF"
        texts.append(option if value == "" else f"{option}={value}")
    return texts


class Server:
    """One server process and its data folder.

    ``datadir`` is initialised when it is empty, and kept; without one a temporary folder is used, gone
    after the context. release: one of MARIADB_RELEASES; RELEASES decides without it. Further keywords are server
    settings.
    """

    def __init__(
        self,
        kind: Kind,
        datadir: Path | None = None,
        *,
        port: int = 0,
        release: str | None = None,
        **settings: Setting,
    ) -> None:
        self.kind = kind
        self.release = RELEASES.get(kind, "") if release is None else release
        self.port = port
        self.settings: dict[str, Setting] = {**COMMON, **OF_KIND[kind], **settings}
        self._temporary = datadir is None
        _sweep()
        self.datadir = datadir or _temporary_folder("data")
        self._socket_folder = _temporary_folder("s")  # short: a socket's path has 107 bytes at most
        self.process: subprocess.Popen[bytes] | None = None

    # -- life ---------------------------------------------------------------------------------------

    @property
    def socket(self) -> str:
        return str(self._socket_folder / "s")

    @property
    def error_log(self) -> Path:
        return self.datadir / "error.log"

    @property
    def pid(self) -> int:
        """Raises ServerFailed when it isn't running."""
        if self.process is None:
            raise ServerFailed(f"{self.kind} isn't running")
        return self.process.pid

    def start(self) -> Server:
        """Returns once it answers. Raises ServerFailed with the end of its error log."""
        if self.process is not None:
            return self
        if not (self.datadir / "mysql").exists():
            _copy_template(self.kind, self.release, self.datadir, lower_case="lower_case_table_names" in self.settings)
        for _ in range(3):
            chosen = self.port or free_port()
            if self._start_on(chosen):
                self.port = chosen
                return self
            if self.port:
                break
        raise ServerFailed(f"{self.kind} did not start:\n{self._log_tail()}")

    def _start_on(self, port: int) -> bool:
        command = [*_daemon(self.kind, self.release), "--no-defaults", f"--datadir={self.datadir}", f"--port={port}"]
        command += [f"--socket={self.socket}", f"--pid-file={self._socket_folder / 'pid'}"]
        # One of its own: MariaDB removes every #sql file in there when it starts (mysql_rm_tmp_tables).
        command += [f"--tmpdir={self._socket_folder}"]
        command += [f"--log-error={self.error_log}", *_as_root(), *_options(self.settings)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us: we stop it in order
            preexec_fn=die_with_parent,
        )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                self.process = None
                return False
            try:
                self.connect().close()
                return True
            except pymysql.err.MySQLError:
                time.sleep(0.05)
        self.kill()
        raise ServerFailed(f"{self.kind} did not answer in {START_SECONDS} s:\n{self._log_tail()}")

    def _log_tail(self) -> str:
        if not self.error_log.exists():
            return "(no error log)"
        return "\n".join(self.error_log.read_text(errors="replace").splitlines()[-25:])

    def stop(self) -> None:
        """In order: the log gets its end. Killed only if that takes too long."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def kill(self) -> None:
        """As if the machine's owner had used kill -9."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        self.process = None

    def restart(self, **settings: Setting) -> Server:
        """Stop, change settings, start: the same port, the same data."""
        self.stop()
        self.settings.update(settings)
        return self.start()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._socket_folder, ignore_errors=True)
        if self._temporary:
            shutil.rmtree(self.datadir, ignore_errors=True)

    def __enter__(self) -> Server:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- use ----------------------------------------------------------------------------------------

    def connect(self, **options: Any) -> pymysql.Connection[Cursor]:
        """As root through the socket, autocommit; keywords as pymysql's."""
        defaults: dict[str, Any] = {"user": "root", "charset": "utf8mb4", "autocommit": True, "ssl_disabled": True}
        return pymysql.connect(unix_socket=self.socket, **{**defaults, **options})

    def execute(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """One connection, each statement in turn; the rows of the last."""
        rows: list[tuple[Any, ...]] = []
        with self.connect(database=database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
            session = connection.thread_id()  # type: ignore[no-untyped-call]
        if any(statement.startswith("XA PREPARE") for statement in statements):
            self._wait_for_end(session)
        return rows

    def _wait_for_end(self, session: int) -> None:
        """Wait until the server has ended a session whose client has left: until then MariaDB lets nobody else end a
        transaction that it prepared. Raises TimeoutError."""
        patience = time.monotonic() + 30.0
        while self.execute(f"SELECT 1 FROM information_schema.processlist WHERE id = {session}"):
            if time.monotonic() > patience:
                raise TimeoutError(f"session {session} continues though its client has left")
            time.sleep(0.01)

    def variable(self, name: str) -> str:
        return str(self.execute(f"SELECT @@GLOBAL.{name}")[0][0])

    @contextmanager
    def setting(self, name: str, value: str | int) -> Iterator[None]:
        """A global variable changed for a while; sessions that are open keep theirs."""
        before = self.variable(name)
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SET GLOBAL {name} = %s", (value,))
        try:
            yield
        finally:
            with self.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"SET GLOBAL {name} = %s", (int(before) if before.isdigit() else before,))

    def create_account(self, user: str, password: str, grants: Sequence[str] = ()) -> None:
        """``user``@'%' with grants such as ``SELECT ON shop.*``."""
        with self.connect() as connection:
            account = f"{connection.escape(user)}@'%'"
            secret = connection.escape(password)
        self.execute(
            f"CREATE USER {account} IDENTIFIED BY {secret}",
            *(f"GRANT {grant} TO {account}" for grant in grants),
        )

    def uri(self, user: str = "root", password: str = "") -> str:
        """An Airflow connection to it, as its environment variable holds it."""
        return f"mysql://{user}:{password}@127.0.0.1:{self.port}/"


def _as_root() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []  # servers refuse root unless told


# -- temporary folders: named by the process they belong to, so that a killed one's can be swept up ----------


def _temporary_folder(what: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"binlake-{what}-{os.getpid()}-"))


def _sweep() -> None:
    """Remove what processes left that were killed; the servers in there died with them."""
    for folder in Path(tempfile.gettempdir()).glob("binlake-*-*-*"):
        what, owner = folder.name.split("-")[1:3]
        if what in ("data", "s") and owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)


# -- templates: a fresh data folder takes seconds to make and a moment to copy ---------------------------


def _copy_template(kind: Kind, release: str, datadir: Path, *, lower_case: bool) -> None:
    template = _template(kind, release, lower_case and kind == "mysql")  # MariaDB takes any data folder
    datadir.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", "--reflink=auto", f"{template}/.", str(datadir)], check=True)


def _template(kind: Kind, release: str, lower_case: bool) -> Path:
    """The initialised data folder of this version, made once. lower_case: with lower_case_table_names=1."""
    folder = PRIVATE / "templates"
    folder.mkdir(parents=True, exist_ok=True)
    template = folder / (f"{kind}-{version(kind, release)}" + ("-lower" if lower_case else ""))
    with _locked(folder / f".{kind}.lock"):
        if not template.exists():
            fresh = folder / f".{template.name}.fresh"
            shutil.rmtree(fresh, ignore_errors=True)
            try:
                _initialise(kind, release, fresh, {"lower_case_table_names": 1} if lower_case else {})
                fresh.rename(template)  # whole or not at all
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
    return template


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _initialise(kind: Kind, release: str, datadir: Path, forever: dict[str, Setting]) -> None:
    """forever: settings that a data folder keeps."""
    datadir.mkdir(parents=True)
    # The template's own statements stay out of the log: a new server's log is empty.
    without_log: dict[str, Setting] = {"log_bin": None, "skip_log_bin": ""}
    if kind == "mysql":
        sizes = _options({"innodb_redo_log_capacity": OF_KIND[kind]["innodb_redo_log_capacity"]})
        command = [*_daemon(kind, release), "--no-defaults", f"--datadir={datadir}", "--initialize-insecure"]
        command += [*_as_root(), *sizes, *_options(without_log | forever)]
    else:
        command = [*program(kind, "mariadb-install-db", release), "--no-defaults", f"--datadir={datadir}"]
        command += [f"--user={getpass.getuser()}", "--auth-root-authentication-method=normal", "--skip-test-db"]
        size = OF_KIND[kind]["innodb_log_file_size"]
        command += [f"--innodb-log-file-size={size}", "--skip-log-bin"]
    with tempfile.TemporaryDirectory() as own:  # see Server._start_on
        environment = {**os.environ, "TMPDIR": own}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    if done.returncode:
        raise ServerFailed(f"{kind} can't make a data folder:\n" + "\n".join(done.stdout.splitlines()[-25:]))
    if kind == "mysql":
        without_log["gtid_mode"] = without_log["enforce_gtid_consistency"] = False
    server = Server(kind, datadir, release=release)
    server.settings.update(without_log | forever)
    try:
        server.start()
        server.execute(
            "CREATE USER IF NOT EXISTS root@127.0.0.1 IDENTIFIED BY ''",
            "GRANT ALL ON *.* TO root@127.0.0.1 WITH GRANT OPTION",
        )
        with server.connect(database="mysql") as connection, connection.cursor() as cursor:
            time_zones.load(cursor)
    finally:
        server.close()
    for name in ("auto.cnf", "error.log"):
        (datadir / name).unlink(missing_ok=True)  # each copy gets a server_uuid of its own
