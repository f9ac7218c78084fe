"""What is built: the sources' archive, whose tests run; and the wheel alone, in an environment and a folder of its own,
set up from a folder of jars, then a mirror."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from binlake.spark import settings
from mirror import Mirror, on_mysql
from wheel_alone import build, fresh_environment, run

ROOT = Path(__file__).parents[2]
YAML = """
source: {{name: shop, connection: shop, server_id: 6200}}
tables: {{include: ["{database}.*"]}}
lake: {{path: lake}}
"""

DAGS = """
from binlake_airflow.pipelines import dags_of

globals().update(dags_of({folder!r}))
"""
LOADED = """
from airflow.dag_processing.dagbag import DagBag
from binlake_airflow.submit import script

bag = DagBag({dags!r})
assert not bag.import_errors, bag.import_errors
print(sorted(bag.dags), script("stage"))
"""


MADE = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"}
SOME_TESTS = (
    "tests/unit/test_packaging.py", "tests/unit/test_pages.py", "tests/unit/test_position.py",
    "tests/unit/cli/test_help_topics.py", "-k", "not a_command_that",
)  # fmt: skip


def files_in(folder: Path) -> set[str]:
    """The files below it, by their paths from the checkout's root, without what tools make."""
    paths = (path.relative_to(ROOT) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in paths if not MADE & set(path.parts)}


def below(folder: str, names: set[str]) -> set[str]:
    return {name for name in names if name.startswith(f"{folder}/")}


def test_the_wheel_holds_the_packages_and_what_they_print_and_nothing_else(tmp_path: Path) -> None:
    sources, wheel = build(tmp_path)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    packages = files_in(ROOT / "jobs/binlake") | files_in(ROOT / "plugins/binlake_airflow")
    expected = {name.partition("/")[2] for name in packages if "/example_dags/" not in name}
    for source, target in project["force-include"].items():
        inside = files_in(ROOT / source) if (ROOT / source).is_dir() else {source}
        expected |= {target + name.removeprefix(source) for name in inside}
    names = set(zipfile.ZipFile(wheel).namelist())
    others = {name for name in names if re.match(r"binlake-[\d.]+\.(dist-info|data)/", name)}
    assert names - others == expected
    scripts = {name.rpartition(".data/data/")[2] for name in others if ".data/" in name}
    assert scripts == set(project["shared-data"].values())
    assert {name.rpartition("/")[2] for name in others if ".dist-info/" in name} == {
        "METADATA", "WHEEL", "RECORD", "entry_points.txt",
    }  # fmt: skip

    with tarfile.open(sources) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = (path for path in tmp_path.glob("binlake-*") if path.is_dir())
    held = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert held >= {"README.md", "Makefile", "pyproject.toml", "docker/Dockerfile", "docker/local/setup.sh", ".ci/run"}
    for folder in ("jobs", "plugins", "sql", "tests"):
        assert below(folder, held) == files_in(ROOT / folder)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *SOME_TESTS],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}/jobs:{root}/plugins"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@on_mysql
@pytest.mark.timeout(900)
def test_the_wheel_alone_mirrors_a_table(mirror: Mirror, tmp_path: Path) -> None:
    environment = fresh_environment(tmp_path)
    folder = tmp_path / "empty"
    folder.mkdir()
    binlake = environment / "bin" / "binlake"
    uri = {"AIRFLOW_CONN_SHOP": mirror.server.uri()}
    where = run(folder, environment / "bin" / "python", "-c", "import binlake; print(binlake.__file__)")
    assert where.startswith(str(environment))
    page, here = (root / "binlake_airflow/page/static" for root in (Path(where.strip()).parents[1], ROOT / "plugins"))
    assert {file.name for file in page.iterdir()} == {file.name for file in here.iterdir()} >= {"index.html", "page.js"}
    assert (Path(where.strip()).parent / "example_dags" / "example_binlake_sync.py").is_file()
    assert run(folder, binlake, "help", "docker") == (ROOT / "docker" / "README.md").read_text()
    assert run(folder, binlake, "help", "security") == (ROOT / "jobs" / "SECURITY.md").read_text()
    assert run(folder, binlake, "help", "feeds") == (ROOT / "jobs" / "binlake" / "feeds" / "README.md").read_text()
    run(folder, binlake, "setup", "--no-archive", "--jars", settings.JARS)
    assert "ready" in run(folder, binlake, "setup", "--no-archive", "--jars", folder)  # nothing is looked for again

    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    (folder / "shop.yaml").write_text(YAML.format(database=mirror.database))
    run(folder, binlake, "snapshot", "--config", "shop.yaml", **uri)
    mirror.execute("UPDATE t SET v = 'zwei' WHERE id = 2", "INSERT INTO t VALUES (3, 'three')")
    run(folder, binlake, "sync", "--config", "shop.yaml", **uri)
    assert "3 rows" in run(folder, binlake, "verify", "--config", "shop.yaml", **uri)
    dags_of_its_own(folder, environment)


def dags_of_its_own(folder: Path, environment: Path) -> None:
    """A DAG folder and a folder of YAML files, of which binlake knows nothing else."""
    dags, pipelines = folder / "our dags", folder / "pipelines"
    for made in (dags, pipelines):
        made.mkdir()
    shutil.copy(folder / "shop.yaml", pipelines)
    (dags / "mirrors.py").write_text(DAGS.format(folder=str(pipelines)))
    own = {"AIRFLOW_HOME": str(folder / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    said = run(folder, environment / "bin" / "python", "-c", LOADED.format(dags=str(dags)), **own)
    names = {f"binlake_shop_{name}" for name in ("bootstrap", "sync", "verify", "maintain")}
    assert all(repr(name) in said for name in names), said
    assert str(environment / "share" / "binlake" / "jobs" / "stage.py") in said
