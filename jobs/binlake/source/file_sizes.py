"""The sizes of a log's files as positions count them."""

from __future__ import annotations

_ENCRYPTION_HEADER = 512
"""Bytes at the begin of a file that MySQL encrypts (Rpl_encryption_header, sql/rpl_log_encryption.h). SHOW BINARY LOGS
counts them; positions, and what the server sends, begin behind them."""


def size_of(size: int, encrypted: str | None = None) -> int:
    """Return the bytes of a file's events, its magic number included.

    size: as SHOW BINARY LOGS has it. encrypted: MySQL's third column, Yes or No; None where there is none, as on
    MariaDB, whose encrypted files have the sizes of others.
    """
    return size - _ENCRYPTION_HEADER if encrypted == "Yes" else size
