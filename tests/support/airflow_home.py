"""An Airflow of a test's own: its home, its DAGs folder, its database, and an eye on secrets."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.request import urlopen

from cryptography.fernet import Fernet

from binlake.config import PipelineConfig, load
from binlake.source.endpoint import Endpoint
from mirror import SHORT_LIVED
from servers import Server, free_port

ROOT = Path(__file__).parents[2]
BIN = Path(sys.prefix) / "bin"
YAML = """
source: {{name: shop, connection: shop_mysql, server_id: {server_id}}}
tables: {{include: ["{database}.*"], exclude: ["{database}.audit_*"]}}
lake: {{path: "{lake}"}}
schedule: "{schedule}"
maintain: {{schedule: null, staging_hours: 24}}
verify: {{schedule: null}}
airflow: {{retry_delay_seconds: 5}}
"""

_FERNET_KEY = "81HqDtbqAywKSOumSha3BhWNOdQ26slT6K0YaZeZyPs="
COMMANDS = """
import json, sys
from airflow.__main__ import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["airflow", *arguments]
    main()
"""
"""Several airflow commands in one process: to import Airflow takes longer than most of them."""
SERVICE = """
import sys
from airflow.__main__ import main
import binlake.pipeline, binlake_airflow.pipelines
sys.argv[0] = "airflow"
main()
"""
"""A service whose children, forked for each task, find imported what all of them need."""


@dataclass
class AirflowHome:
    """``folder`` holds everything: home, DAGs, lake, the programs' output."""

    folder: Path
    server: Server
    database: str
    user: str
    password: str
    server_id: int = 4001
    schedule: str = "0 * * * *"
    paused: bool = False
    """New DAGs are, as Airflow has it by default."""
    settings: dict[str, str] = field(default_factory=dict)
    """Of Airflow, as variables of its environment, beside those that all have."""
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """The services, by name."""
    _migrated: ClassVar[bytes] = b""
    """Airflow's database, as an Airflow without a past has it."""

    def __post_init__(self) -> None:
        self.port = free_port()
        pipelines = self.folder / "dags" / "pipelines"
        pipelines.mkdir(parents=True)
        (self.folder / "output").mkdir()
        shutil.copy(ROOT / "dags" / "binlake_dags.py", self.folder / "dags")
        config = self.folder / "home" / "config"  # Airflow imports from it
        config.mkdir(parents=True)
        shutil.copy(ROOT / "tests/support/waiting_sqlite.py", config)
        self.yaml = pipelines / "shop.yaml"
        self.yaml.write_text(
            YAML.format(
                server_id=self.server_id, database=self.database, lake=self.folder / "lake", schedule=self.schedule
            )
        )
        self._set_up()

    def _set_up(self) -> None:
        """The database, made once in a process, and its connection."""
        if not AirflowHome._migrated:
            self.run("db", "migrate")
            with closing(sqlite3.connect(self.database_file)) as made:
                AirflowHome._migrated = made.serialize()
        self.database_file.write_bytes(AirflowHome._migrated)
        password = Fernet(_FERNET_KEY).encrypt(self.password.encode()).decode()
        with closing(sqlite3.connect(self.database_file)) as database, database:
            database.execute(
                "INSERT INTO connection (conn_id, conn_type, host, port, login, password, is_encrypted,"
                " is_extra_encrypted) VALUES ('shop_mysql', 'mysql', '127.0.0.1', ?, ?, ?, 1, 0)",
                (self.server.port, self.user, password),
            )

    @property
    def database_file(self) -> Path:
        """Airflow's own."""
        return self.folder / "home" / "airflow.db"

    @property
    def url(self) -> str:
        """Of the API server and the UI."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def admin(self) -> tuple[str, str]:
        """Name and password that Airflow's simple auth manager made at its first start."""
        made = self.folder / "home" / "simple_auth_manager_passwords.json.generated"
        ((name, password),) = json.loads(made.read_text()).items()
        return name, password

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        return kept | {
            "AIRFLOW_HOME": str(self.folder / "home"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": str(self.paused),
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "3",
            "AIRFLOW__CORE__FERNET_KEY": _FERNET_KEY,
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            # Our one file doesn't change; it is parsed again now and then.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "120",
            "AIRFLOW__API_AUTH__JWT_SECRET": "of the tests " * 8,
            **SHORT_LIVED,
            **self.settings,
        }

    @property
    def config(self) -> PipelineConfig:
        return load(self.yaml)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.server.port, self.user, self.password)

    def run(self, *arguments: str, timeout: float = 900, succeeds: bool = True, **environment: str) -> str:
        """One airflow command; both its streams. Raises AssertionError with their end where it ends otherwise."""
        name = "_".join(argument.strip("-") for argument in arguments[:3] if "/" not in argument)
        return self._await(name, [str(BIN / "airflow"), *arguments], environment, timeout, succeeds=succeeds)

    def run_beside_services(self, *arguments: str) -> str:
        """One that writes to the database while the services do."""
        return self.run(*arguments, AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS="waiting_sqlite.CONNECT_ARGS")

    def _await(
        self, name: str, command: list[str], environment: dict[str, str], timeout: float = 900, *, succeeds: bool = True
    ) -> str:
        path = self.folder / "output" / f"{name}_{time.time_ns()}.log"
        with path.open("wb") as output:
            done = subprocess.run(
                command, cwd=self.folder, env=self.env | environment, timeout=timeout,
                stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        said = path.read_text(errors="replace")
        assert (done.returncode == 0) == succeeds, said[-6000:]
        return said

    def test_dag(self, dag: str, *, succeeds: bool = True, **conf: Any) -> str:
        """`airflow dags test`."""
        return self.run(*dag_test(dag, **conf), succeeds=succeeds)

    def run_all(self, name: str, *commands: Sequence[str], **environment: str) -> str:
        """Airflow commands, one after the other in one process; what they say."""
        return self._await(name, [sys.executable, "-c", COMMANDS, json.dumps(commands)], environment)

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of Airflow's metadata database."""
        connection = sqlite3.connect(self.database_file, timeout=30)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def states(self, dag: str) -> dict[str, str]:
        """Task states of the newest run."""
        rows = self.query(
            "SELECT task_id, state FROM task_instance WHERE dag_id = ? AND run_id ="
            " (SELECT run_id FROM dag_run WHERE dag_id = ? ORDER BY id DESC LIMIT 1)",
            dag,
            dag,
        )
        return dict(rows)

    @contextmanager
    def services(self) -> Iterator[None]:
        """API server, scheduler and DAG processor, as in production; ended with all they started.

        The scheduler is last: a task that finds no API server fails, and is tried again after half a minute only.
        It serves no logs: nobody reads them here, and the port would be the same for every Airflow of a machine.
        """
        try:
            self._start("api-server")
            self._start("dag-processor")
            wait_for("the start of the API server", 300, self._answers)
            self.start_scheduler()
            yield
        finally:
            for process in self.running.values():
                process.terminate()
            for process in self.running.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(60)
                _kill(process)  # a scheduler that is killed leaves its workers

    def start_scheduler(self) -> None:
        """Start it, at first or again."""
        self._start("scheduler", "--skip-serve-logs")

    def kill_scheduler(self) -> None:
        """Kill it, with the tasks that it runs."""
        _kill(self.running["scheduler"])

    def _start(self, service: str, *options: str) -> None:
        program = [sys.executable, "-c", SERVICE] if service == "scheduler" else [str(BIN / "airflow")]
        with open(self.folder / "output" / f"{service}.log", "ab") as output:
            self.running[service] = subprocess.Popen(
                [*program, service, *options], cwd=self.folder, env=self.env,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _answers(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/execution/health", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def files_with(self, secret: str) -> list[Path]:
        """Files below the folder that hold it."""
        wanted = secret.encode()
        return [path for path in self.folder.rglob("*") if path.is_file() and wanted in path.read_bytes()]


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def dag_test(dag: str, **conf: Any) -> tuple[str, ...]:
    """The command `airflow dags test`."""
    return "dags", "test", *(["--conf", json.dumps(conf)] if conf else []), dag


class ProcessWatch:
    """Samples the arguments of all processes, and remembers those that hold a secret."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.leaks: set[bytes] = set()
        self.jobs_seen = 0

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            for entry in os.listdir("/proc"):
                if not entry.isdigit():
                    continue
                try:
                    with open(f"/proc/{entry}/cmdline", "rb") as file:
                        arguments = file.read()
                except OSError:
                    continue
                if b"org.apache.spark.deploy.SparkSubmit" in arguments:
                    self.jobs_seen += 1
                if self._secret in arguments:
                    self.leaks.add(arguments)

    def __enter__(self) -> ProcessWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def wait_for(what: str, seconds: float, ready: Any) -> None:
    """Poll; raises AssertionError that names what didn't come."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"{what} took longer than {seconds} s"
        time.sleep(1)
