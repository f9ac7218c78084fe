"""Delta's deletion vectors: what is written is read, also by others, and what is damaged is told."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap64

from binlake.delta import deletion_vectors, delta_commits, log_files
from binlake.errors import LakeError

ROWS = st.lists(st.sets(st.integers(0, 2**40), min_size=1, max_size=50), min_size=1, max_size=4)


def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = str(tmp_path_factory.mktemp("table"))

    @settings(deadline=None)  # it writes files
    @given(ROWS)
    def holds(sets: list[set[int]]) -> None:
        descriptors = deletion_vectors.write(folder, [BitMap64(rows) for rows in sets])
        assert [set(deletion_vectors.read(folder, descriptor)) for descriptor in descriptors] == sets
        assert [descriptor["cardinality"] for descriptor in descriptors] == [len(rows) for rows in sets]

    holds()


def test_a_vector_inside_of_the_log(tmp_path: Path) -> None:
    """Z85 by ZeroMQ's RFC 32: its own example among the bytes."""
    assert deletion_vectors._to_z85(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"
    data = (1681511377).to_bytes(4, "little") + BitMap64([3, 4, 7, 11, 18, 29]).serialize()
    padded = data + b"\0" * (-len(data) % 4)
    inline = {"storageType": "i", "pathOrInlineDv": deletion_vectors._to_z85(padded), "sizeInBytes": len(data)}
    assert list(deletion_vectors.read(str(tmp_path), {**inline, "cardinality": 6})) == [3, 4, 7, 11, 18, 29]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content[:9] + bytes([content[9] ^ 1]) + content[10:],
        lambda content: content[:-4],
    ],
)
def test_a_damaged_file_is_told(tmp_path: Path, damage: Any) -> None:
    (descriptor,) = deletion_vectors.write(str(tmp_path), [BitMap64([1, 2, 3])])
    (file,) = tmp_path.glob("deletion_vector_*.bin")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(LakeError, match="damaged"):
        deletion_vectors.read(str(tmp_path), descriptor)


def test_a_vector_of_another_number_of_rows_is_told(tmp_path: Path) -> None:
    (descriptor,) = deletion_vectors.write(str(tmp_path), [BitMap64([1, 2, 3])])
    with pytest.raises(LakeError, match="holds 3 rows, 4 were noted"):
        deletion_vectors.read(str(tmp_path), {**descriptor, "cardinality": 4})


def test_others_read_what_is_marked(tmp_path: Path) -> None:
    """By delta-rs, with vectors that follow each other, and after a checkpoint."""
    path = str(tmp_path / "t")
    settings = {"delta.enableDeletionVectors": "true"}
    for first in (0, 100):
        rows = pa.table({"id": pa.array(range(first, first + 100), pa.int64())})
        write_deltalake(path, rows, mode="append", configuration=settings if not first else None)
    gone: set[int] = set()
    for turn in range(1, 12):
        log = DeltaTable(path)
        names = [name.rpartition("/")[2] for name in log.file_uris()]
        adds = log_files.added(path, log.version(), names)
        assert adds is not None
        assert set(adds) == set(names)
        actions: list[dict[str, Any]] = []
        for add in (known.fields for known in adds.values()):
            first = json.loads(add["stats"])["minValues"]["id"]
            vector = add.get("deletionVector")
            rows_before = deletion_vectors.read(path, vector) if vector else BitMap64()
            (descriptor,) = deletion_vectors.write(path, [rows_before | BitMap64([turn])])
            gone.add(first + turn)
            removed = {"path": add["path"], "dataChange": True, "partitionValues": {}, "size": add["size"]}
            actions += [
                {"remove": {**removed, **({"deletionVector": vector} if vector else {})}},
                {"add": {**add, "partitionValues": {}, "dataChange": True, "deletionVector": descriptor}},
            ]
        delta_commits.commit(log, path, actions)
        log = DeltaTable(path)
        vectors = log.deletion_vectors().read_all()["selection_vector"].to_pylist()
        assert sum(not kept for vector in vectors for kept in vector) == len(gone) == 2 * turn
    assert (tmp_path / "t" / "_delta_log" / f"{10:020}.checkpoint.parquet").exists()


def table_with_hint(folder: Path, hint: str) -> tuple[str, str]:
    """Return the path of a table whose log has a hint, and the name of its data file."""
    path = str(folder / "t")
    write_deltalake(path, pa.table({"id": [1]}))
    (name,) = (uri.rpartition("/")[2] for uri in DeltaTable(path).file_uris())
    (folder / "t" / "_delta_log" / "_last_checkpoint").write_text(hint)
    return path, name


@pytest.mark.parametrize("hint", ['{"version": 7, "size": 9}', '{"version": 0}'])
def test_a_log_that_is_not_read_to_its_end_tells_nothing(tmp_path: Path, hint: str) -> None:
    """Its hint is stale: deltalake reads it then."""
    path, name = table_with_hint(tmp_path, hint)
    assert log_files.added(path, 0, [name]) is None


@pytest.mark.parametrize("hint", ["{", "{}"])
def test_a_log_whose_hint_is_none_is_listed(tmp_path: Path, hint: str) -> None:
    path, name = table_with_hint(tmp_path, hint)
    actions = log_files.added(path, 0, [name])
    assert actions is not None
    assert actions.keys() == {name}


def test_base85_of_others_agrees() -> None:
    """Z85 is RFC 1924's alphabet's cousin: the same words, other letters."""
    data = bytes(range(16))
    digits = base64.b85encode(data).decode()
    ours = deletion_vectors._to_z85(data)
    alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    assert [deletion_vectors._Z85.index(digit) for digit in ours] == [alphabet.index(digit) for digit in digits]
