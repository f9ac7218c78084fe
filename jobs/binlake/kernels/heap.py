"""Where a process that lives long takes its memory from: the C library's heap, and Arrow's."""

from __future__ import annotations

import ctypes
import os
import sys

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""Numbers of mallopt(3)'s parameters, of malloc.h."""
_LARGE = 1 << 20
"""Bytes from which on an allocation is a mapping of its own."""
_ARENAS = 2


def return_freed_memory() -> None:
    """Let this process give freed memory back to the system, for as long as it lives. Call it before threads begin, and
    before pyarrow is imported.

    By default glibc keeps eight arenas for each core, and takes buffers of up to 32 MB from them once one was freed
    (mallopt(3), M_ARENA_MAX and M_MMAP_THRESHOLD). The threads of each batch then leave their buffers in other arenas,
    so that a process which follows for hours grows by some 16 MB for each of them. Another C library is left alone.

    Arrow takes the memory of its buffers from mimalloc by default, which keeps some 50 MB more of it than jemalloc
    while 50 tables are followed. ARROW_DEFAULT_MEMORY_POOL decides where it is set (Arrow C++, Environment Variables).
    """
    if sys.platform == "linux":
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, _ARENAS)
        mallopt(_MMAP_THRESHOLD, _LARGE)
