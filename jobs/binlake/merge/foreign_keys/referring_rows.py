"""The rows of a Delta table that may refer to some values by its foreign keys, read without Spark at one version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError
from numpy.typing import NDArray
from pyroaring import BitMap64

from binlake.delta import data_rows, key_ranges, opened_tables, plain_tables
from binlake.errors import LeftToSpark
from binlake.merge.foreign_keys.acted_rows import JoinedValues
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.table import TableSchema
from binlake.storage import storage_errors

Asked = Mapping[int, Collection[JoinedValues]]
"""JoinedValues, without NULL, of the columns of foreign keys, by the numbers of these."""


def values_of(rows: pa.Table, names: Sequence[str]) -> list[JoinedValues]:
    """Return the values of these columns of each row."""
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def may_refer(rows: pa.Table | pa.RecordBatch, keys: Sequence[Sequence[str]], asked: Asked) -> NDArray[np.bool_]:
    """Return which rows may refer to one of the values. Of foreign keys with several columns each is looked at alone.

    keys: the columns of each foreign key.
    """
    some = np.zeros(rows.num_rows, np.bool_)
    for number, values in asked.items():
        of_key = np.ones(rows.num_rows, np.bool_)
        for place, name in enumerate(keys[number]):
            column = rows.column(name)
            wanted = pa.array({value[place] for value in values}, column.type)
            of_key &= pc.is_in(column, value_set=wanted).to_numpy(zero_copy_only=False)
        some |= of_key
    return some


class ReferringRows:
    """The rows of a table at a version. keys: the columns of each of its foreign keys. limit: bytes of data files that
    are looked into at once; most: bytes of memory that the rows may take."""

    def __init__(
        self,
        path: str,
        version: int,
        schema: TableSchema,
        columns: Sequence[LakeColumn],
        keys: Sequence[Sequence[str]],
        limit: int,
        most: int,
    ) -> None:
        try:
            self._log = opened_tables.opened(path, version)
            plain_tables.check_is_plain(self._log)
            self._added = pa.table(self._log.get_add_actions())
        except (DeltaError, OSError) as error:
            raise storage_errors.failed(f"reading the Delta table {path} failed", error) from error
        self._path = path
        self._schema = schema
        self._fields = {column.name: pa.field(column.name, column.arrow) for column in columns}
        self._keys = keys
        self._limit = limit
        self._room = most
        self._read: dict[str, BitMap64] = defaultdict(BitMap64)

    def referring(self, asked: Asked) -> pa.Table:
        """Return rows that may refer to one of the values, without those that were returned before.

        Raises LeftToSpark where the data files or the rows are too large; OSError, DeltaError, ArrowException.
        """
        fields = [self._fields[name] for name in dict.fromkeys(name for number in asked for name in self._keys[number])]
        parts: list[pa.RecordBatch] = []
        for file in data_rows.of_files(self._log, self._path, fields, self._paths(asked)):
            numbers = BitMap64()
            for rows, places in file.numbered():
                numbers |= BitMap64(places[may_refer(rows, self._keys, asked)].astype(np.uint64))
            numbers -= self._read[file.path]
            self._read[file.path] |= numbers
            parts += self._whole(file.path, numbers) if numbers else ()
        return pa.Table.from_batches(parts, pa.schema(self._fields.values()))

    def _paths(self, asked: Asked) -> list[str]:
        """Return the data files that may hold such rows by their statistics. Raises LeftToSpark."""
        may_hold = np.zeros(self._added.num_rows, np.bool_)
        for number, values in asked.items():
            names = tuple(self._keys[number])
            wanted = pa.table(
                {
                    name: pa.array([value[place] for value in values], self._fields[name].type)
                    for place, name in enumerate(names)
                }
            )
            may_hold |= key_ranges.may_hold(self._log, self._added, replace(self._schema, key=names), wanted)
        files = self._added.filter(pa.array(may_hold))
        size = sum(files["size_bytes"].to_pylist())
        if size > self._limit:
            raise LeftToSpark(
                f"{size / 1e6:,.1f} MB of data files may hold rows that foreign keys changed below the log, above "
                "merge.without_spark_mb"
            )
        return [str(path) for path in files["path"].to_pylist()]

    def _whole(self, path: str, numbers: BitMap64) -> Iterator[pa.RecordBatch]:
        for rows in data_rows.of_numbers(self._log, self._path, list(self._fields.values()), path, numbers):
            self._room -= rows.nbytes
            if self._room < 0:
                raise LeftToSpark("rows that foreign keys may have changed below the log take too much memory")
            yield rows
