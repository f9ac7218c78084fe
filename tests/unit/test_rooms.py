"""The engine's folders: each imports only what stands below it, and the pure ones need no server and no JVM."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection
from functools import cache
from pathlib import Path

import pytest

import binlake

ENGINE = Path(binlake.__file__).parent
MODULES = {
    ".".join(path.relative_to(ENGINE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ENGINE.rglob("*.py"))
}
PURE = ("schema", "ddl", "kernels", "binlog", "binlog_writer", "planner")
WITHOUT_JVM = (
    "config",
    "storage",
    "delta",
    "iceberg",
    "store",
    "lease",
    "records",
    "registered",
    "lake",
    "source",
    "staging",
    "feeds",
    "relay",
    "catalog",
)
STARTED = (
    "pipeline", "phases.bootstrap", "phases.catchup", "merge.merge", "merge.apply", "staging.stage", "job.script",
    "cli.command_line", "doctor.preflight", "maintain.maintain", "snapshot.snapshot",
)  # fmt: skip
"""Modules that plan and tell."""
SHARED_BY_ALL = 14
ORDER = (
    "kernels", "storage", "schema", "ddl", "config", "binlog", "binlog_writer", "planner", "source", "delta", "iceberg",
    "store", "lease", "records", "registered", "spark", "setup", "lake", "staging", "merge", "snapshot", "verify",
    "maintain", "phases", "pipeline", "doctor", "second_opinion", "feeds", "relay", "catalog", "cli",
)  # fmt: skip
"""The rooms from the lowest to the highest; modules beside the folders stand below all but ``pipeline``."""
SPARK = {"pyspark", "py4j", "delta"}


@cache
def imported(module: str) -> set[str]:
    """The engine's modules that one imports, wherever in its text, for the type checker alone included."""
    imports: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} imports relatively"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            imports |= {name if name in MODULES else str(node.module) for name in names}
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
    return (imports & MODULES.keys()) - {"binlake", module}


def room(module: str) -> str:
    """The folder a module is in; modules beside the folders are rooms of their own."""
    return module.split(".")[1] if "." in module else module


def graph() -> dict[str, set[str]]:
    needed: dict[str, set[str]] = {room(module): set() for module in MODULES}
    for module in MODULES:
        needed[room(module)] |= {room(other) for other in imported(module)} - {room(module)}
    return needed


def test_no_folder_imports_what_stands_above_it() -> None:
    rest = graph()
    while below := {folder for folder, needs in rest.items() if not needs & rest.keys()}:
        rest = {folder: needs for folder, needs in rest.items() if folder not in below}
    assert not rest, f"these import each other in a circle: {rest}"


def test_the_rooms_are_those_of_the_plan() -> None:
    needed = graph()
    folders = {path.name for path in ENGINE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == {*ORDER, "job"} - {"pipeline"}
    for number, name in enumerate(ORDER):
        assert not needed[name] & set(ORDER[number + 1 :]), f"{name} imports what stands above it"
    assert not needed["feeds"] & {"spark", "merge", "snapshot"}, "a feed needs no Spark"
    users = {name for name, needs in needed.items() if "feeds" in needs}
    assert users <= {"cli", "relay"}, "what is below the edge doesn't know it"
    assert not needed["binlog"] & {"config"}, "the binlog knows no pipeline"
    assert len(list(ENGINE.glob("*.py"))) <= SHARED_BY_ALL


def test_a_file_name_stands_once_and_is_no_module_of_python() -> None:
    names = [path.stem for path in MODULES.values() if path.name != "__init__.py"]
    assert [name for name, times in Counter(names).items() if times > 1] == []
    assert not set(names) & sys.stdlib_module_names


def public_types(module: str) -> list[str]:
    """Its classes and type aliases; constants are written in capitals alone."""
    wrong: list[str] = []
    for node in ast.parse(MODULES[module].read_text()).body:
        match node:
            case ast.ClassDef(name=name):
                wrong.append(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                wrong.append(name)
    return [name for name in wrong if name[0].isupper() and not name.isupper()]


def test_one_word_is_one_thing() -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        for name in public_types(module):
            where[name].append(module)
    assert not {name: modules for name, modules in where.items() if len(modules) > 1}


def run_without(blocked: Collection[str], program: str) -> str:
    """What a program prints in a process where these packages can't be imported."""
    blocking = f"import sys; sys.modules.update(dict.fromkeys({sorted(blocked)}))\n"
    ended = subprocess.run([sys.executable, "-c", blocking + program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize(
    ("folders", "more"), [(PURE, {"pymysql", "deltalake"}), (WITHOUT_JVM, set())], ids=["pure", "without_jvm"]
)
def test_folders_need_no_more_than_they_may(folders: tuple[str, ...], more: set[str]) -> None:
    modules = [module for module in MODULES if room(module) in folders]
    assert {room(module) for module in modules} == set(folders)
    run_without(SPARK | {"airflow"} | more, "\n".join(f"import {module}" for module in modules))


def test_what_plans_and_tells_starts_without_spark() -> None:
    run_without(SPARK, "\n".join(f"import binlake.{module}" for module in STARTED))


STATUS = """
from binlake.cli import command_line
from binlake.store.metadata import Metadata

metadata = Metadata(sys.argv[1] + "/lake/shop/_binlake")
assert command_line.run(["status", "--config", sys.argv[1] + "/shop.yaml"]) == 0
metadata.create_with("lease", [{"batch": 7}])
metadata.append("runs", [{"kind": "sync", "ended_us": 1, "mutations": 5, "tables": "[]", "phases": "{}"}])
assert command_line.run(["status", "--config", sys.argv[1] + "/shop.yaml"]) == 0
assert command_line.run(["metrics", "--config", sys.argv[1] + "/shop.yaml", "--by-table"]) == 0
print("imported:", sorted({"argcomplete", "numba", "numpy", "pandas", "pyarrow", "pyspark"} & sys.modules.keys()))
"""
"""A status without a lake, one of a lake, and its metrics."""


def test_the_pipeline_imports_nothing_that_takes_long() -> None:
    """A sync that finds nothing new needs no more than this; who looks for an unfinished batch doesn't read the log."""
    packages = {"numba", "pandas", "pyarrow", "pyroaring", "pyspark"}
    own = {f"binlake.{name}" for name in ("merge.merge", "snapshot.snapshot", "phases.bootstrap", "source.catalog")}
    for module, more in (("pipeline", own), ("phases.begun_before", own | {"numpy"})):
        program = f"import binlake.{module}\nprint(sorted({packages | more} & sys.modules.keys()))"
        assert run_without((), program) == "[]\n"


def test_the_status_imports_nothing_that_takes_long(tmp_path: Path) -> None:
    """Each of these packages would take longer than all the rest."""
    (tmp_path / "shop.yaml").write_text(
        "source: {name: shop, connection: shop_mysql, server_id: 4001}\n"
        "tables: {include: ['shop.*']}\nlake: {path: ./lake}\n"
    )
    said = run_without((), f"sys.argv = ['status', {str(tmp_path)!r}]\n" + STATUS)
    assert "no table has a snapshot yet" in said
    assert "5 mutations" in said
    assert 'binlake_batches_total{source="shop"} 7\n' in said
    assert said.endswith("imported: []\n")
