"""Lakes that this account has worked on, remembered outside of them.

A folder in which no lake is may be a new one's, or the place of a disk that isn't mounted. What tells them apart can't
lie in the lake: for each lake there is a small file below ``$XDG_STATE_HOME/binlake/lakes`` (``~/.local/state`` without
that variable), written with each batch that is recorded. Where that folder can't be written nothing is remembered, and
a first bootstrap anywhere is as it was.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path


def remember(metadata: str) -> None:
    """The lake of this folder of metadata stands at a position by now."""
    with suppress(OSError):
        if (file := _file(metadata)) is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"metadata": metadata}) + "\n", encoding="utf-8")


def last_seen(metadata: str) -> datetime | None:
    """When this account worked on the lake last; None where it never did, as far as is known."""
    with suppress(OSError):
        if (file := _file(metadata)) is not None:
            return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return None


def forget(metadata: str) -> None:
    """A new lake may begin there."""
    with suppress(OSError):
        if (file := _file(metadata)) is not None:
            file.unlink(missing_ok=True)


def _file(metadata: str) -> Path | None:
    """None for an account without a home."""
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError:
        return None
    return state / "binlake" / "lakes" / f"{hashlib.sha256(metadata.encode()).hexdigest()[:32]}.json"
