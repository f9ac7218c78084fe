"""The versions of Airflow that binlake works with, checked when the package is imported."""

from __future__ import annotations

import warnings

from binlake.errors import ConfigurationError

OLDEST = NEWEST = (3, 3)
"""Airflow's oldest and newest minor version with which the tests run, all of them included."""


def check(installed: str) -> None:
    """Raise ConfigurationError for an Airflow that is too old, and warn of one that nobody tried.

    installed: the version of Airflow.
    """
    major, minor = (int(part) for part in installed.split(".")[:2])
    if (major, minor) < OLDEST:
        raise ConfigurationError(
            f"binlake needs Airflow {_said(OLDEST)} or later, and this is {installed}",
            remedy=f"install apache-airflow>={_said(OLDEST)}, or use binlake's command line without Airflow",
        )
    if (major, minor) > NEWEST:
        warnings.warn(f"binlake is tested with Airflow up to {_said(NEWEST)}, and this is {installed}", stacklevel=2)


def _said(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
