"""Files on a disk that hold what tables hold, and so are as private as the tables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Literal

_READ_BY_GROUP = 0o040


def make_folder(path: Path) -> None:
    """Make a folder that only its owner can enter, if it isn't there. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def opened(path: Path, mode: Literal["ab", "wb", "w+b"]) -> BinaryIO:
    """Open a file, as ``open`` does. A new one is its owner's alone; its group may read it where it may read the
    folder. Raises OSError."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600 | path.parent.stat().st_mode & _READ_BY_GROUP)

    return open(path, mode, opener=opener)
