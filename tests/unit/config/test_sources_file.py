"""A file of tables that several sources fill, as the YAMLs of these name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake.cli.yaml_checks import checks
from binlake.config import load
from binlake.config.pipeline_config import YamlOnDisk
from binlake.errors import ConfigurationError
from binlake.schema.table import TableName

SHARED = """
folder: company
sources: [eu, us]
merge_tables:
  - {from: "tenant_%.orders", into: "all.orders", source_column: tenant, source_name_column: region}
"""
SOURCE = """
source: {{name: {name}, connection: {name}, server_id: 7}}
tables: {{include: ["*.*"]}}
lake: {{path: ./lake}}
merge_tables:
  - {{from: "shop.items_%", into: "all.items", source_column: part}}
  - {{file: company.yaml}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("eu", "us"):
        (tmp_path / f"{name}.yaml").write_text(SOURCE.format(name=name))
    (tmp_path / "company.yaml").write_text(SHARED)
    return tmp_path


def test_each_source_has_the_entries_of_the_file(folder: Path) -> None:
    eu, us = (load(folder / f"{name}.yaml") for name in ("eu", "us"))
    assert [entry.into for entry in eu.tables.merge_tables] == ["all.items", "all.orders"]
    assert eu.tables == us.tables
    assert eu.table_path(TableName("all", "orders")) == us.table_path(TableName("all", "orders"))
    assert eu.table_path(TableName("all", "items")) != us.table_path(TableName("all", "items"))
    assert [file.is_good for file in checks(sorted(folder.glob("*.yaml")))] == [True] * 3


def test_a_long_lived_process_reads_it_again_once_it_has_changed(folder: Path) -> None:
    on_disk = YamlOnDisk(str(folder / "eu.yaml"), load(folder / "eu.yaml"))
    (folder / "company.yaml").write_text(SHARED.replace("[eu, us]", "[eu, us, asia]"))
    assert on_disk.read().merge_tables[1].sources == ["eu", "us", "asia"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("[eu, us]", "[us]", "that fill all.orders are us, without eu"),
        ("folder: company", "folder: us", "is the folder of a source"),
        ("folder: company\n", "", "folder: this key is missing"),
        (", source_name_column: region", "", "source_name_column: this key is missing"),
        ("region}", "region, sources: [eu]}", "are keys of the file, above merge_tables"),
    ],
)
def test_what_is_wrong_with_it_is_said_by_name(folder: Path, before: str, after: str, said: str) -> None:
    (folder / "company.yaml").write_text(SHARED.replace(before, after))
    with pytest.raises(ConfigurationError) as error:
        load(folder / "eu.yaml")
    assert said in error.value.message


def test_an_entry_that_names_a_file_has_nothing_else(folder: Path) -> None:
    text = SOURCE.format(name="eu").replace("{file: company.yaml}", "{file: company.yaml, into: all.orders}")
    (folder / "eu.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match="has nothing else, as the file says it"):
        load(folder / "eu.yaml")


def test_a_file_that_is_not_there_is_named(folder: Path) -> None:
    (folder / "company.yaml").unlink()
    with pytest.raises(ConfigurationError, match=r"there is no file .*company\.yaml") as error:
        load(folder / "eu.yaml")
    assert error.value.remedy == "correct file in merge_tables"
