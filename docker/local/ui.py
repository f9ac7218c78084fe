"""`make ui`: the demo's server and an Airflow with its UI on what the last demo left. Ctrl-C ends both.

It is an Airflow of its own: the demo's runs, made by `airflow dags test`, have no logs that the UI could show. Its DAGs
aren't paused, so that the scheduler's first runs stand there within a minute, and the shop's connection is among the
connections, where it can be tested.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import demo
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
FIRST_LOOKS = """Binlake in the navigation: the tables, where they stand, what to do next
Dags: the sync and the upkeep run by themselves now, with logs; trigger binlake_shop_verify to have every value compared
Admin, Connections: shop_mysql, with a Test button
make sql in another terminal: UPDATE orders SET status = 'paid' LIMIT 3, or ALTER TABLE; then trigger binlake_shop_sync,
and see the rows and the statement on the page"""


def wait_until_ready(airflow: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if airflow.poll() is not None:
            raise demo.DemoFailed("airflow standalone ended")
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


def on_loopback_alone() -> Path:
    """A folder whose `airflow` stands before the real one on PATH, where standalone looks for its parts.

    Scheduler and triggerer would serve their logs on every interface of this machine, and have no setting
    against it; here the UI reads the files themselves.
    """
    folder = demo.FOLDER / "bin"
    folder.mkdir(exist_ok=True)
    shim = folder / "airflow"
    shim.write_text(
        "#!/bin/sh\n"
        'case $1 in scheduler|triggerer) set -- "$@" --skip-serve-logs;; esac\n'
        f'exec {shlex.quote(str(demo.BIN / "airflow"))} "$@"\n'
    )
    shim.chmod(0o755)
    return folder


def choose_port() -> int:
    """Airflow's usual port where it is free."""
    if asked := os.environ.get("BINLAKE_UI_PORT"):
        return int(asked)
    with socket.socket() as probe:
        return USUAL_PORT if probe.connect_ex(("127.0.0.1", USUAL_PORT)) else free_port()


def stop(airflow: subprocess.Popen[bytes]) -> None:
    """Its whole process group: standalone has children of its own."""
    if airflow.poll() is None:
        os.killpg(airflow.pid, signal.SIGTERM)
        try:
            airflow.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(airflow.pid, signal.SIGKILL)
            airflow.wait()


def main() -> int:
    if not demo.Kept.FILE.exists():
        sys.exit("there is no demo yet: make demo")
    kept = demo.Kept.read()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    server = demo.start_server(kept.kind, kept.port)
    log = demo.LOGS / "airflow_ui.log"
    port = choose_port()
    url = f"http://127.0.0.1:{port}"
    env = environment(port)
    env["PATH"] = f"{on_loopback_alone()}:{env['PATH']}"
    print(f"{kept.kind} on 127.0.0.1:{kept.port}; Airflow starts, its log: {os.path.relpath(log)}", flush=True)
    try:
        prepare(env, kept.connection)
    except BaseException:
        server.close()
        raise
    with log.open("w") as file:
        airflow = subprocess.Popen(
            [str(demo.BIN / "airflow"), "standalone"],
            cwd=demo.FOLDER,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o077,  # the file with the password is ours alone
        )
    try:
        wait_until_ready(airflow, url)
        print(f"{url}   {login()}\n{FIRST_LOOKS}\nCtrl-C stops Airflow and the server", flush=True)
        airflow.wait()
        return 0
    except KeyboardInterrupt:
        print("stopping", flush=True)
        return 0
    except demo.DemoFailed as error:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        print(f"{error}:\n{tail}", file=sys.stderr)
        return 3
    finally:
        stop(airflow)
        server.close()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ServerFailed, demo.DemoFailed) as error:
        sys.exit(str(error))
