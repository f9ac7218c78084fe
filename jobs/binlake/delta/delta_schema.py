"""The schema of a Delta table, as data files are written by it and a commit brings it; Delta's types and features."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltalake import DeltaTable

from binlake.delta.key_ranges import PHYSICAL_NAME
from binlake.schema.lake_columns import LakeColumn

FEATURES = frozenset({"deletionVectors", "timestampNtz", "appendOnly", "invariants", "columnMapping"})
"""Features of Delta's protocol that binlake reads and writes without Delta's own code."""
_NEEDS_COLUMN_MAPPING = re.compile(r"[ ,;{}()\n\t=]")
MAPPING_MODE, MOST_ID = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
FIELD_ID = "delta.columnMapping.id"
OWN_ID = "binlake.fieldId"
"""The key of a field's metadata under which a table without column mapping has the id that new data files give the
column. Delta's readers leave it out; the day column mapping is turned on, it is the mapping's id."""
_ELEMENTS = 1_000_000
"""The difference between the id of a list's elements and that of its column: Delta gives elements none."""
WIDENING, WIDENS, TYPE_CHANGES = "typeWidening", "delta.enableTypeWidening", "delta.typeChanges"
"""Delta's type widening: its feature, the setting that turns it on, and the key of a field's metadata that lists the
types of older data files."""
COMMENT = "comment"
"""The key of a field's metadata in which Spark and Delta keep a column's comment; a table's is its description."""
_TYPES: dict[str, Any] = {
    "TINYINT": "byte", "SMALLINT": "short", "INT": "integer", "BIGINT": "long", "FLOAT": "float", "DOUBLE": "double",
    "STRING": "string", "BINARY": "binary", "DATE": "date", "TIMESTAMP": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz", "BOOLEAN": "boolean",
    "ARRAY<FLOAT>": {"type": "array", "elementType": "float", "containsNull": True},
}  # fmt: skip
"""The registry's types in Spark SQL → the same in Delta's schema, except decimals."""

HAS_VECTORS = "delta.enableDeletionVectors"
"""Whether rows may be hidden by deletion vectors; else data files are written again."""
LOG_CLEANUP = "delta.enableExpiredLogCleanup"
"""Off: else Spark removes old commits when it writes a checkpoint, also those of pinned versions. Maintain does it."""
PURGED = "binlake.purged"
"""When a table's earlier versions were removed at once, in microseconds since 1970."""


def is_widened(table: DeltaTable) -> bool:
    """Return whether a table has Delta's type widening: data files may have narrower types than the table."""
    return WIDENING in (table.protocol().reader_features or ())


def needs_column_mapping(names: Sequence[str]) -> bool:
    """Return whether Delta refuses one of these names as a plain Parquet name."""
    return any(_NEEDS_COLUMN_MAPPING.search(name) for name in names)


def table_properties(names: Sequence[str], *, has_vectors: bool = True) -> dict[str, str]:
    """Return the properties of a new table with these columns, which is as plain as other readers need it. has_vectors:
    whether it may get deletion vectors."""
    properties = {HAS_VECTORS: "true" if has_vectors else "false", LOG_CLEANUP: "false"}
    if needs_column_mapping(names):
        properties[MAPPING_MODE] = "name"
    return properties


def id_of(field: Mapping[str, Any]) -> int | None:
    """Return the id of a column in data files; None where it has none. field: of Delta's schema."""
    number = field["metadata"].get(FIELD_ID) or field["metadata"].get(OWN_ID)
    return int(number) if number else None


def element_id(column: int) -> int:
    """Return the id of a list's elements in data files. column: that of the list."""
    return column + _ELEMENTS


