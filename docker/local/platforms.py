"""`make platforms`: the wheel and a demo on other releases of what it runs on, each in an environment of its own.

A row is named by platforms.toml. Its environment, its lake and its logs lie in .binlake/platforms/NAME; the environment
goes when the row has passed. Nothing is left running. Exit code: 0 if all rows passed, 1 if one didn't, 2 for a name
that isn't a row's.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers import PRIVATE, ROOT

FILE = Path(__file__).with_name("platforms.toml")
FOLDER = PRIVATE / "platforms"
EXTRAS = "airflow,duckdb,polars,kafka,relay"
SECONDS = 1800
"""For a step; the slowest is a demo."""
SHOWN = ("Python", "Airflow", "Spark", "Delta", "Java")
LAST_LINES = 30


class RowFailed(Exception):
    """A step of a row ended badly; the text ends with the last lines of its log."""


@dataclass(frozen=True)
class Row:
    """See platforms.toml."""

    name: str
    python: str
    shows: str
    packages: tuple[str, ...] = ()
    until: str = ""
    java: str = ""
    """Empty: the Java of the machine."""
    short: bool = False

    @property
    def folder(self) -> Path:
        """Return the row's folder."""
        return FOLDER / self.name

    @property
    def has_own_spark(self) -> bool:
        """Return whether it names a release of Spark, whose jars .venv doesn't have."""
        return any(package.startswith("pyspark==") for package in self.packages)

    @property
    def bin(self) -> Path:
        """Return the folder of the environment's programs."""
        return self.folder / "env" / "bin"


def rows(text: str) -> dict[str, Row]:
    """Return the rows of platforms.toml by name."""
    listed: dict[str, dict[str, Any]] = tomllib.loads(text)["rows"]
    return {name: Row(name, **{**row, "packages": tuple(row.get("packages", ()))}) for name, row in listed.items()}


def environment(row: Row) -> dict[str, str]:
    """Return variables that lead to nothing but the row's own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "PYTHON", "VIRTUAL_ENV"))}
    own = {
        "PATH": f"{row.bin}:{kept.get('PATH', '')}",
        "AIRFLOW_HOME": str(row.folder / "airflow"),
        "BINLAKE_DEMO": str(row.folder / "demo"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "BINLAKE_BROWSER": sys.executable,
    }
    return kept | own | ({"JAVA_HOME": str(java_home(row.java))} if row.java else {})


def run(row: Row, step: str, *command: str | Path) -> str:
    """Return what a step's command prints; standard error is in the same log. Raises RowFailed."""
    print(f"{row.name:12} {step} …", flush=True)
    log = row.folder / f"{step.replace(' ', '_')}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=row.folder,
            env=environment(row),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            code: int | None = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            stop(process)
    text = log.read_text(errors="replace")
    if code != 0:
        ended = f"ended with {code}" if code is not None else f"didn't end in {SECONDS} s"
        tail = "\n".join(text.splitlines()[-LAST_LINES:])
        raise RowFailed(f"{step} {ended}:\n{tail}\n(the whole log: {log})")
    return text


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process in order, so that what it started ends, too."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def interpreter(release: str) -> str:
    """Return the program of a release of Python: the machine's, else the one that setup.sh brings. Raises RowFailed."""
    private = PRIVATE / f"python-{release}" / "root" / "usr" / "bin" / f"python{release}"
    for program in (f"python{release}", str(private), *side_by_side(release)):
        if runs(program, release):
            return shutil.which(program) or program
    set_up(f"python-{release}")
    return str(private)


