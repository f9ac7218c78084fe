"""Modes of tables: entries of several patterns come together, contradictions are refused with words."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from binlake.config import PipelineConfig, TablesConfig
from binlake.errors import ConfigurationError
from binlake.schema.table import TableName
from binlake.serialization import dumps, loads

CLICKS = TableName("shop", "clicks")


def config_with(*modes: dict[str, Any]) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "source": {"name": "shop", "connection": "shop", "server_id": 1},
            "tables": {"include": ["shop.*"], "exclude": ["shop.secret"], "modes": list(modes)},
            "lake": {"path": "/lake"},
        }
    )


def test_a_table_has_the_modes_of_all_entries_that_name_it() -> None:
    config = config_with({"tables": "shop.*", "log": {}}, {"tables": "shop.cl*", "log": {}})
    assert config.beside(CLICKS) == ("log",)
    assert config.beside(TableName("shop", "secret")) == ()
    assert config.beside(TableName("other", "clicks")) == ()
    assert config.beside_path(CLICKS, "log") == "/lake/shop/shop/clicks__log"


ONE_BY_ONE: tuple[dict[str, Any], ...] = (
    {"tables": "shop.*", "log": {}},
    {"tables": "shop.cl*", "soft_delete": True, "history": {"except": ["seen"]}},
    {"tables": "shop.clicks", "row_metadata": ["batch"]},
)


def test_entries_that_metadata_hold_come_together_as_those_of_the_yaml() -> None:
    tables = config_with(*ONE_BY_ONE).tables
    read = loads(TablesConfig, dumps(tables))
    assert read == tables
    modes = read.modes_of("shop", "clicks")
    assert modes == tables.modes_of("shop", "clicks")
    assert (modes.beside, modes.soft_delete, modes.row_metadata) == (("history", "log"), True, ["batch"])


def test_entries_that_an_older_binlake_wrote_whole_come_together() -> None:
    nothing: dict[str, Any] = {"history": None, "log": None, "mirror": True, "soft_delete": False, "row_metadata": []}
    written = config_with(*({**nothing, **entry} for entry in ONE_BY_ONE)).tables
    assert written.modes_of("shop", "clicks") == config_with(*ONE_BY_ONE).tables.modes_of("shop", "clicks")


def test_a_history_tracks_the_columns_that_its_patterns_name() -> None:
    config = config_with({"tables": "shop.clicks", "history": {"track": ["*"], "except": ["updated_*"]}})
    mode = config.history(CLICKS)
    assert mode is not None
    assert mode.tracked(["id", "Updated_at", "v"]) == ("id", "v")
    assert mode.own.names == ("valid_from", "valid_to", "is_current", "from_position", "to_position")
    assert config.history(TableName("shop", "orders")) is None


def test_fivetrans_names_are_meant_by_either_word() -> None:
    """What was recorded, or written in a YAML, under the former word is the same mode."""
    entries = ({"tables": "shop.*", "history": {"columns": "fivetran"}},
               {"tables": "shop.cl*", "history": {"columns": "fivetran_names"}})  # fmt: skip
    mode = config_with(*entries).history(CLICKS)
    assert mode is not None
    assert mode.columns == "fivetran_names"
    assert mode.own.names[:3] == ("_fivetran_start", "_fivetran_end", "_fivetran_active")


def test_the_name_of_a_table_beside_a_mirror_is_taken() -> None:
    config = config_with({"tables": "shop.clicks", "log": {}})
    assert "the log of shop.clicks" in config.taken_by(TableName("shop", "clicks__log"))
    assert config.taken_by(TableName("shop", "orders__log")) == ""
    assert config.taken_by(TableName("shop", "__log")) == ""


def test_entries_that_contradict_are_refused_by_name() -> None:
    config = config_with({"tables": "shop.*", "log": {}}, {"tables": "shop.clicks", "log": None})
    with pytest.raises(ConfigurationError, match=r"shop.clicks two different settings of log"):
        config.beside(CLICKS)


@pytest.mark.parametrize(
    ("modes", "why"),
    [
        ([{"tables": "shop.a", "mirror": False}], "without log leaves nothing"),
        ([{"tables": "shop.a", "mirror": False, "log": {}, "soft_delete": True}], "columns of the mirror"),
        ([{"tables": "shop.a", "mirror": False, "log": {}, "row_metadata": ["batch"]}], "columns of the mirror"),
        ([{"tables": "shop.a"}, {"tables": "shop.a"}], "two entries"),
        ([{"tables": "shop", "log": {}}], "no dot"),
        ([{"tables": "shop.a", "log": {"columns": "dbt"}}], "Extra inputs"),
        ([{"tables": "shop.a", "mirror": False, "log": {}, "history": {}}], "begins with the rows that are copied"),
    ],
)
def test_what_makes_no_sense_is_refused(modes: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        config_with(*modes)
