"""``binlake --version``: the versions of binlake, and of what it works with here."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any

PACKAGES = {
    "Spark": "pyspark",
    "Delta": "delta-spark",
    "deltalake": "deltalake",
    "pyarrow": "pyarrow",
    "numba": "numba",
    "Airflow": "apache-airflow",
}
"""Packages whose versions belong into a report of a problem, by the names that their users know."""
NOTHING = "not installed"


class ShowVersions(argparse.Action):
    """An option that prints versions, and ends the command."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: Any) -> None:
        help_ = "print the versions of binlake, Python, Java and the packages that it works with"
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help_)

    def __call__(self, parser: argparse.ArgumentParser, *given: object) -> None:
        """Print one line each."""
        for name, version in installed():
            print(f"{name} {version}")  # the first line is what programs look for
        parser.exit()


def installed() -> Iterator[tuple[str, str]]:
    """Yield names with their versions, binlake first; NOTHING for what isn't there."""
    from binlake.setup import installation  # most commands don't need it
    from binlake.spark import java_program, settings

    yield "binlake", metadata.version("binlake")
    yield "Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    for name, package in PACKAGES.items():
        try:
            yield name, metadata.version(package)
        except metadata.PackageNotFoundError:
            yield name, NOTHING
    java = java_program.java()
    yield "Java", f"{java.said} ({java.program})" if java else NOTHING
    lacking = len(installation.missing())
    yield "jars", f"{lacking} missing: run {installation.COMMAND}" if lacking else str(settings.JARS)
