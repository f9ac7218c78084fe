"""The JVM's options, as a JVM understands them; and which settings of Spark's are whose."""

import re
import subprocess
from pathlib import Path

import pyspark
import pytest

from binlake.config import SparkConfig
from binlake.errors import ConfigurationError
from binlake.spark import settings


@pytest.mark.parametrize("tuned", ["-XX:+TieredCompilation", "-XX:TieredStopAtLevel=1"])
def test_room_for_compiled_code_doesnt_depend_on_the_compilers(tuned: str) -> None:
    command = ["java", tuned, *settings.jvm_options().split(), "-XX:+PrintFlagsFinal", "-version"]
    flags = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    size = re.search(r"\bReservedCodeCacheSize\s*=\s*(\d+)", flags)
    assert size
    assert int(size[1]) == 240 << 20


def test_an_archive_that_doesnt_fit_is_passed_over_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result on standard output would stand behind the JVM's words."""
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    archive = tmp_path / "classes.jsa"
    making = ["java", f"-XX:ArchiveClassesAtExit={archive}", "-cp", str(ivy), "org.apache.ivy.Main", "-version"]
    subprocess.run(making, capture_output=True, check=True)
    monkeypatch.setattr(settings, "SHARED_ARCHIVE", archive)
    command = ["java", *settings.jvm_options().split(), "--version"]  # of another class path
    assert "archive" not in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_jvm_that_ends_soon_optimises_no_code() -> None:
    quick = "-XX:TieredStopAtLevel=1"
    for short_lived in (True, False):
        options = settings.launch_settings(short_lived=short_lived)["spark.driver.extraJavaOptions"].split()
        assert (quick in options) == short_lived
        assert quick not in settings.launch_settings(short_lived=short_lived)["spark.executor.extraJavaOptions"]


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.task.maxFailures": 4},
        {"spark.speculation": True},
        {"spark.sql.session.timeZone": "Europe/Berlin"},
        {"spark.sql.legacy.timeParserPolicy": "LEGACY"},
        {"spark.sql.files.ignoreCorruptFiles": True},
        {"spark.executor.extraJavaOptions": "-Xss4m -Duser.timezone=CET"},
    ],
    ids=str,
)
def test_what_keeps_a_mirror_exact_is_nobodys_to_choose(conf: dict[str, str | bool | int | float]) -> None:
    (key,) = conf
    with pytest.raises(ConfigurationError, match=re.escape(key)):
        settings.launch_settings(SparkConfig(conf=conf))


def test_other_settings_are_and_go_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BINLAKE_DRIVER_MEMORY", raising=False)
    conf: dict[str, str | bool | int | float] = {
        "spark.task.maxFailures": 1,
        "spark.executor.cores": 3,
        "spark.executor.extraJavaOptions": "-Xss4m",
        "spark.driver.extraClassPath": "/jars/*",
    }
    given = SparkConfig(driver_memory="9g", executor_memory="5g", jars=["/a.jar", "/b.jar"], conf=conf)
    launched = settings.launch_settings(given)
    assert launched["spark.driver.memory"] == "9g"
    assert launched["spark.executor.memory"] == "5g"
    assert launched["spark.jars"] == "/a.jar,/b.jar"
    assert launched["spark.executor.cores"] == "3"
    assert launched["spark.executor.extraJavaOptions"] == "-Duser.timezone=UTC -Xss4m"
    assert launched["spark.driver.extraClassPath"] == f"{settings.JARS}/*:/jars/*"


@pytest.mark.parametrize(
    ("master", "local"), [("local", True), ("local[*]", True), ("local-cluster[2,1,1024]", False), ("yarn", False)]
)
def test_where_the_work_is_done(master: str, local: bool) -> None:
    assert settings.is_local(master) == local
