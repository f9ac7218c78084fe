"""`make demo`: a shop on a private server, mirrored by Airflow and Spark, changed, synced, proved equal.

Everything it makes lies in .binlake/demo, new each time; nothing is left running.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console
from rich.table import Table

import shop
from servers import KINDS, PRIVATE, ROOT, Kind, Server, ServerFailed, installed, version

FOLDER = Path(os.environ.get("BINLAKE_DEMO") or PRIVATE / "demo")
"""BINLAKE_DEMO names another one, so that a demo of `make platforms` leaves what `make demo` made."""
LOGS = FOLDER / "logs"
DAGS = FOLDER / "dags"
CONFIG = DAGS / "pipelines" / "shop.yaml"
LAKE = FOLDER / "lake" / "shop"
BIN = Path(sys.prefix) / "bin"

TASK_LINE = re.compile(
    r"\S+ \[info\s*\] (?P<text>(?:snapshot|shop\.|batch|staged|merged|nothing new).*?)\s+\[airflow\.task"
)
"""A line of the engine's own report, as Airflow logs it."""

console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 130)


class DemoFailed(Exception):
    """A phase ended badly; the text ends with the last lines of its log."""


def environment(connection: str) -> dict[str, str]:
    """An Airflow of the demo's own, with the shop's connection; the password is nowhere else."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    return kept | {
        "PATH": f"{BIN}:{os.environ.get('PATH', '')}",
        "AIRFLOW_HOME": str(FOLDER / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_SHOP_MYSQL": connection,
        "XDG_STATE_HOME": str(FOLDER / "state"),  # each demo begins a lake in the place of the last one's
    }


@dataclass(frozen=True)
class Kept:
    """What `make ui` needs to start the same server again."""

    kind: Kind
    port: int
    connection: str = field(repr=False)

    FILE: ClassVar[Path] = FOLDER / "server.json"

    def write(self) -> None:
        with open(os.open(self.FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"kind": self.kind, "port": self.port, "connection": self.connection}, file)

    @classmethod
    def read(cls) -> Kept:
        return cls(**json.loads(cls.FILE.read_text()))


@dataclass(frozen=True)
class Phase:
    name: str
    seconds: float


class Phases:
    """Says what happens, and how long it took."""

    def __init__(self) -> None:
        self.done: list[Phase] = []

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        if console.is_terminal:
            with console.status(f"{name} …"):
                yield
        else:
            console.print(f"{name} …")
            yield
        self.done.append(Phase(name, time.monotonic() - started))
        console.print(f"[green]✓[/] {name} [dim]{self.done[-1].seconds:.1f} s[/]")

    @property
    def total(self) -> float:
        return sum(phase.seconds for phase in self.done)


def run(env: dict[str, str], log: str, *command: str, relay: Callable[[str], None] | None = None) -> str:
    """One command of .venv/bin in the demo's folder; its standard output. Both streams go to a log file.

    ``relay`` gets each line of it as it comes.
    """
    path = LOGS / f"{log}.log"
    with path.open("w") as errors:
        process = subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            cwd=FOLDER,
            env=env,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            process_group=0,  # an interrupted demo ends its whole tree: Airflow, spark-submit, the JVM
        )
        lines: list[str] = []
        try:
            for line in process.stdout or ():
                errors.write(line)
                errors.flush()
                lines.append(line)
                if relay:
                    relay(line)
            process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if process.returncode:
        tail = "\n".join(path.read_text(errors="replace").splitlines()[-40:])
        raise DemoFailed(f"{' '.join(command)} ended with {process.returncode}:\n{tail}\n(the whole log: {path})")
    return "".join(lines)


def relay(line: str) -> None:
    """What the engine says inside Airflow's task log; the rest of that log isn't for a demo."""
    if task_line := TASK_LINE.match(line):
        console.print(f"  {task_line['text']}", style="dim", markup=False)
    elif "UP_FOR_RETRY" in line:
        console.print("  a task failed and will be tried again, see the logs", style="yellow")


def dag(env: dict[str, str], name: str) -> None:
    """`airflow dags test` of one DAG: no scheduler, the same operators."""
    run(env, name, "airflow", "dags", "test", name, relay=relay)


def status(env: dict[str, str]) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(run(env, "status", "binlake", "status", "--config", str(CONFIG), "--json"))
    return described


def verify(env: dict[str, str]) -> dict[str, Any]:
    """The comparison's report; a difference is in it, an error raises DemoFailed."""
    try:
        text = run(env, "verify", "binlake", "verify", "--config", str(CONFIG), "--json")
    except DemoFailed:
        # Exit code 1 comes with a report too: it says which tables differ.
        text = _json_of(LOGS / "verify.log")
        if not text:
            raise
    comparison: dict[str, Any] = json.loads(text)
    return comparison


def _json_of(log: Path) -> str:
    text = log.read_text(errors="replace")
    return text[text.index("\n{") :] if "\n{" in text else ""


def choose(asked: Sequence[str]) -> Kind:
    """The one that was asked for; otherwise MySQL where it is installed, else MariaDB."""
    for kind in KINDS:
        if installed(kind) and (not asked or kind in asked):
            return kind
    raise ServerFailed(f"{' or '.join(asked or KINDS)} isn't installed; run make setup")


