"""The Airflow that binlake works with. Importing this never fails: whoever needs an Airflow that fits asks here."""

from __future__ import annotations

import warnings
from functools import cache

from binlake import versions
from binlake.errors import ConfigurationError, UsageError

OLDEST = (3, 1)
"""Airflow's oldest minor version that binlake works with."""
NEWEST = (3, 3)
"""Airflow's newest minor version with which the tests run."""


@cache
def problem() -> UsageError | None:
    """Return what keeps binlake from working in this Airflow, with what helps; None if nothing does.

    Spark's packages are looked at where Spark is started: DAG files and the page need none.
    """
    import airflow

    return too_old(airflow.__version__) or versions.misfit("airflow", without=("apache-airflow", *versions.OF_SPARK))


def too_old(version: str) -> ConfigurationError | None:
    """Return the error for a version of Airflow that is too old; None for others. Warns of one that nobody tried."""
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) < OLDEST:
        return ConfigurationError(
            f"binlake needs Airflow {_said(OLDEST)} or later, and this is {version}",
            remedy=f"pip install 'apache-airflow>={_said(OLDEST)}', or use binlake's command line without Airflow",
        )
    if (major, minor) > NEWEST:
        warnings.warn(f"binlake is tested with Airflow up to {_said(NEWEST)}, and this is {version}", stacklevel=2)
    return None


def refuse() -> None:
    """Raise UsageError if binlake can't work in this Airflow."""
    if error := problem():
        raise error


def _said(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
