"""The columns of a data file as its footer has them: names, and the ids by which some readers find them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from binlake.delta.delta_schema import element_id

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class FileColumns:
    """The columns of a data file.

    ids: by their names, None for a column that has none. elements: the ids of lists' elements, by the lists' names.
    """

    ids: Mapping[str, int | None]
    elements: Mapping[str, int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: pa.Schema) -> FileColumns:
        """Return the columns of a data file's schema."""
        elements = {each.name: _id_of(each.type.field(0)) for each in schema if pa.types.is_nested(each.type)}
        return cls({each.name: _id_of(each) for each in schema}, elements)

    @cached_property
    def lower_names(self) -> frozenset[str]:
        """Return the names in lower case."""
        return frozenset(name.lower() for name in self.ids)

    def agree_with(self, known: Mapping[str, int]) -> bool:
        """Return whether readers find a table's columns in the file, and no other column in the place of one: by ids
        where the file has any, else by names, of which they distinguish the case.

        known: the ids of columns by their names in data files.
        """
        if not any(self.ids.values()):
            lower = {name.lower() for name in known}
            return all(name in known or name.lower() not in lower for name in self.ids)
        columns = {number: name for name, number in known.items()}
        for name, number in self.ids.items():
            if number is None:
                if name in known:
                    return False
                continue
            element = self.elements.get(name, element_id(number))
            if (known.get(name, number), columns.get(number, name), element) != (number, name, element_id(number)):
                return False
        return True


def _id_of(column: pa.Field) -> int | None:
    number = (column.metadata or {}).get(_FIELD_ID)
    return None if number is None else int(number)
