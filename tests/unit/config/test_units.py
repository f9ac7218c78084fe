"""The unit in a setting's name: it means the same everywhere, and the setting's docstring says it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from binlake.config import MaintainConfig, MergeConfig, units
from binlake.config.feed_config import FeedConfig
from binlake.config.orchestration import AirflowConfig

WORDS = {
    "mb": r"megabytes \(10\*\*6 bytes\)", "gb": r"gigabytes \(10\*\*9 bytes\)",
    "seconds": "seconds", "minutes": "minutes", "hours": "hours", "days": "days",
}  # fmt: skip


def settings_with_units() -> Iterator[tuple[type[BaseModel], str, str]]:
    for model in (MaintainConfig, MergeConfig, FeedConfig, AirflowConfig):
        for name in model.model_fields:
            if (unit := name.rpartition("_")[2]) in WORDS:
                yield model, name, unit


@pytest.mark.parametrize(("model", "name", "unit"), list(settings_with_units()))
def test_a_setting_s_docstring_says_its_unit(model: type[BaseModel], name: str, unit: str) -> None:
    text = " ".join((inspect.getdoc(model) or "").split())
    described = re.search(rf"\b{name}: (.*?)(?:[a-z_]+: |$)", text)
    assert described, f"{name} isn't described"
    assert re.search(WORDS[unit], described[1]), described[1]


def test_a_duration_is_a_number_and_a_unit() -> None:
    assert [units.seconds_of(text) for text in ("500ms", "1s", "1.5s", "5min", "5m", "2h", "1d")] == [
        0.5, 1, 1.5, 300, 300, 7200, 86400,
    ]  # fmt: skip
    for text in ("", "1", "s", "0s", "-1s", "1 s", "1M", "1s2"):
        with pytest.raises(ValueError, match="is no duration; write 500ms"):
            units.seconds_of(text)


def test_a_megabyte_is_a_million_bytes_everywhere() -> None:
    assert MaintainConfig(file_mb=1.5).file_bytes == 1_500_000
    assert MergeConfig(without_spark_mb=128).without_spark_bytes == 128_000_000
    assert units.bytes_of_gb(0.5) == 500_000_000
    assert units.gb_of_bytes(units.bytes_of_gb(50)) == 50
