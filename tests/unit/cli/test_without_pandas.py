"""A command's process has pandas only for Spark."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from binlake.cli import without_pandas
without_pandas.keep_out()
import pyarrow
pyarrow.table({"a": pyarrow.array([1, None])})
print("pandas" in sys.modules)
import pyspark.sql
import pandas
print("pandas" in sys.modules, pyarrow.array([2]).to_pylist())
"""


def test_pyarrow_does_without_pandas_and_spark_has_it() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert ended.stdout.split("\n")[:2] == ["False", "True [2]"], ended.stderr
