"""Names by which records of snapshots, and the files of their attempts, are known."""

from __future__ import annotations

ATTEMPT_PREFIX = "snapshot-"
"""Beginning of the name of an attempt, and of the folder of its data files."""
OF_KEYS = "-keys"
"""Suffix of the id of a snapshot of a range of keys, which no other run takes up."""


def is_of_an_attempt(path: str) -> bool:
    """Return whether a file lies where an attempt writes. path: below the table's folder."""
    return path.startswith(ATTEMPT_PREFIX) and "/" in path
