"""Commands for lake versions: their list, and pins."""

from __future__ import annotations

import argparse
from datetime import datetime

from binlake.cli import printing
from binlake.config import PipelineConfig
from binlake.lake import pins
from binlake.lake.lake_versions import LakeVersion, lake_versions
from binlake.metadata.decisions import Reason
from binlake.metadata.metadata import metadata_of
from binlake.position import Position

_COLUMNS = ("batch", "name", "position", "committed", "tables", "until")


def versions(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    known = lake_versions(metadata_of(config), config.maintain.history_hours)
    if arguments.json:
        printing.as_json({"versions": [_as_json(version) for version in known]})
        return
    readable = [version for version in known if version.readable]
    if readable:
        printing.table("Versions that can be read", _COLUMNS, [_as_row(version) for version in readable])
    if gone := len(known) - len(readable):
        print(f"{gone:,} earlier batches can't be read any more; --json lists them, too")
    if not known:
        print("there is no version yet: each batch that binlake sync records is one")


def _as_json(version: LakeVersion) -> dict[str, object]:
    return {
        "batch": version.batch,
        "name": version.name,
        "position": version.position,
        "committed": version.committed.isoformat(),
        "readable": version.readable,
        "until": version.until and version.until.isoformat(),
        "tables": version.tables,
    }


def _as_row(version: LakeVersion) -> tuple[object, ...]:
    position = Position.parse(version.position).short
    until = _time(version.until) if version.until else "unpinned" if version.name else "something changes"
    return version.batch, version.name, position, _time(version.committed), len(version.tables), until


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def pin(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    reason = Reason(arguments.who, arguments.why)
    version = pins.pin(metadata_of(config), arguments.batch, arguments.name, reason)
    position = Position.parse(version.position).short
    print(f"batch {version.batch} is kept as {version.name}: {len(version.tables):,} tables at {position}")


def unpin(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    batch = pins.unpin(metadata_of(config), arguments.name)
    print(f"batch {batch} isn't kept any more: maintain removes its files once no promise needs them")
