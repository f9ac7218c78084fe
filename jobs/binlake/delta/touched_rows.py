"""Which rows of a Delta table's data files were added, hidden or taken away since a version, by the table's log.

Commits of whoever count. What a commit says to change no data (``dataChange`` is false, as of files put together)
doesn't.
"""

from __future__ import annotations

from typing import Any

from pyroaring import BitMap64

from binlake.delta import deletion_vectors, delta_actions
from binlake.errors import StagingError

TouchedRows = dict[str, BitMap64 | None]
"""The numbers of rows by the path of their data file; None for all rows of a file."""


def since(table_path: str, version: int, newest: int) -> TouchedRows | None:
    """Return the rows that commits behind ``version`` touched, up to ``newest``.

    Returns None where that can't be told, as a commit's or a deletion vector's file is gone. Raises OSError, LakeError.
    """
    touched: TouchedRows = {}
    try:
        for number in range(version + 1, newest + 1):
            for path, rows in _of_commit(table_path, number).items():
                known = touched.get(path, BitMap64())
                touched[path] = None if rows is None or known is None else known | rows
    except (StagingError, FileNotFoundError, ValueError, KeyError):
        return None
    return touched


def _of_commit(table_path: str, number: int) -> TouchedRows:
    """Return the rows that one commit touched. Raises StagingError where it can't be read, FileNotFoundError,
    ValueError, KeyError."""
    actions = list(delta_actions.of_commit(table_path, number))
    added, removed = ({file["path"]: file for file in _changing(actions, kind)} for kind in ("add", "remove"))
    return {
        path: deletion_vectors.hidden(table_path, added[path]) ^ deletion_vectors.hidden(table_path, removed[path])
        if path in added and path in removed
        else None
        for path in added.keys() | removed.keys()
    }


def _changing(actions: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    files = [action[kind] for action in actions if action.get(kind)]
    return [file for file in files if file.get("dataChange", True)]
