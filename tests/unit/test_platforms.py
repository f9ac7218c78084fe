"""The tables of versions have one file, docker/local/platforms.toml; `make platforms` tries its rows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

import platforms
from binlake import versions
from binlake_airflow import supported

ROOT = Path(__file__).parents[2]
LISTED: dict[str, Any] = tomllib.loads(platforms.FILE.read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
STATES = {"proved", "expected", "refused"}
COLUMNS = {
    "python": ("release", "state", "ran"),
    "airflow": ("release", "state", "ran"),
    "java": ("release", "state", "ran"),
    "spark": ("release", "delta", "lakes", "ran"),
}
PAGES = {
    "python": "jobs/binlake/setup/README.md",
    "airflow": "plugins/README.md",
    "java": "jobs/binlake/setup/README.md",
    "spark": "jobs/binlake/setup/README.md",
}


def releases(what: str, *states: str) -> list[str]:
    """The releases of one thing in the file that have one of the states."""
    return [row["release"] for row in LISTED[what] if row["state"] in states]


def rows_of(page: str, title: str) -> list[tuple[str, ...]]:
    """The cells of the table of a page whose first column has this title."""
    lines = (ROOT / page).read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"| {title} |"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(tuple(cell.strip() for cell in line.strip("|").split("|")))
    return rows


@pytest.mark.parametrize("what", COLUMNS)
def test_a_page_lists_what_the_file_has(what: str) -> None:
    wanted = [tuple(row.get(column, "") for column in COLUMNS[what]) for row in LISTED[what]]
    assert rows_of(PAGES[what], what.capitalize()) == wanted
    assert {row["state"] for row in LISTED[what]} <= STATES


def test_pythons_are_those_that_the_wheel_can_be_installed_on() -> None:
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert releases("python", "proved", "expected") == [f"3.{n}" for n in range(8, 20) if f"3.{n}.99" in allowed]


def test_airflows_are_those_that_the_plugin_accepts() -> None:
    oldest, newest = (".".join(map(str, version)) for version in (supported.OLDEST, supported.NEWEST))
    accepted = releases("airflow", "proved", "expected")
    assert (accepted[0], accepted[-1]) == (oldest, newest)
    assert releases("airflow", "refused") == [f"before {oldest}"]


def test_sparks_and_javas_are_those_that_are_not_refused() -> None:
    assert tuple(releases("spark", "proved", "expected")) == versions.SPARK_RELEASES
    assert {row["delta"] for row in LISTED["spark"] if row["state"] != "refused"} == {versions.DELTA}
    assert releases("java", "proved", "expected") == [str(major) for major in versions.JAVAS]


def test_what_the_lock_has_is_proved_and_nothing_else() -> None:
    """`make test` runs on what docker/requirements.lock and set-up bring, and on nothing else."""
    assert releases("spark", "proved") == [versions.release_of(versions.SPARK)]
    assert releases("java", "proved") == [str(versions.JAVA)]
    assert releases("python", "proved") == [re.findall(r">=(3\.\d+)", PROJECT["requires-python"])[0]]
    locked = re.search(r"^apache-airflow==(\d\.\d+)", (ROOT / "docker/requirements.lock").read_text(), re.MULTILINE)
    assert locked
    assert releases("airflow", "proved") == [locked[1]]


def test_each_row_of_make_platforms_is_listed() -> None:
    known = platforms.rows(platforms.FILE.read_text())
    assert known
    for row in known.values():
        thing, release = re.findall(r"(\w+) (3\.\d+|4\.\d+)\.", row.shows)[0]
        what = thing.lower()
        assert row.short or row.name == f"{what}-{release}"
        assert release in releases(what, "proved", "expected"), row.name
        assert row.python in releases("python", "proved", "expected")
        assert not row.java or row.java in releases("java", "proved", "expected")
        assert row.has_own_spark == (what == "spark")


def test_a_row_that_is_not_there_is_refused_before_anything_is_made() -> None:
    command = [sys.executable, platforms.__file__, "airflow-2.9"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no row is named airflow-2.9: " in done.stderr


def test_a_row_that_fails_fails_the_run_and_the_next_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step's log ends in the message, and its processes are ended."""
    monkeypatch.setattr(platforms, "FOLDER", tmp_path)
    monkeypatch.setattr(platforms, "wheel", lambda: tmp_path / "x.whl")
    monkeypatch.setattr(platforms, "SECONDS", 1)
    known = {name: platforms.Row(name, "3.11", "Python") for name in ("airflow-3.2", "python-3.13")}
    monkeypatch.setattr(platforms, "rows", lambda text: known)

    def check(row: platforms.Row, built: Path) -> str:
        row.folder.mkdir(exist_ok=True)
        if row.name == "python-3.13":
            return platforms.run(row, "a step", "echo", "Python 3.13.5").strip()
        with pytest.raises(platforms.RowFailed, match=r"a slow step didn't end in 1 s"):
            platforms.run(row, "a slow step", "sh", "-c", "echo $$; exec sleep 60")
        left = (row.folder / "a_slow_step.log").read_text().strip()
        assert not Path(f"/proc/{left}").exists()
        return platforms.run(row, "a bad step", "sh", "-c", "echo no wheel is here; exit 7")

    monkeypatch.setattr(platforms, "check", check)
    assert platforms.main(["airflow-3.2", "python-3.13"]) == 1
    shown = capsys.readouterr()
    assert "a bad step ended with 7:\nno wheel is here" in shown.err
    assert "airflow-3.2  FAILED: a bad step ended with 7" in shown.out
    assert "python-3.13  passed on Python 3.13.5" in shown.out
    assert platforms.main(["python-3.13"]) == 0


