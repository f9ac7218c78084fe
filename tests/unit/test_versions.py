"""Packages of versions that binlake can't work with: what is said, where one is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from binlake import versions
from binlake.doctor import preflight
from binlake.doctor.packages import packages
from binlake.errors import UsageError
from binlake.lake import duckdb_views
from binlake.spark import java_program, settings

START = "from binlake.cli.start import main; main()"


def installs(folder: Path, package: str, version: str, *requires: str) -> Path:
    """What a package's installation leaves in a folder of packages."""
    info = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    lines = [
        f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}",
        *(f"Requires-Dist: {it}" for it in requires),
    ]
    (info / "METADATA").write_text("\n".join([*lines, ""]))
    return folder


def test_what_is_installed_here_fits() -> None:
    assert versions.unfit("airflow", "duckdb", "kafka", "polars", "relay", "hdfs") == []
    assert versions.misfit() is None
    check = packages()
    assert check.ok
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}" in check.found
    assert "deltalake 1." in check.found


def test_what_is_there_and_what_is_wanted_and_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wants = ("deltalake>=1.3", "nowhere-to-be-had>=2 ; extra == 'kafka'", "numpy>=2", "rich<1 ; python_version < '3'")
    monkeypatch.syspath_prepend(installs(tmp_path, "binlake", "0.1.0", *wants))
    installs(tmp_path, "deltalake", "0.25.5")
    versions.refuse_misfit("numpy")
    with pytest.raises(UsageError) as raised:
        versions.refuse_misfit("deltalake", "numpy")
    assert str(raised.value) == (
        "deltalake 0.25.5 is installed, and binlake needs deltalake>=1.3\n  → pip install 'deltalake>=1.3'"
    )
    assert [str(one) for one in versions.unfit()] == ["deltalake 0.25.5 is installed, and binlake needs deltalake>=1.3"]
    both = str(versions.misfit("kafka"))
    assert "nowhere-to-be-had isn't installed, and binlake needs nowhere-to-be-had>=2" in both
    assert "→ pip install 'deltalake>=1.3'; pip install 'binlake[kafka]'" in both
    assert versions.misfit(without=["deltalake"]) is None
    assert not packages().ok


def test_a_binlake_on_the_path_alone_compares_nothing() -> None:
    program = "from binlake import versions; print(versions.unfit('airflow'))"
    own = Path(versions.__file__).parents[1]
    lent = next(path for path in sys.path if path.endswith("site-packages"))
    bare = f"import sys; sys.path = [{str(own)!r}, *(p for p in sys.path if 'site-packages' not in p)]"
    packaging = f"sys.path.append({lent!r}); import packaging.requirements; sys.path.pop()"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"{bare}\n{packaging}\n{program}"], capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("package", ["pyspark", "delta-spark"])
def test_spark_of_another_version_is_refused_before_a_jvm_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.syspath_prepend(installs(tmp_path, package, "3.1.0"))
    with pytest.raises(
        UsageError, match=rf"{package} 3\.1\.0 is installed, and binlake needs {package}.*\n.*pip install"
    ):
        settings.refuse_missing_jars("/lake")


def test_duckdb_of_another_version_is_refused_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert duckdb.__version__  # DuckDB looks for its own version when it is imported: before the next line
    monkeypatch.syspath_prepend(installs(tmp_path, "duckdb", "0.9.0"))
    with pytest.raises(UsageError, match=r"duckdb 0\.9\.0 is installed, and binlake needs duckdb"):
        duckdb_views.connection_of([])


def test_a_command_that_fails_says_which_package_does_not_fit(tmp_path: Path) -> None:
    """An old deltalake lacks names that are imported; other commands work as long as they need none."""
    installs(tmp_path, "deltalake", "0.1.0")
    (tmp_path / "deltalake").mkdir()
    (tmp_path / "deltalake" / "__init__.py").write_text("")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", START, "status", "--config", "none.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode in (2, 3)
    assert "Traceback" not in done.stderr
    assert "deltalake 0.1.0 is installed, and binlake needs deltalake" in done.stderr
    assert "→ pip install 'deltalake" in done.stderr


@pytest.fixture
def home_of_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The JAVA_HOME of a program that says it is Java 11."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path


def test_java_of_another_version_is_refused_before_a_jvm_starts(
    home_of_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError) as raised:
        settings.refuse_missing_jars("/lake")
    assert str(raised.value) == (
        f"{home_of_java}/bin/java is Java 11, and binlake needs Java 17 or 21 where Spark is started\n"
        "  → apt install openjdk-17-jre-headless, or set JAVA_HOME to the folder of a Java 17 or 21"
    )
    check = preflight._java()
    assert (check.ok, check.found) == (False, raised.value.message)
    assert check.remedy == raised.value.remedy
    said: list[object] = []
    settings.say_missing_jars("/lake", said.append)
    assert "is Java 11, and binlake needs Java 17 or 21 where Spark is started: a sync that needs" in str(said)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    java_program.refuse_misfit()  # a JVM of spark-submit's runs


@pytest.mark.parametrize(("major", "fits"), [(11, False), (17, True), (20, False), (21, True), (25, False)])
def test_a_java_that_says_its_version_in_a_file_is_not_started_for_it(
    home_of_java: Path, major: int, fits: bool
) -> None:
    (home_of_java / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{major}.0.15"\n')
    if fits:  # the program itself would say 11
        java_program.refuse_misfit()
    else:
        with pytest.raises(UsageError, match="is Java 11"):
            java_program.refuse_misfit()


def test_no_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="Java isn't installed, and binlake needs Java 17 or 21"):
        settings.refuse_missing_jars("/lake")
