"""What AWS Glue holds of a table: its place, and its columns for who looks at it there. Pure.

Readers take columns from the table itself: from Iceberg's metadata file, or from Delta's log. Glue's own are for its
pages, for permissions of Lake Formation, and for who lists them.

Source: Iceberg's GlueTableOperations and IcebergToGlueConverter; for Delta "Query Linux Foundation Delta Lake tables"
in Amazon Athena's guide, which asks for the location and ``table_type``, Trino's Delta connector and Spark, which ask
for ``spark.sql.sources.provider`` and the SerDe's ``path``, and Apache XTable's DeltaGlueCatalogTableBuilder.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from binlake.delta.delta_schema import COMMENT
from binlake.iceberg import table_metadata
from binlake.iceberg.table_metadata import normal_address

OURS, ENTRY = "binlake.table", "binlake.catalog"
"""The parameters that say that a table is ours: where it is, and which entry of the YAML gave it the name."""
METADATA, _BEFORE = "metadata_location", "previous_metadata_location"
_KIND, _PROVIDER, _IS_EXTERNAL = "table_type", "spark.sql.sources.provider", "EXTERNAL"
_OWN = frozenset({OURS, ENTRY, METADATA, _BEFORE, _KIND, _PROVIDER, _IS_EXTERNAL})
"""Parameters that are as the table is; others are left as they are."""
_MOST_OF_COMMENT, _MOST_OF_DESCRIPTION, _MOST_OF_TYPE = 255, 2048, 131072
_NOT_IN_TEXT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]+")
_EXTERNAL = "EXTERNAL_TABLE"
_FIELD_ID, _OPTIONAL, _CURRENT = "iceberg.field.id", "iceberg.field.optional", "iceberg.field.current"
_PARQUET = "org.apache.hadoop.hive.ql.io.parquet"
_OF_DELTA = {
    "integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "timestamp_ntz": "timestamp",
}  # fmt: skip
_OF_ICEBERG = {"long": "bigint", "timestamptz": "timestamp", "time": "string", "uuid": "string"}
_KEPT_OF_OTHERS = ("Owner", "Retention")

TableInput = dict[str, Any]
"""Glue's TableInput, as JSON has it."""


def of_delta(name: str, entry: str, location: str, fields: Iterable[Mapping[str, Any]], description: str) -> TableInput:
    """Return what Glue should hold of a Delta table. entry: the name of the YAML's entry. fields: of Delta's schema, as
    JSON has them."""
    place = normal_address(location)
    columns = [
        _column(field["name"], _type(field["type"], _OF_DELTA), str(field["metadata"].get(COMMENT) or ""))
        for field in fields
    ]
    storage = {
        "Columns": columns,
        "Location": place,
        # Catalogs that federate Glue's refuse a whole database in which a table has none.
        "InputFormat": f"{_PARQUET}.MapredParquetInputFormat",
        "OutputFormat": f"{_PARQUET}.MapredParquetOutputFormat",
        "SerdeInfo": {
            "SerializationLibrary": f"{_PARQUET}.serde.ParquetHiveSerDe",
            "Parameters": {"serialization.format": "1", "path": place},
        },
    }
    parameters = {_KIND: "DELTA", _PROVIDER: "delta", _IS_EXTERNAL: "TRUE", OURS: place, ENTRY: entry}
    return _input(name, storage, parameters, description)


def of_iceberg(name: str, entry: str, content: Mapping[str, Any], metadata: str) -> TableInput:
    """Return what Glue should hold of a published table. entry: the name of the YAML's entry. content: of its metadata
    file, as JSON has it. metadata: that file's address."""
    place = normal_address(str(content["location"]))
    current, schemas = content["current-schema-id"], content["schemas"]
    fields: list[dict[str, Any]] = next((each["fields"] for each in schemas if each["schema-id"] == current), [])
    columns = [
        {
            **_column(field["name"], _type(field["type"], _OF_ICEBERG), str(field.get("doc") or "")),
            "Parameters": {
                _FIELD_ID: str(field["id"]), _OPTIONAL: str(not field["required"]).lower(), _CURRENT: "true",
            },
        }
        for field in fields
    ]  # fmt: skip
    parameters = {_KIND: "ICEBERG", METADATA: normal_address(metadata), OURS: place, ENTRY: entry}
    storage = {"Columns": columns, "Location": place}
    return _input(name, storage, parameters, str(content["properties"].get(table_metadata.COMMENT) or ""))


