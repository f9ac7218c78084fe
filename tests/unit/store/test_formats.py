"""What another binlake left in metadata, in a form that this one doesn't know, is refused by name; a manifest that was
staged before fields were added has the same content."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from binlake.errors import LakeError, UnknownFormat
from binlake.lease import lease
from binlake.lease.lease import OpenBatch, RecordedState
from binlake.planner.manifest import Manifest
from binlake.position import Position, Range, Slice
from binlake.schema.cascades import Cascade
from binlake.schema.table import TableName
from binlake.serialization import dumps
from binlake.store import formats
from binlake.store.metadata import Metadata

SERVER, FILE = "3e11fa47-0000-0000-0000-000000000001", "binlog.000007"


def at(offset: int, gtids: str = "") -> Position:
    return Position(SERVER, FILE, offset, 1700000000, f"{SERVER}:{gtids}" if gtids else "")


PLANNED = OpenBatch(
    8,
    Range(at(157, "1-9"), at(9000, "1-20"), (Slice(FILE, 157, 9000, 1700000000, whole=False),)),
    until_us=1700000002000000,
    planned_us=1700000003000000,
    phases=(("plan", 0.13),),
    cascades=(
        Cascade(
            TableName("shop", "child"), TableName("shop", "parent"), "fk", ("parent_id",), ("id",), "CASCADE",
            "SET NULL",
        ),
    ),
    lower_case_names=True,
)  # fmt: skip


def metadata_with(folder: Path, **columns: str) -> Metadata:
    """A lake whose lease's row holds these texts."""
    metadata = Metadata(str(folder))
    metadata.create_with("lease", [{"batch": 8, "expires_us": 0, **columns}])
    return metadata


def test_what_was_written_is_read(tmp_path: Path) -> None:
    state = RecordedState(7, at(157, "1-9"))
    metadata = metadata_with(tmp_path, plan=formats.written(PLANNED), position=formats.written(state))
    control = lease.read(metadata)
    assert (control.batch, control.open, control.recorded_state) == (8, PLANNED, state)
    staged = replace(PLANNED, state="staged", attempt="1700000000-abcdef01")
    with lease.held(metadata) as held:
        held.advance(staged)
    assert lease.read(metadata).open == staged
    assert json.loads(metadata.read("lease")[0]["plan"])["format"] == formats.FORMAT


def test_an_older_manifest_tells_the_same_content() -> None:
    manifest = Manifest.from_json((Path(__file__).parent / "older_manifest.json").read_text())
    assert manifest.content == "605d4f1deb71a8d1e6b371e7da77ba32"
    (part,) = manifest.slices
    assert part.stopped[0].raw == b"\0\1\xff\xfb"
    assert part.statements[0].session.time_zone == "+05:30"


@pytest.mark.parametrize("column", ["plan", "position"])
@pytest.mark.parametrize(
    ("text", "says", "remedy"),
    [
        (json.dumps({"format": formats.FORMAT + 1, "anything": "else"}), "newer", "update binlake"),
        (json.dumps({"format": 1, **json.loads(dumps(at(157)))}), "format 1, this one knows 2", "a new folder"),
        (dumps(at(157)), "format 0, this one knows 2", "a new folder"),
    ],
    ids=["newer", "1", "0"],
)
def test_another_format_is_refused(tmp_path: Path, column: str, text: str, says: str, remedy: str) -> None:
    metadata = metadata_with(tmp_path, **{column: text})
    with pytest.raises(UnknownFormat, match=says) as refused, lease.held(metadata):
        pass
    assert remedy in refused.value.remedy
    assert not refused.value.retryable
    with pytest.raises(UnknownFormat):
        lease.read(metadata)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"format": 2, "batch": "8"}', '{"format": "x"}'])
def test_what_nobody_wrote_says_what_to_do(text: str) -> None:
    with pytest.raises(LakeError, match="restore"):
        formats.read(OpenBatch, text)
