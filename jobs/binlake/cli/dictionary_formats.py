"""A lake's dictionary as Markdown, as dbt's sources, as an open data contract, and as JSON."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from binlake.cli.printing import exact
from binlake.lake.dictionary import DictionaryColumn, DictionaryTable, TableExtent
from binlake.lake.lake_versions import LakeVersion
from binlake.lake.view_statements import duckdb_scan, newest_duckdb_scan
from binlake.report import counted
from binlake.schema.foreign_key import ForeignKey
from binlake.schema.table import TableName
from binlake.store.rows import VersionRow

_WARN_AFTER, _ERROR_AFTER = 12, 24
"""Hours without a newer commit in the lake after which dbt warns, and fails."""
_CONTRACTS = uuid.UUID("b1a7e1a6-0001-5000-8000-62696e6c616b")
_LOGICAL = {
    "boolean": "boolean", "byte": "integer", "short": "integer", "integer": "integer", "long": "integer",
    "float": "number", "double": "number", "decimal": "number", "date": "date", "timestamp": "timestamp",
    "timestamp_ntz": "timestamp", "array": "array",
}  # fmt: skip
"""Logical types of the data contract by the first word of Delta's; all others are ``string``."""
_WORD, _STABLE_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*"), re.compile(r"[A-Za-z0-9_-]+")
"""Names that a reference of the data contract may have as they are, and those that may be ids."""


@dataclass(frozen=True)
class Dictionary:
    """What is written. root: the source's folder. is_chosen: somebody asked for this version, not for the newest.
    extents: of the tables that can be counted."""

    source: str
    root: str
    version: LakeVersion
    is_chosen: bool
    tables: Sequence[DictionaryTable]
    extents: Mapping[TableName, TableExtent]
    foreign_keys: Sequence[ForeignKey]

    def keys_of(self, table: TableName) -> list[ForeignKey]:
        """Return the foreign keys of a table."""
        return [key for key in self.foreign_keys if key.child == table]


def written(known: Dictionary, form: str) -> str:
    """Return a dictionary in one of dictionary_command.FORMATS."""
    return _WRITERS[form](known)


# markdown ------------------------------------------------------------------------------------------------------------
def _as_markdown(known: Dictionary) -> str:
    lines = [
        f"# {_cell(known.source)}",
        "",
        f"{counted(len(known.tables), 'table')} at batch {known.version.batch}, with all that was committed by "
        f"{exact(known.version.committed)} UTC.",
        "",
    ]
    if known.foreign_keys:
        lines += _picture(known)
    for table in known.tables:
        lines += _section(known, table)
    return "\n".join(lines)


def _picture(known: Dictionary) -> list[str]:
    """Return the foreign keys as a diagram of Mermaid's."""
    drawn = [
        f'    {_entity(key.parent)} ||--o{{ {_entity(key.child)} : "{_plain(", ".join(key.columns))}"'
        for key in known.foreign_keys
    ]
    return ["```mermaid", "erDiagram", *drawn, "```", ""]


def _entity(name: TableName) -> str:
    return f'"{_plain(str(name))}"'


def _plain(text: str) -> str:
    """Return a text for Mermaid's quotes, which know no escape."""
    return re.sub(r'["%\\\n]', "_", text)


def _section(known: Dictionary, table: DictionaryTable) -> list[str]:
    lines = [f"## {_cell(str(table.name))}", ""]
    if table.comment:
        lines += [_cell(table.comment), ""]
    facts = [f"Key ({table.key_kind}): {_cell(', '.join(table.key))}." if table.key else "No key is known."]
    if extent := known.extents.get(table.name):
        facts.append(f"{counted(extent.rows, 'row')}, {extent.bytes / 1e6:,.1f} MB.")
    facts.append(
        f"Equal to the server up to batch {table.verified_batch}, compared at {exact(table.verified)} UTC."
        if table.verified
        else "Not known equal to the server by a comparison."
    )
    lines += [" ".join(facts), ""]
    lines += [
        f"- {_cell(', '.join(key.columns))} → {_cell(str(key.parent))} ({_cell(', '.join(key.referenced))})"
        for key in known.keys_of(table.name)
    ]
    if lines[-1]:
        lines.append("")
    lines += ["| column | on the server | null | key | in the lake | comment |", "|---|---|---|---|---|---|"]
    for column in table.columns:
        cells = (
            column.name,
            column.server_type,
            "yes" if column.nullable else "no",
            str(column.in_key or ""),
            column.lake_type,
            column.comment,
        )
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return [*lines, ""]