def completed(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a schema's fields where each has an id of binlake's own once any has: rewriting a table, Spark keeps those
    of columns that it takes over as they are alone. A data file in which some columns had ids would be read without the
    others."""
    own = [field["metadata"][OWN_ID] for field in fields if OWN_ID in field["metadata"]]
    is_mapped = any(FIELD_ID in field["metadata"] for field in fields)
    return fields if is_mapped or not own or len({*own}) == len(fields) else numbered(fields, {})


def mapped(fields: Sequence[Mapping[str, Any]], known: Mapping[str, int]) -> tuple[list[dict[str, Any]], int]:
    """Return the fields of a table whose data files know nothing of column mapping yet as it has them then, and the
    greatest id. known: see ``numbered``."""
    by_name: list[dict[str, Any]] = []
    for each in numbered(fields, known):
        others = {key: value for key, value in each["metadata"].items() if key != OWN_ID}
        own = {FIELD_ID: each["metadata"][OWN_ID], PHYSICAL_NAME: each["name"]}
        by_name.append({**each, "metadata": others | own})
    return by_name, max([*(each["metadata"][FIELD_ID] for each in by_name), *known.values()], default=0)


def numbered(fields: Sequence[Mapping[str, Any]], known: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the fields of a table without column mapping, each with an id that none had before it. known: ids by which
    columns are known that have none yet, by name."""
    ids = {**known, **{each["name"]: number for each in fields if (number := id_of(each))}}
    most = max([*ids.values(), *known.values()], default=0)
    numbers: dict[str, int] = {}
    for name in (each["name"] for each in fields):
        number = ids.get(name)
        if number is None or number in numbers.values():
            number = most = most + 1
        numbers[name] = number
    return [{**each, "metadata": {**each["metadata"], OWN_ID: numbers[each["name"]]}} for each in fields]


def delta_field(name: str, kind: str) -> dict[str, Any]:
    """Return a column as Delta's schema has it. kind: its type in Spark SQL, one of the registry's."""
    return {"name": name, "type": delta_type(kind), "nullable": True, "metadata": {}}


def commented(fields: Iterable[Mapping[str, Any]], comments: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a schema's fields with these comments, by name, and no others."""
    described = []
    for column in fields:
        metadata = {key: value for key, value in column["metadata"].items() if key != COMMENT}
        own = {COMMENT: comments[column["name"]]} if column["name"] in comments else {}
        described.append({**column, "metadata": metadata | own})
    return described


def type_features(fields: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the features of Delta's protocol that the types of a schema's fields ask for."""
    return ["timestampNtz"] if any(field["type"] == "timestamp_ntz" for field in fields) else []


def delta_type(kind: str) -> Any:
    """Return a type of Spark SQL, one of the registry's, as Delta's schema writes it: text, or an object for lists.
    Raises KeyError."""
    kind = kind.upper()
    return kind.lower().replace(" ", "") if kind.startswith("DECIMAL(") else _TYPES[kind]


def spark_type(kind: Any) -> str:
    """Return a type of Delta's schema as Spark SQL writes it. Raises StopIteration for what isn't the registry's."""
    if isinstance(kind, str) and kind.startswith("decimal("):
        return kind.upper()
    return next(name for name, known in _TYPES.items() if known == kind)


@dataclass(frozen=True)
class DeltaSchema:
    """A new table's schema, the same for all who make it of the same columns under one ``identity``, physical names
    included.

    columns: names and types in Spark SQL. comments: of columns, by name. description: the table's comment. has_vectors:
    whether the table may get deletion vectors.
    """

    columns: tuple[tuple[str, str], ...]
    identity: str
    comments: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    has_vectors: bool = True

    @classmethod
    def of(cls, columns: Sequence[LakeColumn], identity: str, description: str = "") -> DeltaSchema:
        """Return the schema of the lake's columns."""
        comments = {column.name: column.comment for column in columns if column.comment}
        return cls(tuple((column.name, column.delta) for column in columns), identity, comments, description)

    @property
    def properties(self) -> dict[str, str]:
        """Return the properties of a table that is made with the schema."""
        names = [name for name, _ in self.columns]
        mapping = {MOST_ID: str(len(names))} if needs_column_mapping(names) else {}
        return table_properties(names, has_vectors=self.has_vectors) | mapping

    @property
    def kept_properties(self) -> dict[str, str]:
        """Return the properties that a table which is there gets with the schema."""
        return {} if self.has_vectors else {HAS_VECTORS: "false"}

    def text(self, properties: Mapping[str, str]) -> str:
        """Return the schema as JSON, in a table with these properties.

        Ids of columns begin at 1, as in the data files. Where column mapping was turned on later, and the data files
        know nothing of it, physical names are the names.
        """
        fields = [delta_field(name, kind) for name, kind in self.columns]
        if properties.get(MAPPING_MODE, "none") != "none":
            own = needs_column_mapping([name for name, _ in self.columns])
            for number, field in enumerate(fields):
                physical = self._physical_name(number) if own else field["name"]
                field["metadata"] = {FIELD_ID: 1 + number, PHYSICAL_NAME: physical}
        else:
            fields = numbered(fields, {})
        return json.dumps({"type": "struct", "fields": commented(fields, self.comments)})

    def _physical_name(self, number: int) -> str:
        return f"col-{uuid.uuid5(uuid.NAMESPACE_OID, f'{self.identity} {number}')}"
