"""The logs of this folder, what they hold by their servers' word, and what our decoder makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from binlake.binlog.border import DELETE, INSERT, Mutations, XaEvent
from binlake.binlog.reader import Emitted
from binlake.position import Slice
from binlake.schema.datatypes import made_late
from binlake.schema.table import Column
from comparison import Declared, comparable

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("*.000001"))

Mutation = list[Any]
"""Operation, row before, row after: a dictionary by column, or None."""


def plain(value: Any) -> Any:
    """A comparable value (comparison.py) as JSON has it."""
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, Decimal) and value == value.to_integral() and abs(value) < 1 << 64:
        return int(value)  # BIGINT UNSIGNED is a number on the server and DECIMAL(20,0) in Arrow
    return str(value) if isinstance(value, Decimal | datetime) else value


@dataclass(frozen=True)
class Log:
    """One file and what is expected of it."""

    name: str
    path: Path
    expected: dict[str, Any]

    @property
    def part(self) -> Slice:
        return Slice(self.path.name, 4, self.path.stat().st_size, 0, True)


def log(name: str) -> Log:
    return Log(name, HERE / f"{name}.000001", json.loads((HERE / f"{name}.json").read_text()))


def mutations(emitted: Sequence[Emitted], columns: dict[str, list[Any]]) -> list[Mutation]:
    """All that was decoded of one table, as JSON has it; prepared rows where their outcome stands."""
    placed: list[tuple[int, Mutation]] = []
    prepared: dict[str, list[tuple[int, Mutation]]] = {}
    for item in emitted:
        if not isinstance(item, Mutations):
            continue
        declared = [Declared(column.name, *columns[column.name]) for column in item.columns]
        before, after = (_rows(item.batch.column(side), declared) for side in ("before", "after"))
        ops, offsets, xids = (item.batch.column(name).to_pylist() for name in ("op", "offset", "xid"))
        for op, offset, xid, old, new in zip(ops, offsets, xids, before, after, strict=True):
            mutation = [op, None if op == INSERT else old, None if op == DELETE else new]
            (placed if xid is None else prepared.setdefault(xid, [])).append((offset, mutation))
    for item in emitted:
        if isinstance(item, XaEvent) and item.what == "committed":
            rows = prepared.get(item.xid, [])
            placed += [(item.offset, mutation) for offset, mutation in rows if offset < item.offset]
            prepared[item.xid] = [row for row in rows if row[0] > item.offset]
    return [mutation for _, mutation in sorted(placed, key=lambda item: item[0])]


def _rows(structs: pa.StructArray, declared: list[Declared]) -> list[dict[str, Any]]:
    table = pa.Table.from_arrays(structs.flatten(), names=[field.name for field in structs.type])
    for column in declared:
        if (stored := made_late(Column(column.name, column.type))) is not None:  # the log has their stored bytes
            texts = stored.values(table[column.name].combine_chunks())
            place = table.column_names.index(column.name)
            table = table.set_column(place, column.name, texts)
    names = [column.name for column in declared]
    return [dict(zip(names, map(plain, row), strict=True)) for row in comparable(declared, table)]