def test_a_row_sees_nothing_of_another_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "AIRFLOW__CORE__DAGS_FOLDER", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "/elsewhere")
    row = platforms.Row("python-3.13", "3.13", "Python 3.13.")
    env = platforms.environment(row)
    assert "/elsewhere" not in env.values()
    assert env["PATH"].startswith(f"{platforms.FOLDER}/python-3.13/env/bin:")
    assert env["BINLAKE_DEMO"] == f"{platforms.FOLDER}/python-3.13/demo"
    assert env.get("JAVA_HOME") == os.environ.get("JAVA_HOME")
    env = platforms.environment(platforms.Row("python-3.13", "3.13", "Python 3.13.", java="21"))
    assert env["JAVA_HOME"] == str(platforms.java_home("21"))


def interpreter_at(program: Path, says: str, code: int = 0) -> Path:
    """A stand-in of an interpreter that says it is of this release."""
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho {says}\nexit {code}\n")
    program.chmod(0o755)
    return program


def test_an_interpreter_of_the_machine_is_taken_wherever_it_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyenv's program on PATH fails for a release that isn't its chosen one."""
    monkeypatch.setattr(platforms, "PRIVATE", tmp_path / "private")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:{os.environ['PATH']}")
    shim = interpreter_at(tmp_path / "shims/python3.77", "pyenv: python3.77: command not found", 127)
    interpreter_at(tmp_path / "pyenv/versions/3.77.11/bin/python3.77", "3.76")
    interpreter_at(tmp_path / "pyenv/versions/3.77.9/bin/python3.77", "no ssl here", 1)
    of_uv = interpreter_at(tmp_path / "uv/cpython-3.77.3-linux-x86_64-gnu/bin/python3.77", "3.77")
    assert platforms.interpreter("3.77") == str(of_uv)
    of_pyenv = interpreter_at(tmp_path / "pyenv/versions/3.77.10/bin/python3.77", "3.77")
    assert platforms.interpreter("3.77") == str(of_pyenv)
    private = interpreter_at(tmp_path / "private/python-3.77/root/usr/bin/python3.77", "3.77")
    assert platforms.interpreter("3.77") == str(private)
    shim.write_text("#!/bin/sh\necho 3.77\n")
    assert platforms.interpreter("3.77") == str(shim)


def test_a_python_that_is_nowhere_fails_its_row_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path))
    with pytest.raises(platforms.RowFailed, match=r"python-3\.77 isn't here.*put python3\.77 on PATH, or run pyenv"):
        platforms.interpreter("3.77")