def _cell(text: str) -> str:
    """Return a text that Markdown takes as it is, in one line of a table."""
    escaped = re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", " ".join(text.split()))
    return "".join(c if c.isprintable() else "�" for c in escaped)


# dbt -----------------------------------------------------------------------------------------------------------------
def _as_dbt(known: Dictionary) -> str:
    sources = [
        {
            "name": database,
            "schema": database,
            "description": f"binlake's mirror of {database} on {known.source}, as of batch {known.version.batch}",
            "config": {
                "loaded_at_query": _loaded_at(known.root),
                "freshness": {
                    "warn_after": {"count": _WARN_AFTER, "period": "hour"},
                    "error_after": {"count": _ERROR_AFTER, "period": "hour"},
                },
            },
            "tables": [_dbt_table(known, table) for table in known.tables if table.name.database == database],
        }
        for database in sorted({table.name.database for table in known.tables})
    ]
    return _yaml({"version": 2, "sources": sources})


def _loaded_at(root: str) -> str:
    """Return DuckDB's query for when the newest transaction in the lake committed."""
    versions = newest_duckdb_scan(f"{root}/_binlake/{VersionRow.TABLE}")
    return f"SELECT make_timestamp(max(committed_us)) FROM {versions} WHERE table_id IS NULL"


def _dbt_table(known: Dictionary, table: DictionaryTable) -> dict[str, Any]:
    meta = {
        "external_location": duckdb_scan(table.at.path, table.at.version)
        if known.is_chosen
        else newest_duckdb_scan(table.at.path),
        "key": list(table.key),
        "verified_batch": table.verified_batch,
        "verified_at": table.verified.isoformat() if table.verified else None,
    }
    keys = known.keys_of(table.name)
    columns = [_dbt_column(table, column, keys) for column in table.columns]
    return {
        "name": table.name.table,
        "description": _inert(table.comment),
        "config": {"meta": meta},
        "columns": columns,
    }


def _dbt_column(table: DictionaryTable, column: DictionaryColumn, keys: Sequence[ForeignKey]) -> dict[str, Any]:
    tests: list[Any] = []
    if table.key == (column.name,):
        tests.append("unique")
    if not column.nullable:
        tests.append("not_null")
    for key in keys:
        if key.columns == (column.name,):
            to = f"source('{_jinja(key.parent.database)}', '{_jinja(key.parent.table)}')"
            tests.append({"relationships": {"arguments": {"to": to, "field": key.referenced[0]}}})
    described: dict[str, Any] = {
        "name": column.name,
        "description": _inert(column.comment),
        "data_type": column.lake_type,
        "config": {"meta": {"server_type": _inert(column.server_type)}},
    }
    return described | ({"data_tests": tests} if tests else {})


def _inert(text: str) -> str:
    """Return a text of the server's in which dbt finds nothing to run, as it would in ``{{ env_var(…) }}``."""
    return re.sub(r"\{(?=[{%#])", "{ ", text)


