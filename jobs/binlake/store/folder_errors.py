"""Errors of the folders in which metadata tables lie: full, not writable for this account, hidden, damaged."""

from __future__ import annotations

import os
from pathlib import Path

from binlake.errors import LakeError
from binlake.storage import storage_errors


def unwritable(location: str, error: Exception) -> LakeError:
    """Return the error of a metadata table that couldn't be written, perhaps as its log couldn't be read."""
    return _failed("can't write", location, error)


def unreadable(location: str, error: Exception) -> LakeError:
    """Return the error of a metadata table that couldn't be read."""
    return _failed("can't read", location, error)


def _failed(what: str, location: str, error: Exception) -> LakeError:
    from binlake.store.table_losses import LOSSES

    failed = storage_errors.failed(f"{what} the metadata table {location}", error)
    if failed.remedy == storage_errors.OTHER:
        failed.remedy = "run again; if it stays, files of this folder are damaged or missing: restore it from a backup"
        if loss := LOSSES.get(location.rpartition("/")[2]):
            failed.remedy += f"; without one move {location} away: {loss.remedy}"
    return failed


def _nearest(location: str) -> Path:
    """Return the folder itself, or the nearest above it that this account can see."""
    folder = Path(location)
    return folder if os.path.exists(location) else next(path for path in folder.parents if os.path.exists(path))


def refuse_unwritable(location: str) -> None:
    """Raise LakeError for a folder that can't be written, before deltalake's threads fail in Rust with a page of
    text."""
    if "://" in location:
        return
    folder = _nearest(location)
    disk = os.statvfs(folder)
    if disk.f_blocks and not (disk.f_bavail if os.geteuid() else disk.f_bfree):
        raise storage_errors.failed(f"can't write the metadata table {location}", OSError("No space left on device"))
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        why = "Read-only file system" if disk.f_flag & os.ST_RDONLY else "Permission denied"
        raise storage_errors.failed(f"can't write the metadata table {location}", OSError(f"{folder}: {why}"))


def refuse_hidden(location: str) -> None:
    """Raise LakeError where the lake lies below a file, or below a folder that this account may not enter: it isn't an
    empty lake."""
    if "://" in location:
        return
    above = _nearest(location)
    if not above.is_dir():
        raise LakeError(
            f"{above} isn't a folder",
            remedy="let lake.path in the YAML name a folder that is writable for this account",
        )
    if not os.access(above, os.R_OK | os.X_OK, effective_ids=True):
        raise storage_errors.failed(f"can't read the metadata table {location}", OSError(f"{above}: Permission denied"))
