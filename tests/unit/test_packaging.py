"""What the wheel says of itself is true of what it holds."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = ("jobs/binlake", "plugins/binlake_airflow")
BROUGHT_BY = {
    "py4j": "pyspark",
    "pydantic_core": "pydantic",
    "llvmlite": "numba",
    "cryptography": "pymysql",  # its extra rsa
    "sqlalchemy": "apache-airflow",
    "openlineage": "apache-airflow-providers-openlineage",
}
"""Modules of packages that a declared one can't do without."""


def test_each_script_for_spark_submit_is_in_the_wheel() -> None:
    shared = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert shared == {f"jobs/{file.name}": f"share/binlake/jobs/{file.name}" for file in (ROOT / "jobs").glob("*.py")}


def imported() -> dict[str, set[str]]:
    """Top-level modules that the wheel's code imports at run time, wherever in its text, and where."""
    modules: dict[str, set[str]] = {}
    for file in (path for source in SOURCES for path in (ROOT / source).rglob("*.py")):
        tree = ast.parse(file.read_text())
        checked = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if node in checked:
                continue
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for name in names:
                modules.setdefault(name.partition(".")[0], set()).add(file.name)
    return modules


def distribution(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_no_import_comes_from_a_package_that_nobody_declares() -> None:
    """In the environment of the tests it would be there all the same, by somebody else's wish."""
    project = PROJECT["project"]
    extras = [module for name, wanted in project["optional-dependencies"].items() if name != "dev" for module in wanted]
    declared = {
        distribution(re.split(r"[\[<>=~! ;]", requirement)[0]) for requirement in [*project["dependencies"], *extras]
    }
    brings = metadata.packages_distributions()
    undeclared = {}
    for module, files in imported().items():
        if module in sys.stdlib_module_names or module in ("binlake", "binlake_airflow"):
            continue
        given = {distribution(package) for package in brings.get(module, ())} | {
            distribution(BROUGHT_BY.get(module, module))
        }
        if not given & declared:
            undeclared[module] = sorted(files)
    assert not undeclared


def test_python_versions_are_those_that_the_wheel_can_be_installed_on() -> None:
    project = PROJECT["project"]
    named = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in project["classifiers"]]
    versions = [match[1] for match in named if match]
    allowed = SpecifierSet(project["requires-python"])
    assert versions == [f"3.{minor}" for minor in range(8, 20) if f"3.{minor}.99" in allowed]


def test_no_licence_is_claimed_that_nobody_chose() -> None:
    files = [file.name for file in ROOT.iterdir() if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING"))]
    said = (ROOT / "README.md").read_text().splitlines()[-1]
    claims = [line for line in PROJECT["project"]["classifiers"] if line.startswith("License")]
    claims += [key for key in PROJECT["project"] if key.startswith("license")]
    assert not files
    assert not claims
    assert said == "No licence has been chosen yet."
