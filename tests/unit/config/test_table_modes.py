"""Modes of tables: entries of several patterns come together, contradictions are refused with words."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from binlake.config import PipelineConfig


def config_with(*modes: dict[str, Any]) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "source": {"name": "shop", "connection": "shop", "server_id": 1},
            "tables": {"include": ["shop.*"], "exclude": ["shop.secret"], "modes": list(modes)},
            "lake": {"path": "/lake"},
        }
    )


@pytest.mark.parametrize(
    ("modes", "why"),
    [
        ([{"tables": "shop.a", "mirror": False}], "without log or history leaves nothing"),
        ([{"tables": "shop.a", "mirror": False, "log": {}, "soft_delete": True}], "columns of the mirror"),
        ([{"tables": "shop.a", "mirror": False, "log": {}, "row_metadata": ["batch"]}], "columns of the mirror"),
        ([{"tables": "shop.a"}, {"tables": "shop.a"}], "two entries"),
        ([{"tables": "shop", "log": {}}], "no dot"),
        ([{"tables": "shop.a", "log": {"columns": "dbt"}}], "Extra inputs"),
        ([{"tables": "shop.a", "log": {}}], "log can't be used yet"),
        ([{"tables": "shop.a", "history": {}}], "history can't be used yet"),
        ([{"tables": "shop.a", "soft_delete": True}], "soft_delete can't be used yet"),
        ([{"tables": "shop.a", "row_metadata": ["position"]}], "row_metadata can't be used yet"),
    ],
)
def test_what_makes_no_sense_is_refused(modes: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        config_with(*modes)