def start_server(kind: Kind, port: int = 0) -> Server:
    return Server(kind, FOLDER / kind, port=port, innodb_buffer_pool_size="256M").start()


def answer_an_analyst(env: dict[str, str], newest: int) -> None:
    """The first query of sql/analysts.sql, as of the batch before the hour beside the newest: `binlake sql`, no JVM."""
    query = next(iter(shop.statements(shop.SQL / "analysts.sql")))
    batches = (newest - 1, newest)
    before, after = (
        {row["category"]: row for row in map(json.loads, sql(env, batch, query).splitlines())} for batch in batches
    )
    answer = Table(title="An analyst asks: which categories earned most? (sql/analysts.sql)", title_justify="left")
    for column in ("category", *(f"{name} at batch {batch}" for name in ("orders", "revenue") for batch in batches)):
        answer.add_column(column, justify="left" if column == "category" else "right")
    for category, row in after.items():
        both = (before.get(category), row)
        counts = ["" if version is None else f"{version['orders']:,}" for version in both]
        sums = ["" if version is None else f"{float(version['revenue']):,.2f}" for version in both]
        answer.add_row(category, *counts, *sums)
    console.print(answer)


def sql(env: dict[str, str], batch: int, query: str) -> str:
    """The rows of a query at a batch, an object a line."""
    command = ("sql", "--config", str(CONFIG), "--batch", str(batch), "--format", "json", query)
    return run(env, f"sql_at_batch_{batch}", "binlake", *command)


def show(state: dict[str, Any], proof: dict[str, Any]) -> None:
    merged = {row["table"]: row for row in state["last_run"]["tables"]}
    stands = {row["table"]: row for row in state["tables"]}
    table = Table(title=f"After the sync, batch {state['batch']}", title_justify="left")
    for name in ("table", "rows", "inserted", "updated", "deleted", "Delta version", "position", "equal"):
        table.add_column(name, justify="left" if name in ("table", "position", "equal") else "right")
    for row in proof["tables"]:
        name = row["name"]
        change, stand = merged.get(name, {}), stands.get(name, {})
        counts = [f"{change.get(column, 0):,}" for column in ("inserted", "updated", "deleted")]
        position = str(stand.get("position") or "").split("/")[-1].split("@")[0]
        equal = "[green]yes[/]" if row["equal"] else "[red]no[/]"
        table.add_row(name, f"{row['source_rows']:,}", *counts, str(stand.get("delta_version")), position, equal)
    console.print(table)


def demo(kind: Kind, phase: Callable[[str], Any]) -> bool:
    """The whole of it; whether the mirror is equal."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    LOGS.mkdir(parents=True)
    # The lake lies beside the DAGs' folder: the checkout's own stays its user's.
    shutil.copytree(ROOT / "dags", DAGS, ignore=shutil.ignore_patterns("__pycache__"))
    with phase(f"a private {'MySQL' if kind == 'mysql' else 'MariaDB'} {version(kind)} starts"):
        server = start_server(kind)
    try:
        with phase("the shop is filled: nine tables and an audit log that is excluded"):
            rows = shop.fill(server)
        console.print(f"  {rows:,} rows on 127.0.0.1:{server.port}")
        connection = shop.create_account(server)
        Kept(kind, server.port, connection).write()
        env = environment(connection)
        with phase("Airflow's metadata database on SQLite is made"):
            run(env, "airflow_db", "airflow", "db", "migrate")
        with phase("airflow dags test binlake_shop_bootstrap: a consistent snapshot of every table"):
            dag(env, "binlake_shop_bootstrap")
        with phase("binlake sync: the first order of the day, a batch to look back to"):
            shop.order_first(server)
            run(env, "first_sync", "binlake", "sync", "--config", str(CONFIG))
        with phase("an hour in the shop: inserts, updates, deletes, changed keys, a new column"):
            shop.change(server)
        with phase("airflow dags test binlake_shop_sync: the binlog since then, staged and merged"):
            dag(env, "binlake_shop_sync")
        with phase("binlake verify: every value of every table compared with the server"):
            proof = verify(env)
        state = status(env)
        show(state, proof)
        answer_an_analyst(env, state["batch"])
    finally:
        server.close()
    return bool(proof["equal"])


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is stopped in order then too
    phases = Phases()
    try:
        equal = demo(choose(sys.argv[1:]), phases)
    except (DemoFailed, ServerFailed) as error:
        console.print(f"[red]the demo stopped:[/] {error}", markup=False)
        return 3
    except KeyboardInterrupt:
        console.print("interrupted; the server is stopped")
        return 130
    console.print("equal: yes" if equal else "equal: NO, see the table above")
    console.print(f"the lake: {os.path.relpath(LAKE)}   the logs: {os.path.relpath(LOGS)}")
    console.print(f"where it is: .venv/bin/binlake status --config {os.path.relpath(CONFIG)}")
    console.print(f"questions of your own: .venv/bin/binlake sql --config {os.path.relpath(CONFIG)}")
    console.print("the Airflow UI on all this: make ui")
    console.print(f"total {phases.total:.0f} s; the server is stopped, nothing is left running")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
