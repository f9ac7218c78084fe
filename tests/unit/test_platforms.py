"""The tables of versions have one file, docker/local/platforms.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from binlake import versions
from binlake_airflow import supported

ROOT = Path(__file__).parents[2]
LISTED: dict[str, Any] = tomllib.loads((ROOT / "docker" / "local" / "platforms.toml").read_text())
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
