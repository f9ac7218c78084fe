"""The wheel alone, in an environment and a folder of its own: set up from a folder of jars, then a mirror."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from binlake.spark import settings
from mirror import Mirror, on_mysql
from wheel_alone import fresh_environment, run

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
