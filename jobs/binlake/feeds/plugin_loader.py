"""Classes of the user's own, for errors and positions of feeds: how the YAML names them, and how they are loaded."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from binlake.errors import ConfigurationError


def load(setting: str, name: str, group: str) -> Any:
    """Load what ``name`` stands for: ``module:Class``, or an entry point of ``group``.

    setting: the YAML's key. Raises ConfigurationError.
    """
    points = {point.name: point for point in entry_points(group=group)}
    if ":" in name:
        points[name] = EntryPoint(name, name, group)
    if name not in points:
        known = ", ".join(points) or "none"
        raise ConfigurationError(
            f"{setting}: there is no entry point {name!r} in {group}; there are: {known}",
            remedy=f"install a package that has it, or write module:Class in {setting}",
        )
    try:
        return points[name].load()
    except Exception as error:  # whatever importing the user's module raises
        raise ConfigurationError(
            f"{setting}: {name} ({points[name].value}) can't be imported: {error}",
            remedy="write module:Class of a class that this environment can import, or mend it",
        ) from error
