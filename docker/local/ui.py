"""`make ui`: the demo's server and an Airflow with its UI on what the last demo left. Ctrl-C ends both.

It is an Airflow of its own: the demo's runs, made by `airflow dags test`, have no logs that the UI could show. Its DAGs
aren't paused, so that the scheduler's first runs stand there within a minute, and the shop's connection is among the
connections, where it can be tested. Its services are kept running: on SQLite a scheduler ends where its database is
locked for too long, as under a backfill.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import demo
from kept_running import KeptRunning
from servers import ServerFailed, free_port

HOME = demo.FOLDER / "airflow_ui"
PASSWORDS = HOME / "simple_auth_manager_passwords.json.generated"
COMMANDS = """
import json, sys
from airflow.__main__ import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["airflow", *arguments]
    main()
"""
"""Several airflow commands in one process: to import Airflow takes longer than most of them."""
USUAL_PORT = 8080
START_SECONDS = 180
SERVICES = {
    "api-server": (),
    "dag-processor": (),
    # They would serve their logs on every interface of this machine; here the UI reads the files themselves.
    "triggerer": ("--skip-serve-logs",),
    "scheduler": ("--skip-serve-logs",),
}
"""With options, in the order of their start: a task that finds no API server fails."""
FIRST_LOOKS = """Binlake in the navigation: the tables, where they stand, what to do next
Dags: the sync and the upkeep run by themselves now, with logs; trigger binlake_shop_verify to have every value compared
Admin, Connections: shop_mysql, with a Test button
make sql in another terminal: UPDATE orders SET status = 'paid' LIMIT 3, or ALTER TABLE; then trigger binlake_shop_sync,
and see the rows and the statement on the page"""


def log_of(service: str) -> Path:
    return demo.LOGS / f"airflow_ui_{service}.log"


def start(service: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """One of Airflow's services, with what it says at the end of its log."""
    with log_of(service).open("ab") as log:
        return subprocess.Popen(
            [str(demo.BIN / "airflow"), service, *SERVICES[service]],
            cwd=demo.FOLDER,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o077,  # the file with the password is ours alone
        )


def start_all(services: KeptRunning, url: str) -> None:
    """The scheduler is last, once the API server answers."""
    for service in SERVICES:
        if service == "scheduler":
            wait_until_ready(services, url)
        services.begin(service)


def wait_until_ready(services: KeptRunning, url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        for service in services.ended():
            tail = "\n".join(log_of(service).read_text(errors="replace").splitlines()[-30:])
            raise demo.DemoFailed(f"Airflow's {service} ended:\n{tail}")
        try:
            with urllib.request.urlopen(f"{url}/api/v2/monitor/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    raise demo.DemoFailed(f"Airflow did not answer in {START_SECONDS} s")


def login() -> str:
    """Airflow's simple auth manager makes a password at its first start and keeps it in a file."""
    try:
        passwords: dict[str, str] = json.loads(Path(PASSWORDS).read_text())
    except (OSError, ValueError):
        return f"see {os.path.relpath(PASSWORDS)}"
    return ", ".join(f"user {user}, password {password}" for user, password in passwords.items())


def environment(port: int) -> dict[str, str]:
    """Of Airflow's services. The connection's secret is in their database alone."""
    url = f"http://127.0.0.1:{port}"
    variables = demo.environment("") | {
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        # What a scheduler that ended left running is soon taken up by the next one.
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "15",
    }
    del variables["AIRFLOW_CONN_SHOP_MYSQL"]
    return variables


def prepare(env: dict[str, str], connection: str) -> None:
    """The metadata database, and the shop's connection in it; once."""
    if (HOME / "prepared").exists():
        return
    HOME.mkdir(exist_ok=True)
    file = HOME / "connections.json"
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as handed:
        json.dump({"shop_mysql": connection}, handed)
    commands = [["db", "migrate"], ["connections", "import", str(file), "--overwrite"]]
    try:
        demo.run(env, "airflow_ui_db", "python", "-c", COMMANDS, json.dumps(commands))
    finally:
        file.unlink()
    (HOME / "prepared").touch()


def choose_port() -> int:
    """Airflow's usual port where it is free."""
    if asked := os.environ.get("BINLAKE_UI_PORT"):
        return int(asked)
    with socket.socket() as probe:
        return USUAL_PORT if probe.connect_ex(("127.0.0.1", USUAL_PORT)) else free_port()


def main() -> int:
    if not demo.Kept.FILE.exists():
        sys.exit("there is no demo yet: make demo")
    kept = demo.Kept.read()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    server = demo.start_server(kept.kind, kept.port)
    port = choose_port()
    url = f"http://127.0.0.1:{port}"
    env = environment(port)
    logs = os.path.relpath(log_of("*"))
    print(f"{kept.kind} on 127.0.0.1:{kept.port}; Airflow starts, its logs: {logs}", flush=True)
    for service in SERVICES:
        log_of(service).unlink(missing_ok=True)
    services = KeptRunning(lambda service: start(service, env), lambda line: print(f"Airflow's {line}", flush=True))
    try:
        prepare(env, kept.connection)
        start_all(services, url)
        print(f"{url}   {login()}\n{FIRST_LOOKS}\nCtrl-C stops Airflow and the server", flush=True)
        while True:
            time.sleep(1)
            services.look()
    except KeyboardInterrupt:
        print("stopping", flush=True)
        return 0
    finally:
        services.stop()
        server.close()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ServerFailed, demo.DemoFailed) as error:
        sys.exit(str(error))