def whose(there: Mapping[str, Any], entry: str, others: Collection[str], root: str, path: str) -> str:
    """Return whose a table of Glue is, in words, and where; empty for one that an entry of the YAML put there, of a
    lake, also under a former name. there: as Glue has it. others: the names of the YAML's other entries. root: the
    address of the lake. path: that of the table that is to have the name."""
    place, noted = place_of(there), there.get("Parameters") or {}
    is_noted = bool(place) and normal_address(str(noted.get(OURS, ""))) == place
    if not is_noted or not (is_below(there, root) or place == normal_address(path)):
        return f"another's table, at {place or 'no place'}"
    other = noted.get(ENTRY)
    if other == entry or (other not in others and is_below(there, root)):
        return ""
    return f"the table of another entry of catalog, {other!r}, at {place}"


def is_below(there: Mapping[str, Any], root: str) -> bool:
    """Return whether a table of Glue is in a folder. root: the folder's address."""
    return f"{place_of(there)}/".startswith(f"{normal_address(root)}/")


def place_of(there: Mapping[str, Any]) -> str:
    """Return where a table of Glue is."""
    return normal_address(str((there.get("StorageDescriptor") or {}).get("Location") or ""))


def changed(there: Mapping[str, Any], wanted: TableInput) -> TableInput | None:
    """Return what Glue should hold in the place of a table that it has; None where that is the same. What others noted
    of the table is kept."""
    has = dict(there.get("Parameters") or {})
    parameters = {key: value for key, value in has.items() if key not in _OWN} | wanted["Parameters"]
    if METADATA in wanted["Parameters"]:
        before = has.get(METADATA)
        last = before if before != wanted["Parameters"][METADATA] else has.get(_BEFORE)
        parameters |= {_BEFORE: last} if last else {}
    same = (
        has == parameters
        and (there.get("Description") or "") == wanted.get("Description", "")
        and _plain(there.get("StorageDescriptor") or {}) == _plain(wanted["StorageDescriptor"])
    )
    kept = {key: there[key] for key in _KEPT_OF_OTHERS if there.get(key)}
    return None if same else {**kept, **wanted, "Parameters": parameters}


def _plain(storage: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what is compared of where and how a table is stored; Glue fills in defaults."""
    columns = [
        (each["Name"], each.get("Type") or "", each.get("Comment") or "", each.get("Parameters") or {})
        for each in storage.get("Columns") or ()
    ]
    serde = storage.get("SerdeInfo") or {}
    library, parameters = serde.get("SerializationLibrary") or "", serde.get("Parameters") or {}
    formats = [storage.get(key) or "" for key in ("InputFormat", "OutputFormat")]
    return columns, storage.get("Location"), formats, library, parameters


def _input(name: str, storage: Mapping[str, Any], parameters: Mapping[str, str], description: str) -> TableInput:
    described = {"Description": _text(description, _MOST_OF_DESCRIPTION)} if description else {}
    return {
        "Name": name, "TableType": _EXTERNAL, "PartitionKeys": [], **described, "StorageDescriptor": storage,
        "Parameters": parameters,
    }  # fmt: skip


def _column(name: str, kind: str, comment: str) -> dict[str, Any]:
    said = {"Comment": _text(comment, _MOST_OF_COMMENT)} if comment else {}
    return {"Name": _text(name, _MOST_OF_COMMENT), "Type": kind[:_MOST_OF_TYPE], **said}


def _text(text: str, most: int) -> str:
    """Return a text as Glue takes it: of one line, and no longer than it allows. most: its bytes in UTF-8."""
    return _NOT_IN_TEXT.sub(" ", text).encode()[:most].decode(errors="ignore")


def _type(kind: Any, names: Mapping[str, str]) -> str:
    """Return a type as Hive writes it. kind: of Delta or Iceberg, as JSON has it. names: of types that Hive calls
    otherwise."""
    if isinstance(kind, Mapping):
        element = kind["elementType"] if "elementType" in kind else kind["element"]
        return f"array<{_type(element, names)}>"
    plain = str(kind).replace(" ", "")
    return "binary" if plain.startswith("fixed[") else names.get(plain, plain)
