"""Commands for lake versions: their list, and pins."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from binlake.cli import printing
from binlake.config import PipelineConfig
from binlake.position import Position
from binlake.report import counted

if TYPE_CHECKING:
    from binlake.lake.lake_versions import LakeVersion


def versions(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake.lake.lake_versions import lake_versions
    from binlake.metadata import thinning
    from binlake.metadata.metadata import metadata_of

    metadata = metadata_of(config)
    known = lake_versions(metadata, config.maintain.history_hours)
    if arguments.json:
        printing.as_json({"versions": [_as_json(version) for version in known]})
        return
    printing.lake_versions(known, thinning.count_thinned(metadata, [version.batch for version in known]))


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


def pin(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake.lake import pins
    from binlake.metadata.decisions import Reason
    from binlake.metadata.metadata import metadata_of

    reason = Reason(arguments.who, arguments.why)
    version = pins.pin(metadata_of(config), arguments.batch, arguments.name, reason)
    position = Position.parse(version.position).short
    print(f"batch {version.batch} is kept as {version.name}: {counted(len(version.tables), 'table')} at {position}")


def unpin(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake.lake import pins
    from binlake.metadata.metadata import metadata_of

    batch = pins.unpin(metadata_of(config), arguments.name)
    print(f"batch {batch} isn't kept any more: maintain removes its files once no promise needs them")
