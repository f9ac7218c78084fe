"""Classes of the user's own, for sinks, positions and errors of feeds: how the YAML names them, and how they are
loaded.

One is named as ``module:Class``, or by its entry point in the setting's group, which an installed package declares.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from binlake.errors import BinlakeError, ConfigurationError


@dataclass(frozen=True)
class PluginGroup:
    """A setting that may name a class of the user's own.

    setting: the YAML's key. group: of the entry points. built_in: what else the setting may be. methods: the names that
    what the class makes must have. base: a class that has them all, or a description of them.
    """

    setting: str
    group: str
    built_in: tuple[str, ...]
    methods: tuple[str, ...]
    base: str

    def refuse_unknown(self, name: str) -> None:
        """Raise ConfigurationError for a name that no entry point of the group has."""
        self._entry_point(name)

    def load(self, name: str) -> Any:
        """Import the entry point of this name. Raises ConfigurationError."""
        point = self._entry_point(name)
        try:
            return point.load()
        except Exception as error:  # whatever importing the user's module raises
            raise ConfigurationError(
                f"{self.setting}: {name} ({point.value}) can't be imported: {error}",
                remedy="write module:Class of a class that this environment can import, or fix it",
            ) from error

    def make(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Import the entry point of this name, and call it. Raises ConfigurationError, and any BinlakeError that the
        call raises."""
        plugin = self.load(name)
        try:
            made = plugin(*arguments, **named)
        except BinlakeError:
            raise
        except Exception as error:  # whatever the user's class raises
            raise ConfigurationError(
                f"{self.setting}: {name} can't be made: {error}", remedy="fix it, then run again"
            ) from error
        if missing := [method for method in self.methods if not hasattr(made, method)]:
            raise ConfigurationError(
                f"{self.setting}: {name} has no {missing[0]}", remedy=f"let its class be made as {self.base} is"
            )
        return made

    def _entry_point(self, name: str) -> EntryPoint:
        if ":" in name:
            return EntryPoint(name, name, self.group)
        points = {point.name: point for point in entry_points(group=self.group)}
        if name not in points:
            known = ", ".join((*self.built_in, *sorted(points))) or "none"
            raise ConfigurationError(
                f"{self.setting}: there is no {name!r}; there are: {known}",
                remedy=f"install a package with that entry point in {self.group}, or write module:Class",
            )
        return points[name]


def methods_of(protocol: type) -> tuple[str, ...]:
    """Return the names of a protocol's methods and attributes."""
    return tuple(name for name in dir(protocol) if not name.startswith("_")) + tuple(protocol.__annotations__)
