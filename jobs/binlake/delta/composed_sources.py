"""Notes of the sources that fill a composed table, so that each can compose its parts without the others.

A source opens the tables of its own parts alone. Of the others' parts it takes over the data files that are named, and
needs to know their columns: the table has those of all. So each source notes in the table's settings the columns of
what is shown of it, with each commit that changes them. The columns follow from all notes in the order of the sources'
names, whichever source works them out.

A part whose types don't go together with the others' waits as it was. Where that is because of parts of another source,
either of both can be the last to get the new type. So the part is noted with the version that is to be shown, and the
source that commits the last of the new types shows all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from binlake.config.shards import folders_begin
from binlake.delta.composed_layout import DeltaField
from binlake.delta.delta_schema import COMMENT
from binlake.delta.key_ranges import PHYSICAL_NAME
from binlake.serialization import dumps, loads

NOTE = "binlake.source."
"""The prefix of a composed table's settings that sources note; the source's name follows."""


@dataclass(frozen=True)
class PartSources:
    """The sources that fill a composed table.

    column: has their names. own: the one that composes. names: all of them. history_hours: for which own promises that
    versions can be read.
    """

    column: str
    own: str
    names: Sequence[str]
    history_hours: float

    def owner(self, folder: str) -> str | None:
        """Return the source that a part's folder is of; None where it is of none of these."""
        return next((name for name in self.names if folder.startswith(folders_begin(self.column, name))), None)


@dataclass(frozen=True)
class NotedShape:
    """Columns that a number of parts have, as Delta's schema writes them."""

    parts: int
    fields: list[dict[str, Any]]


@dataclass(frozen=True)
class WaitingPart:
    """A part that is shown as it was. name, folder, value, app: as of TablePart. version: of its table, that is shown
    once the types go together. fields: that it is shown with; none where it isn't shown."""

    name: str
    folder: str
    value: str
    app: str
    version: int
    fields: list[dict[str, Any]]


@dataclass(frozen=True)
class SourceNote:
    """The notes of one source. shapes: of the parts that don't wait, in their order."""

    history_hours: float
    shapes: tuple[NotedShape, ...] = ()
    waiting: tuple[WaitingPart, ...] = ()

    @property
    def shown(self) -> list[list[dict[str, Any]]]:
        """Return the columns of each part that doesn't wait."""
        return [shape.fields for shape in self.shapes for _ in range(shape.parts)]

    @property
    def columns(self) -> list[list[dict[str, Any]]]:
        """Return the columns of each part, as it is shown."""
        return [*self.shown, *(part.fields for part in self.waiting if part.fields)]

    @property
    def text(self) -> str:
        """Return the note as a setting."""
        return dumps(self)


def notes_in(settings: Mapping[str, str]) -> dict[str, SourceNote]:
    """Return the notes in the settings of a composed table, by source, without those that can't be read, as those of
    newer versions of binlake may be."""
    return {name: note for name, note in _read(settings).items() if note is not None}


def unread_in(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the notes that can't be read, as they are, by source."""
    return {name: settings[f"{NOTE}{name}"] for name, note in _read(settings).items() if note is None}


def hours_in(settings: Mapping[str, str]) -> dict[str, float]:
    """Return for how long each source promises that versions can be read; without end where its note can't be read."""
    return {name: math.inf if note is None else note.history_hours for name, note in _read(settings).items()}


def _read(settings: Mapping[str, str]) -> dict[str, SourceNote | None]:
    notes: dict[str, SourceNote | None] = {}
    for key, text in settings.items():
        if key.startswith(NOTE):
            try:
                notes[key.removeprefix(NOTE)] = loads(SourceNote, text)
            except ValueError:
                notes[key.removeprefix(NOTE)] = None
    return notes


def shapes_of(parts: Iterable[Sequence[DeltaField]]) -> tuple[NotedShape, ...]:
    """Return the shapes that parts have, each once, in their order."""
    counted: dict[str, int] = {}
    for fields in parts:
        text = json.dumps([_noted(field) for field in fields], sort_keys=True)
        counted[text] = counted.get(text, 0) + 1
    return tuple(NotedShape(number, json.loads(text)) for text, number in counted.items())


def noted_fields(fields: Iterable[DeltaField]) -> list[dict[str, Any]]:
    """Return fields as they are noted."""
    return [_noted(field) for field in fields]


def _noted(field: DeltaField) -> dict[str, Any]:
    metadata = {key: field["metadata"][key] for key in (PHYSICAL_NAME, COMMENT) if key in field["metadata"]}
    return {"name": field["name"], "type": field["type"], "metadata": metadata}
