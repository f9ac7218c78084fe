"""Tables that still have former values of columns that are masked or excluded by now."""

from __future__ import annotations

from collections.abc import Iterator

from binlake.config import PipelineConfig
from binlake.doctor.check import Check
from binlake.errors import LakeError
from binlake.maintain.purge_look import former_values
from binlake.moment import moment_text
from binlake.store.metadata import metadata_of


def former_values_kept(config: PipelineConfig) -> Iterator[Check]:
    """Yield which tables have former values, until when, and what removes them now."""
    try:
        kept = former_values(config, metadata_of(config))
    except LakeError:
        return  # other checks say what is wrong with the lake
    for name, until_us in sorted(kept.items()):
        yield Check(
            "former values",
            "warn",
            f"{name}: earlier versions have values of columns that are masked or excluded since; data files of theirs"
            f" are kept until {moment_text(until_us)}",
            f"binlake purge --config FILE --tables {name} shows all that is kept, and removes it",
        )
