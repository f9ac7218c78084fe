"""A row that never ends is read up to what a server sends."""

from __future__ import annotations

import pytest

from binlake.snapshot import resultset


def test_a_row_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resultset, "_LARGEST", 64 << 20)
    part = b"\xff\xff\xff\0" + b"\xfe" + (1 << 40).to_bytes(8, "little") + bytes(0xFFFFFF - 9)
    sent = 0

    def fill(buffer: memoryview) -> int:
        nonlocal sent
        at = sent % len(part)
        size = min(len(buffer), len(part) - at)
        buffer[:size] = part[at : at + size]
        sent += size
        return size

    with pytest.raises(resultset.Truncated, match="more than a gigabyte"):
        list(resultset.columns(fill, 1))