def _jinja(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


# odcs ----------------------------------------------------------------------------------------------------------------
def _as_odcs(known: Dictionary) -> str:
    names = _contract_names(known)
    server: dict[str, Any] = {"server": "lake", "format": "delta"}
    if known.root.startswith("s3"):
        server |= {"type": "s3", "location": re.sub("^s3a:", "s3:", known.root)}
    elif "://" in known.root:
        server |= {"type": "custom", "location": known.root}
    else:
        server |= {"type": "local", "path": known.root}
    contract = {
        "apiVersion": "v3.1.0",
        "kind": "DataContract",
        "id": str(uuid.uuid5(_CONTRACTS, known.source)),
        "name": known.source,
        "version": str(known.version.batch),
        "status": "active",
        "servers": [server],
        "schema": [_object(known, table, names) for table in known.tables],
        "customProperties": [
            {"property": "batch", "value": known.version.batch},
            {"property": "committed", "value": known.version.committed.isoformat()},
        ],
    }
    return _yaml(contract)


def _contract_names(known: Dictionary) -> dict[TableName, str]:
    """Return the names of the contract's tables: the table's, with its database where several have it."""
    counts = Counter(table.name.table for table in known.tables)
    return {
        table.name: table.name.table if counts[table.name.table] == 1 else f"{table.name.database}__{table.name.table}"
        for table in known.tables
    }


def _stable_id(name: str) -> str:
    """Return the id of a table or column of the contract by its name there."""
    return name if _STABLE_ID.fullmatch(name) else str(uuid.uuid5(_CONTRACTS, name))


def _reference(table: str, column: str) -> str:
    """Return how the contract's relationships refer to a column: by names where these are plain words, else by ids."""
    if _WORD.fullmatch(table) and _WORD.fullmatch(column):
        return f"{table}.{column}"
    return f"schema/{_stable_id(table)}/properties/{_stable_id(column)}"


def _object(known: Dictionary, table: DictionaryTable, names: Mapping[TableName, str]) -> dict[str, Any]:
    keys = known.keys_of(table.name)
    described = {
        "id": _stable_id(names[table.name]),
        "name": names[table.name],
        "physicalName": str(table.name),
        "logicalType": "object",
        "physicalType": "table",
        "description": table.comment,
        "properties": [_property(table, column, keys, names) for column in table.columns],
        "customProperties": [
            {"property": "verifiedBatch", "value": table.verified_batch},
            {"property": "verifiedAt", "value": table.verified.isoformat() if table.verified else None},
        ],
    }
    several = [
        {
            "type": "foreignKey",
            "from": [_reference(names[table.name], name) for name in key.columns],
            "to": [_reference(names[key.parent], name) for name in key.referenced],
        }
        for key in keys
        if len(key.columns) > 1
    ]
    return described | ({"relationships": several} if several else {})


def _property(
    table: DictionaryTable, column: DictionaryColumn, keys: Sequence[ForeignKey], names: Mapping[TableName, str]
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": _stable_id(column.name),
        "name": column.name,
        "logicalType": _LOGICAL.get(re.split(r"[(<]", column.lake_type)[0], "string"),
        "physicalType": column.server_type or column.lake_type,
        "required": not column.nullable,
        "description": column.comment,
    }
    if column.in_key:
        described |= {"primaryKey": True, "primaryKeyPosition": column.in_key}
    if table.key == (column.name,):
        described["unique"] = True
    refers = [
        {"type": "foreignKey", "to": _reference(names[key.parent], key.referenced[0])}
        for key in keys
        if key.columns == (column.name,)
    ]
    return described | ({"relationships": refers} if refers else {})


_NO_EXTENT = dict.fromkeys(("rows", "bytes", "files"))


# json ----------------------------------------------------------------------------------------------------------------
def _as_json(known: Dictionary) -> str:
    tables = [
        {
            "table": str(table.name),
            "path": table.at.path,
            "delta_version": table.at.version,
            "comment": table.comment,
            "key": list(table.key),
            "key_kind": table.key_kind,
            **(vars(extent) if (extent := known.extents.get(table.name)) else _NO_EXTENT),
            "verified_batch": table.verified_batch,
            "verified_at": table.verified.isoformat() if table.verified else None,
            "columns": [vars(column) for column in table.columns],
            "foreign_keys": [
                {
                    "name": key.name,
                    "columns": list(key.columns),
                    "table": str(key.parent),
                    "referenced": list(key.referenced),
                }
                for key in known.keys_of(table.name)
            ],
        }
        for table in known.tables
    ]
    about = {
        "source": known.source,
        "batch": known.version.batch,
        "position": known.version.position,
        "committed": known.version.committed.isoformat(),
        "tables": tables,
    }
    return json.dumps(about, ensure_ascii=False, indent=2) + "\n"


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)


_WRITERS: dict[str, Callable[[Dictionary], str]] = {
    "markdown": _as_markdown,
    "dbt": _as_dbt,
    "odcs": _as_odcs,
    "json": _as_json,
}