def side_by_side(release: str) -> list[str]:
    """Return the programs of a release of Python that pyenv and uv keep beside the one on PATH, the newest first."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    asked = subprocess.run([uv(), "python", "dir"], capture_output=True, text=True)
    kept = [*pyenv.glob(f"{release}.*")]
    if folder := asked.stdout.strip():
        kept += Path(folder).glob(f"cpython-{release}.*")
    newest = sorted(kept, key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)[:3]], reverse=True)
    return [str(path / "bin" / f"python{release}") for path in newest]


def java_home(release: str) -> Path:
    """Return the folder of a release of Java, as JAVA_HOME: where setup.sh brings it to."""
    return PRIVATE / f"java-{release}" / "root" / "usr" / "lib" / "jvm" / f"java-{release}"


def set_up(step: str) -> None:
    """Run a step of setup.sh. Raises RowFailed."""
    setup = ["bash", str(ROOT / "docker" / "local" / "setup.sh"), step]
    done = subprocess.run(setup, capture_output=True, text=True)
    if done.returncode:
        raise RowFailed(f"{step} isn't here, and can't be brought: {done.stderr.strip()}")


def runs(program: str, release: str) -> bool:
    """Return whether an interpreter starts, is of this release, and has the parts that everything needs."""
    asked = "import sqlite3, ssl, sys; print('{}.{}'.format(*sys.version_info))"
    try:
        done = subprocess.run([program, "-c", asked], capture_output=True, text=True)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == release


def wheel() -> Path:
    """Return the checkout's wheel, built now."""
    folder = FOLDER / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    command = [uv(), "build", "-q", "--wheel", "--out-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def uv() -> str:
    """Return uv's program: that of .venv, where set-up has put it, else the machine's."""
    own = Path(sys.prefix) / "bin" / "uv"
    return str(own) if own.exists() else "uv"


def install(row: Row, built: Path) -> None:
    """Make the row's environment. Raises RowFailed."""
    run(row, "an environment is made", uv(), "venv", "-q", "--python", interpreter(row.python), row.folder / "env")
    pip = (uv(), "pip", "install", "-q", "--python", row.bin / "python")
    if row.packages:
        until = ("--exclude-newer", row.until) if row.until else ()
        run(row, f"{row.packages[0]} is installed", *pip, *until, *row.packages)
    # What is there stays, as pip leaves it in an environment of somebody's own.
    pinned = [package for package in row.packages if "==" in package]
    run(row, "the wheel is installed", *pip, f"binlake[{EXTRAS}] @ {built.as_uri()}", *pinned)


def check(row: Row, built: Path) -> str:
    """Try everything on a row; return the versions that it ran with, and what their installation took and takes.

    Raises RowFailed.
    """
    shutil.rmtree(row.folder, ignore_errors=True)
    row.folder.mkdir(parents=True)
    if row.java and not java_home(row.java).exists():
        set_up(f"java-{row.java}")
    began = time.monotonic()
    install(row, built)
    cost = f"installed in {time.monotonic() - began:.0f} s, {size(row.folder / 'env') / 1e9:.1f} GB"
    versions = run(row, "binlake --version", row.bin / "binlake", "--version")
    if row.shows not in versions:
        raise RowFailed(f"{row.shows} was wanted, and binlake --version says:\n{versions}")
    if "snapshot" not in run(row, "binlake --help", row.bin / "binlake", "--help"):
        raise RowFailed("binlake --help names no snapshot")
    if row.short:
        try_airflow(row)
    else:
        try_demo(row)
    shutil.rmtree(row.folder / "env")
    ran = (line.split(" (")[0] for line in versions.splitlines() if line.startswith(SHOWN))
    return ", ".join([*ran, cost])


def try_airflow(row: Row) -> None:
    """Let Airflow read the example's DAGs and the plugin. Raises RowFailed."""
    airflow = row.bin / "airflow"
    run(row, "airflow db migrate", airflow, "db", "migrate")
    if "binlake_shop_sync" not in (said := run(row, "airflow dags list", airflow, "dags", "list", "--local")):
        raise RowFailed(f"Airflow doesn't list the example's DAGs:\n{said}")
    if "binlake" not in (said := run(row, "airflow plugins", airflow, "plugins", "--output", "plain")):
        raise RowFailed(f"Airflow knows no plugin of binlake's:\n{said}")


def try_demo(row: Row) -> None:
    """Run the demo with the row's Spark. Raises RowFailed."""
    jars = () if row.has_own_spark else ("--jars", Path(sys.prefix) / "share" / "binlake" / "jars")
    run(row, "binlake setup", row.bin / "binlake", "setup", "--no-archive", *jars)
    run(row, "the demo", row.bin / "python", ROOT / "docker" / "local" / "platform_demo.py")


def size(folder: Path) -> int:
    """Return the bytes of a folder's files."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())


def main(asked: Sequence[str]) -> int:
    """Try the rows that are asked for, or all."""
    known = rows(FILE.read_text(encoding="utf-8"))
    if unknown := [name for name in asked if name not in known]:
        print(f"no row is named {', '.join(unknown)}: {', '.join(known)} are", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    built = wheel()
    results: list[str] = []
    failed = 0
    for name in asked or known:
        began = time.monotonic()
        try:
            said = f"passed on {check(known[name], built)}"
        except RowFailed as error:
            print(f"{name:12} {error}", file=sys.stderr, flush=True)
            said, failed = f"FAILED: {str(error).splitlines()[0]}", failed + 1
        results.append(f"{name:12} {said} ({time.monotonic() - began:.0f} s)")
        print(results[-1], flush=True)
    if len(results) > 1:
        print("", *results, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a row's processes are ended then, too
    sys.exit(main(sys.argv[1:]))
