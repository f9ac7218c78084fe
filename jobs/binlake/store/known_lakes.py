"""Lakes that this account has worked on, remembered outside of them.

A folder without a lake may be meant for a new one, or be the mount point of a disk that isn't mounted. The lake itself
can't say which. So each lake has a small file below ``$XDG_STATE_HOME/binlake/lakes`` (``~/.local/state`` without that
variable), written with each recorded batch. Where that folder can't be written, nothing is remembered, and a bootstrap
begins wherever no lake is.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path


def remember(metadata: str) -> None:
    """Remember a lake that has a recorded position, by the folder of its metadata."""
    with suppress(OSError):
        if (file := _file(metadata)) is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"metadata": metadata}) + "\n", encoding="utf-8")


def last_seen(metadata: str) -> datetime | None:
    """Return when this account last worked on a lake; None where it isn't known to have."""
    with suppress(OSError):
        if (file := _file(metadata)) is not None:
            return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return None


def forget(metadata: str) -> None:
    """Forget a lake, so that a new one may begin there."""
    with suppress(OSError):
        if (file := _file(metadata)) is not None:
            file.unlink(missing_ok=True)


def _file(metadata: str) -> Path | None:
    """Return the file that remembers a lake; None for an account without a home."""
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError:
        return None
    return state / "binlake" / "lakes" / f"{hashlib.sha256(metadata.encode()).hexdigest()[:32]}.json"
