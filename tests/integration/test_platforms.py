"""The wheel beside an older Airflow, on a newer Python: the short form of ``make platforms``."""

from __future__ import annotations

import subprocess
import sys

import pytest

import platforms


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("new_environment")
def test_an_older_airflow_on_a_newer_python_lists_the_dags_and_the_plugin() -> None:
    done = subprocess.run([sys.executable, platforms.__file__, "short"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed on Python 3.13." in done.stdout
