"""Format versions: each text in the lease's row says in which format it was written.

A text of another format is refused before anything is done with it. Raise FORMAT when a form changes, and read the form
before here once it was released. Formats 0, whose texts had no number, and 1 are from before the first release.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from binlake.caches import remembered
from binlake.errors import LakeError, UnknownFormat
from binlake.serialization import dump, load

FORMAT = 2
T = TypeVar("T")


def written(value: Any) -> str:
    """Return a dataclass as JSON that says its format."""
    return json.dumps({"format": FORMAT, **dump(value)}, ensure_ascii=False)


def read(kind: type[T], text: str) -> T:
    """Read what ``written`` wrote. Raises UnknownFormat, and LakeError for any other text."""
    value: T = _read(kind, text)
    return value


@remembered("texts of the lease")
def _read(kind: type[Any], text: str) -> Any:
    try:
        value = json.loads(text)
        version = value.pop("format", 0)
        if version > FORMAT:
            raise UnknownFormat(
                f"a newer binlake has worked on this lake: its metadata have format {version}, this one knows {FORMAT}",
                remedy="update binlake here as it was updated there, then run again",
            )
        if version < FORMAT:
            raise UnknownFormat(
                f"a binlake from before the first release made this lake: its metadata have format {version}, "
                f"this one knows {FORMAT}",
                remedy="let lake.path name a new folder and run again: the tables are copied there",
            )
        return load(kind, value)
    except (ValueError, TypeError, AttributeError) as error:
        raise LakeError(
            f"the lease's row isn't what binlake writes: {error}",
            remedy="restore the folder _binlake/lease from a backup, or begin the lake again",
        ) from error
