"""A Delta table's versions as snapshots of an Iceberg table: each reader sees what Delta's readers see."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from binlake.delta import plain_tables
from binlake.delta.delta_schema import delta_field
from binlake.errors import LakeError
from binlake.iceberg import published_table, table_metadata
from binlake.iceberg.publication import publish
from binlake.merge.reshape import ReshapedColumn, reshaped_fields
from iceberg_readers import READERS, assert_same, by_delta, by_delta_extension
from plain_table import PlainTable
from type_ends import KINDS


def newest(table: PlainTable) -> table_metadata.TableMetadata:
    metadata = table_metadata.newest(table.path)
    assert metadata is not None
    return metadata


def published(table: PlainTable, *, known: bool = True) -> None:
    """Publish the table; not known: by another process."""
    if not known:
        published_table.forget(table.path)
    publish(table.path)
    assert_same(table.path)


def rows(numbers: Sequence[int]) -> list[dict[str, Any]]:
    return [{"id": number, "v": f"v{number}"} for number in numbers]


@pytest.fixture
def table(tmp_path: Path) -> PlainTable:
    """A table of two data files, published."""
    table = PlainTable(tmp_path / "a b" / "t'ä", [("id", "INT"), ("v", "STRING")])
    table.append(rows(range(10)))
    table.append(rows(range(10, 20)))
    publish(table.path)
    return table


def test_the_readers_are_there() -> None:
    """Without them the other tests here compare nothing."""
    if not READERS:
        pytest.skip("neither DuckDB's extension nor pyiceberg is installed")
    assert set(READERS) == {"DuckDB", "pyiceberg", "polars"}


def test_each_type_is_read_with_its_ends(tmp_path: Path) -> None:
    names = {kind: f"the {kind}" if number % 2 else f"c.{number}`'\"ä" for number, kind in enumerate(KINDS)}
    for mapped in (False, True):
        named = {kind: name if mapped else f"c{number}" for number, (kind, name) in enumerate(names.items())}
        table = PlainTable(tmp_path / f"t{mapped}", [(name, kind) for kind, name in named.items()])
        published(table)
        for place in range(max(map(len, KINDS.values()))):
            table.append([{named[kind]: values[place % len(values)] for kind, values in KINDS.items()}])
        table.append([dict.fromkeys(named.values())])
        published(table)


def test_bounds_hide_no_row(tmp_path: Path) -> None:
    """Readers that are asked for a value leave files out by their bounds."""
    columns = [kind for kind in KINDS if kind not in ("BINARY", "BOOLEAN", "ARRAY<FLOAT>")]
    table = PlainTable(tmp_path / "t", [(f"c{number}", kind) for number, kind in enumerate(columns)])
    for place in range(4):
        table.append([{f"c{number}": KINDS[kind][place % len(KINDS[kind])] for number, kind in enumerate(columns)}])
    publish(table.path)
    if "pyiceberg" not in READERS:
        return
    import pyiceberg.expressions
    from pyiceberg.table import StaticTable

    from iceberg_readers import metadata_file

    expressions: Any = pyiceberg.expressions  # its types know no names in the place of terms
    read = StaticTable.from_metadata(metadata_file(table.path))
    for number, kind in enumerate(columns):
        for value in KINDS[kind]:
            if kind not in ("DOUBLE", "FLOAT"):
                literal = value.isoformat() if isinstance(value, dt.date) else value
                assert read.scan(expressions.EqualTo(f"c{number}", literal)).to_arrow().num_rows, (kind, value)
        assert not read.scan(expressions.IsNull(f"c{number}")).to_arrow().num_rows


@pytest.mark.parametrize("known", [True, False])
def test_a_batch_has_its_tag_where_the_upkeep_was_quicker(table: PlainTable, known: bool) -> None:
    table.append(rows([20]))
    publish(table.path)
    if not known:
        published_table.forget(table.path)
    publish(table.path, "batch-7")
    number = newest(table).number
    publish(table.path, "batch-7")
    assert newest(table).number == number
    table.append(rows([21]))
    publish(table.path, "batch-8")
    assert newest(table).tags == {"batch-7": table.version, "batch-8": table.version + 1}
    assert_same(table.path)


def test_nothing_is_written_where_nothing_came(table: PlainTable) -> None:
    before = sorted(Path(table.path, "_iceberg/metadata").iterdir())
    publish(table.path)
    published_table.forget(table.path)
    publish(table.path)
    assert sorted(Path(table.path, "_iceberg/metadata").iterdir()) == before


@pytest.mark.parametrize("known", [True, False])
def test_rows_are_hidden_shown_and_replaced(table: PlainTable, known: bool) -> None:
    first, second = [add["path"] for add in table.files]
    published(table)
    table.hide({first: [1, 2], second: [3]})
    published(table, known=known)
    table.hide({first: [5]})
    published(table, known=known)
    shown = table.version - 1
    table.hide({first: [6, 7]})
    published(table, known=known)
    table.restore(shown)
    published(table, known=known)
    table.restore(shown - 1)
    published(table, known=known)
    table.hide({first: [9], second: [1]})
    table.replace([table.files[0]], rows([100]))
    published(table, known=known)
    table.restore(shown)
    published(table, known=known)
    table.replace(table.files, rows([7]))
    published(table, known=known)
    for snapshot in newest(table).snapshots:
        version = int(snapshot["summary"]["delta-version"])
        for read in READERS.values():
            assert read(table.path, version + 1) == by_delta(table.path, version)


def test_a_vector_that_comes_back_smaller_with_its_file_hides_no_more(table: PlainTable) -> None:
    first, second = [add["path"] for add in table.files]
    table.hide({first: [1, 2, 3], second: [1]})
    published(table)
    table.replace([add for add in table.files if add["path"] == first], rows([50]))
    published(table)
    table.restore(2)
    table.hide({second: [1, 2]})
    published(table)


@pytest.mark.parametrize("known", [True, False])
def test_columns_come_go_and_change_their_names(table: PlainTable, known: bool) -> None:
    table.reshape([("id", "INT", "id"), ("new", "STRING", None), ("v", "STRING", "v")])
    table.append([{"id": 30, "new": "n", "v": "v"}])
    published(table, known=known)
    identity = newest(table).content["table-uuid"]
    table.reshape([("id", "INT", "id"), ("v", "STRING", "new"), ("new", "STRING", "v")])  # a swap turns mapping on
    table.append([{"id": 31, "new": "n", "v": "v"}])
    published(table, known=known)
    table.reshape([("id", "INT", "id"), ("new", "STRING", "new")])
    table.append([{"id": 32, "new": "n"}])
    published(table, known=known)
    table.reshape([("v", "BIGINT", None), ("id", "INT", "id"), ("new", "STRING", "new")])
    table.append([{"id": 33, "new": "n", "v": 5}])
    published(table, known=known)
    fields = json.loads(table.log.opened().schema().to_json())["fields"]
    ids = [field["metadata"]["delta.columnMapping.id"] for field in fields]
    assert [column["id"] for column in newest(table).content["schemas"][-1]["fields"]] == ids
    assert newest(table).content["table-uuid"] == identity
    for snapshot in newest(table).snapshots:
        version = int(snapshot["summary"]["delta-version"])
        for name, read in READERS.items():
            assert read(table.path, version + 1) == by_delta(table.path, version), (name, version)


def test_a_name_that_another_type_takes_begins_the_table_again(table: PlainTable) -> None:
    identity = newest(table).content["table-uuid"]
    table.replace_columns([("id", "INT"), ("v", "BIGINT")])
    table.append([{"id": 1, "v": 2}])
    published(table)
    assert newest(table).content["table-uuid"] != identity
    assert len(newest(table).snapshots) == 1


def test_a_table_made_anew_begins_again(table: PlainTable, tmp_path: Path) -> None:
    other = PlainTable(tmp_path / "other", [("v", "STRING"), ("id", "INT")])
    other.append(rows(range(5)))
    kept = Path(table.path, "_iceberg")
    shutil.copytree(kept, Path(other.path, "_iceberg"))
    published(other)
    assert len(newest(other).snapshots) == 1


def test_a_lake_of_an_earlier_time_begins_again(table: PlainTable) -> None:
    """It was restored from a backup, and other batches came to the same version."""
    Path(table.path, f"_delta_log/{table.version:020}.json").unlink()
    published_table.forget(table.path)
    table.append(rows([77, 78]))
    published(table, known=False)
    assert len(newest(table).snapshots) == 1


def test_changed_statistics_are_published(table: PlainTable) -> None:
    """Upkeep puts wrong bounds right, which would hide rows."""
    (add, *_) = table.files
    right = json.loads(add["stats"])
    table.commit({"add": {**add, "stats": json.dumps({**right, "maxValues": {"id": 2}})}})
    publish(table.path)
    table.commit({"add": {**add, "dataChange": False, "stats": add["stats"]}})
    published(table)
    ids = {column["name"]: column["id"] for column in newest(table).content["schemas"][-1]["fields"]}
    known = published_table.known(table.path)
    assert known is not None
    bounds = [
        bound for file in known.data_files.values() for bound in file["upper_bounds"] if bound["key"] == ids["id"]
    ]
    assert sorted(int.from_bytes(bound["value"], "little") for bound in bounds) == [9, 19]


def ids_in_files(table: PlainTable) -> dict[str, int]:
    """The ids in the newest data file by the names of its columns, after none of them lacked one."""
    newest_file = max(table.files, key=lambda add: Path(table.path, add["path"]).stat().st_mtime_ns)
    columns = pq.read_schema(Path(table.path, newest_file["path"]))
    return {column.name: int(column.metadata[b"PARQUET:field_id"]) for column in columns}


def test_data_files_have_the_ids_of_the_mapping_before_it_is_on(tmp_path: Path) -> None:
    table = PlainTable(tmp_path / "t", [("id", "INT"), ("v", "ARRAY<FLOAT>")])
    table.append([{"id": 1, "v": [1.0]}])
    assert ids_in_files(table) == {"id": 1, "v": 2}
    table.reshape([("n", "INT", None), ("id", "INT", "id"), ("v", "ARRAY<FLOAT>", "v")])
    table.append([{"n": 7, "id": 2, "v": None}])
    assert ids_in_files(table) == {"n": 3, "id": 1, "v": 2}
    published(table)
    assert READERS == {} or READERS["DuckDB"](table.path, table.version + 1) == by_delta_extension(table.path)
    table.reshape([("n", "INT", "id"), ("id", "INT", "n"), ("v", "ARRAY<FLOAT>", "v")])
    table.append([{"n": 2, "id": 7, "v": [3.0]}])
    published(table)
    fields = json.loads(table.log.opened().schema().to_json())["fields"]
    assert {field["name"]: field["metadata"]["delta.columnMapping.id"] for field in fields} == {"n": 1, "id": 3, "v": 2}
    assert ids_in_files(table) == {"n": 3, "id": 1, "v": 2}, "by the names that they have in data files"
    assert all("binlake.fieldId" not in field["metadata"] for field in fields)


def test_a_table_of_before_gets_ids_with_its_next_column(tmp_path: Path) -> None:
    """It has the ids by then by which it is published."""
    table = PlainTable(tmp_path / "t", [("id", "INT"), ("v", "INT")])
    table.commit(
        plain_tables.metadata_with(
            table.log.opened(),
            json.dumps({"type": "struct", "fields": [delta_field("v", "INT"), delta_field("id", "INT")]}),
            table.log.opened().metadata().configuration,
        )
    )
    table.columns.reverse()
    table.append([{"id": 1, "v": 5}])
    assert pq.read_schema(Path(table.path, table.files[0]["path"])).field("v").metadata is None
    published(table)
    identity = newest(table).content["table-uuid"]
    table.reshape([("n", "INT", None), ("id", "INT", "id"), ("v", "INT", "v")])
    table.append([{"n": 7, "id": 2, "v": 6}])
    assert ids_in_files(table) == {"v": 1, "id": 2, "n": 3}
    published(table)
    assert newest(table).content["table-uuid"] == identity


def with_ids(table: PlainTable, **ids: int) -> None:
    """Give the table's columns these ids alone, as Spark does: it keeps those of columns that it takes over as they are
    when it rewrites a table, and gives others none."""
    log = table.log.opened()
    fields = [delta_field(name, kind) for name, kind in table.columns]
    for field in fields:
        field["metadata"] = {"binlake.fieldId": ids[field["name"]]} if field["name"] in ids else {}
    schema = json.dumps({"type": "struct", "fields": fields})
    table.commit(plain_tables.metadata_with(log, schema, log.metadata().configuration))


def test_columns_that_spark_left_without_an_id_get_one_beside_the_others(tmp_path: Path) -> None:
    """A data file of which some columns have ids has NULL in the others, by its readers of Iceberg."""
    table = PlainTable(tmp_path / "t", [("b", "INT"), ("a", "INT"), ("c", "INT")])
    with_ids(table, a=1, c=3)
    table.append([{"b": 1, "a": 2, "c": 3}])
    published(table)
    assert ids_in_files(table) == {"b": 4, "a": 1, "c": 3}
    before = json.loads(table.log.opened().schema().to_json())["fields"]
    wanted = [ReshapedColumn(name, "INT", name if name != "d" else None, "INT", pa.int32()) for name in "dbac"]
    after = reshaped_fields(before, wanted)
    assert {field["name"]: field["metadata"]["binlake.fieldId"] for field in after} == {"d": 5, "b": 4, "a": 1, "c": 3}


def test_elements_of_a_list_without_an_id_are_refused(tmp_path: Path) -> None:
    table = PlainTable(tmp_path / "t", [("id", "INT"), ("v", "ARRAY<FLOAT>")])
    table.append([{"id": 1, "v": [1.0]}])
    file = Path(table.path, table.files[0]["path"])
    numbered = pq.read_schema(file)
    plain = numbered.set(1, numbered.field(1).with_type(pa.list_(pa.float32())))
    pq.write_table(pa.table({"id": [1], "v": [[1.0]]}).cast(pa.schema(plain)), file)
    table.commit({"add": {**table.files[0], "size": file.stat().st_size}})
    with pytest.raises(LakeError, match="other ids of columns"):
        publish(table.path)


def test_ids_in_files_that_arent_the_tables_are_refused(table: PlainTable, tmp_path: Path) -> None:
    """Readers would take one column for another."""
    other = PlainTable(tmp_path / "other", [("v", "STRING"), ("id", "INT")])
    other.reshape([("v", "STRING", "v"), ("x", "INT", "id")])
    other.reshape([("v", "STRING", "v"), ("id", "INT", "x")])
    add = other.written(rows([1]))
    shutil.copy(Path(other.path, add["path"]), Path(table.path, add["path"]))
    table.commit({"add": add})
    published_table.forget(table.path)
    with pytest.raises(LakeError, match="other ids of columns"):
        publish(table.path)


def test_snapshots_and_files_of_metadata_stay_few(table: PlainTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_metadata, "KEPT", 3)
    table.append(rows([1]))
    publish(table.path, "before_migration")
    pinned = table.version + 1
    for number in range(6):
        table.append(rows([number]))
        publish(table.path, f"batch-{number}")
    metadata = newest(table)
    assert [each["snapshot-id"] for each in metadata.snapshots] == [pinned, *range(pinned + 4, pinned + 7)]
    assert metadata.tags == {"before_migration": pinned, "batch-3": pinned + 4, "batch-4": pinned + 5,
                             "batch-5": pinned + 6}  # fmt: skip
    assert len(list(Path(metadata.folder).glob("v*.metadata.json"))) == 3
    assert_same(table.path)


def test_many_manifests_are_put_together(table: PlainTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(60):
        table.append(rows([number]))
        if number % 7 == 0:
            table.hide({table.files[0]["path"]: [0]})
        publish(table.path)
    known = published_table.known(table.path)
    assert known is not None
    assert len(known.manifests) < 52
    assert_same(table.path)
    published(table, known=False)
