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
