"""Which Delta version each batch has of a table, as its log loses some."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake.records import table_versions
from binlake.store.metadata import Metadata


@pytest.mark.parametrize("is_plain", [True, False], ids=["written plainly", "written by deltalake"])
def test_lost_versions_are_those_of_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_plain: bool) -> None:
    metadata = Metadata(str(tmp_path))
    rows = [("a", 1, 2), ("a", 2, 3), ("a", 2, 4), ("b", 2, 9), ("a", 3, 5)]
    metadata.append(
        "lake_versions", [{"table_id": life, "batch": batch, "delta_version": version} for life, batch, version in rows]
    )
    if not is_plain:
        monkeypatch.setattr(Metadata, "_is_written_plainly", lambda *_: False)
    table_versions.note_lost(metadata, "a", 3)
    table_versions.note_lost(metadata, "a", 7)
    found = {(row["table_id"], row["batch"], row["delta_version"]) for row in metadata.read("lake_versions")}
    assert found == {("a", 1, 2), ("a", 2, 3), ("a", 2, None), ("b", 2, 9), ("a", 3, None)}
    stopped = [row["delta_version"] for row in metadata.read("lake_versions", where="status = 'stopped'")]
    assert stopped == [None, None]
