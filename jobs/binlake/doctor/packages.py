"""The check of the packages that are installed beside binlake."""

from __future__ import annotations

import platform
from importlib.metadata import version

from binlake import versions
from binlake.doctor.check import Check

_SHOWN = ("deltalake", "pyarrow", "pyspark", "delta-spark")


def packages() -> Check:
    """Check that each package that binlake always needs has a version that it works with."""
    if error := versions.misfit():
        return Check("packages", False, error.message, error.remedy)
    return Check("packages", True, ", ".join([f"Python {platform.python_version()}", *map(_shown, _SHOWN)]))


def _shown(package: str) -> str:
    return f"{package} {version(package)}"
