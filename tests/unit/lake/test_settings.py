"""The JVM's options, as a JVM understands them."""

import re
import subprocess

import pytest

from binlake.lake import settings


@pytest.mark.parametrize("tuned", ["-XX:+TieredCompilation", "-XX:TieredStopAtLevel=1"])
def test_room_for_compiled_code_doesnt_depend_on_the_compilers(tuned: str) -> None:
    command = ["java", tuned, *settings.jvm_options().split(), "-XX:+PrintFlagsFinal", "-version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"\bReservedCodeCacheSize\s*=\s*(\d+)", told)
    assert found
    assert int(found[1]) == 240 << 20


def test_a_jvm_that_ends_soon_optimises_no_code() -> None:
    quick = "-XX:TieredStopAtLevel=1"
    for short_lived in (True, False):
        options = settings.launch_settings(short_lived=short_lived)["spark.driver.extraJavaOptions"].split()
        assert (quick in options) == short_lived
        assert quick not in settings.launch_settings(short_lived=short_lived)["spark.executor.extraJavaOptions"]
