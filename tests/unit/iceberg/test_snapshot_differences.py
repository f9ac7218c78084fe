"""The comparison of both tables finds what readers of Iceberg would see otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from binlake.delta import deletion_vectors
from binlake.iceberg import avro_files, hidden_rows, iceberg_schema, published_table, table_metadata
from binlake.iceberg.publication import publish
from binlake.iceberg.snapshot_differences import differences
from binlake.iceberg.table_metadata import TableMetadata
from plain_table import PlainTable


@pytest.fixture
def table(tmp_path: Path) -> PlainTable:
    table = PlainTable(tmp_path / "t", [("id", "INT"), ("v", "STRING")])
    assert differences(table.path) == ["it was never published"]
    table.append([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    table.hide({table.files[0]["path"]: [0]})
    return table


def test_what_is_published_is_equal(table: PlainTable) -> None:
    publish(table.path)
    assert differences(table.path) == []
    table.append([{"id": 3, "v": "c"}])
    assert differences(table.path) == [], "of the version that is published"


def other_entries(change: dict[str, Any]) -> Callable[..., int]:
    """Manifests say something else."""
    write = avro_files.write_entries

    def written(path: str, entries: list[Any], content: str, *more: Any) -> int:
        wrong = change if content == "data" else {}
        changed = [{**entry, "data_file": {**entry["data_file"], **wrong}} for entry in entries]
        return write(path, changed, content, *more)

    return written


WRONG = {
    "rows": (avro_files, "write_entries", other_entries({"record_count": 3}), "rows or bytes of"),
    "bounds": (avro_files, "write_entries", other_entries({"lower_bounds": None}), "statistics of"),
    "a file": (avro_files, "write_entries", other_entries({"file_path": "file:///x"}), "1 data files are lacking"),
    "a vector": (deletion_vectors, "framed", lambda path, vector: b"x" * 42, "the deletion vector of"),
    "a vector's identity": (
        hidden_rows,
        "key_of",
        lambda add: "0" if add and add.vector else "",
        "deletion vectors of 2",
    ),
    "types": (
        iceberg_schema,
        "_TYPES",
        {**iceberg_schema._TYPES, "integer": "long"},
        "its columns, their types or ids",
    ),
    "the hint": (TableMetadata, "name_newest", lambda self: None, "version-hint.txt".replace("txt", "text")),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_difference_is_found(table: PlainTable, what: str) -> None:
    module, name, wrong, said = WRONG[what]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, name, wrong)
        if what == "a vector's identity":
            patched.setattr("binlake.iceberg.publication.key_of", wrong)
        publish(table.path)
        published_table.forget(table.path)
    assert any(text.startswith(said) for text in differences(table.path)), differences(table.path)


def test_another_table_is_told(table: PlainTable, tmp_path: Path) -> None:
    publish(table.path)
    metadata = table_metadata.newest(table.path)
    assert metadata is not None
    file = Path(metadata.folder, f"v{metadata.number}.metadata.json")
    file.write_text(json.dumps(metadata.content).replace(metadata.delta_id, "another"))
    assert differences(table.path) == ["it is of another Delta table"]
