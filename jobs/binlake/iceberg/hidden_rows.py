"""The deleted rows of data files, as Iceberg's readers take them: copied from Delta's vectors into small files.

Each data file that has a vector has one such file of its own: of a file with several vectors, some readers (pyiceberg
0.12, polars 2.1) also take those that don't count any more, and DuckDB 1.5 was seen to take a neighbour's bytes out of
its cache of files. Its name has the identity of Delta's vector, so that a vector is known without reading it.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from binlake.delta import deletion_vectors
from binlake.delta.delta_actions import Add
from binlake.iceberg import position_deletes, puffin
from binlake.iceberg.avro_files import Record
from binlake.iceberg.table_metadata import address_of, path_at
from binlake.storage import files

_PUFFIN, _PARQUET = "PUFFIN", "PARQUET"
_FORMATS = {2: _PARQUET, 3: _PUFFIN}
"""The format of the files, by the version of Iceberg's format. Version 3 forbids new files of position deletes."""
_ENDINGS = {_PARQUET: position_deletes.ENDING, _PUFFIN: puffin.ENDING}


def key_of(add: Add | None) -> str:
    """Return the identity of a data file's deletion vector, which is part of its file's name; empty without one."""
    vector = add.vector if add else None
    if not vector:
        return ""
    place = f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset') or 0}"
    return hashlib.blake2b(place.encode(), digest_size=12).hexdigest()


def key_in(address: str) -> str:
    """Return the identity of the vector in a file."""
    return address.rpartition(".")[0].rpartition("-")[2]


def write(
    table_path: str, folder: str, address: str, add: Add, partition: Mapping[str, str | None], version: int
) -> Record:
    """Write the deleted rows of a data file, and return what a manifest says of their file. folder: the file's.
    address, partition: the data file's. version: of Iceberg's format. Raises LakeError, OSError.

    Puffin files needn't have the bounds of their data files' addresses, but by them pyiceberg 0.12 finds the data file.
    """
    assert add.vector is not None
    kind = _FORMATS[version]
    name = f"{uuid.uuid4().hex}-{key_of(add)}{_ENDINGS[kind]}"
    place: tuple[int | None, int | None] = None, None
    if kind == _PUFFIN:
        framed = deletion_vectors.framed(table_path, add.vector)
        size = puffin.write(f"{folder}/{name}", address, framed, add.hidden)
        place = puffin.OFFSET, len(framed)
    else:
        size = position_deletes.write(f"{folder}/{name}", address, _positions(table_path, add.vector))
    bound = [{"key": position_deletes.FILE_PATH, "value": address.encode()}]
    return {
        "content": 1, "file_path": f"{address_of(folder)}/{name}", "file_format": kind, "partition": {**partition},
        "record_count": add.hidden, "file_size_in_bytes": size, "value_counts": None, "null_value_counts": None,
        "lower_bounds": bound, "upper_bounds": bound, "first_row_id": None, "referenced_data_file": address,
        "content_offset": place[0], "content_size_in_bytes": place[1],
    }  # fmt: skip


def _positions(table_path: str, vector: deletion_vectors.Descriptor) -> pa.Int64Array:
    """Return the numbers of the rows in a vector, ascending: a million in some milliseconds."""
    return pa.array(np.frombuffer(deletion_vectors.read(table_path, vector).to_array(), np.uint64).astype(np.int64))


def are_as(table_path: str, add: Add, mark: Record) -> bool:
    """Return whether a file has the deleted rows that Delta's vector has. mark: what the manifest says of the file.
    Raises what reading either raises."""
    assert add.vector is not None
    if mark["record_count"] != add.hidden:
        return False
    path, address = path_at(mark["file_path"]), mark["referenced_data_file"]
    if mark["file_format"] == _PARQUET:
        return position_deletes.read(path, address) == list(deletion_vectors.read(table_path, add.vector))
    copied = files.read_part(path, mark["content_offset"], mark["content_size_in_bytes"])
    return copied == deletion_vectors.framed(table_path, add.vector)
