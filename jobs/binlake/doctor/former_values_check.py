"""Tables whose earlier versions have values, or rows, that a policy withholds by now."""

from __future__ import annotations

from collections.abc import Iterator

from binlake.config import PipelineConfig
from binlake.doctor.check import Check
from binlake.errors import LakeError
from binlake.maintain.former_values import former_values
from binlake.store.metadata import metadata_of


def former_values_kept(config: PipelineConfig) -> Iterator[Check]:
    """Yield which tables have former values, until when, and what removes them now."""
    try:
        kept = former_values(config, metadata_of(config))
    except LakeError:
        return  # other checks say what is wrong with the lake
    for former in kept:
        yield Check(
            "former values",
            "warn",
            f"{former.table}: {former.what}",
            f"{former.command} shows all that is kept, and removes it",
        )
