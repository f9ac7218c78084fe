"""The keys of a source's YAML that the page sets.

A YAML that names code, a place or an account does what these can do, which is more than the right to edit a DAG allows.
So the page sets no such key, and none that says who sees values. Those are changed in the file itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from binlake.config import PipelineConfig
from binlake.config.yaml_file import KeyPath

_SETTABLE: tuple[KeyPath, ...] = (
    ("schedule",),
    ("follow",),
    ("tables",),
    ("snapshot",),
    ("merge",),
    ("maintain",),
    ("verify",),
    ("policies",),
    ("invalid_dates",),
    ("invalid_text",),
    ("type_widening",),
    *(("airflow", key) for key in ("lag_minutes", "retention_hours", "watch_schedule", "fail_on_stopped")),
    *(("airflow", key) for key in ("retries", "retry_delay_seconds")),
)
_OF_A_NEW_SOURCE: tuple[KeyPath, ...] = (
    ("source", "name"),
    ("source", "connection"),
    ("source", "server_id"),
    ("lake", "path"),
)
"""Further fields of the form for a new source."""
_NOT_SETTABLE: tuple[KeyPath, ...] = (("verify", "connection"),)
_Document = Mapping[Any, Any]


def is_settable(key: KeyPath) -> bool:
    """Return whether the page may set a key."""
    return _is_below(key, _SETTABLE) and not _is_below(key, _NOT_SETTABLE)


def is_fixable(key: KeyPath) -> bool:
    """Return whether the page may set a key of a broken YAML, for who may add a source, or remove one that isn't
    known and so had no effect."""
    return is_settable(key) or key in _OF_A_NEW_SOURCE or key[0] not in PipelineConfig.model_fields


def unfixable_sections() -> set[str]:
    """Return the sections of a YAML of which the page sets some keys or none, even for who may add a source."""
    whole = {key[0] for key in _SETTABLE if len(key) == 1} | {key[0] for key in _OF_A_NEW_SOURCE}
    return {name for name in PipelineConfig.model_fields if name not in whole}


def _is_below(key: KeyPath, others: tuple[KeyPath, ...]) -> bool:
    return any(key[: len(other)] == other for other in others)


def changed_keys(before: _Document, after: _Document) -> list[KeyPath]:
    """Return the keys whose values differ between two documents, in order; lists are compared as wholes."""
    return list(dict.fromkeys(_changed((), before, after)))


def _changed(place: KeyPath, before: Any, after: Any) -> Iterator[KeyPath]:
    old, new = (side if isinstance(side, Mapping) else {} for side in (before, after))
    if not (old or new):
        if type(before) is not type(after) or before != after:
            yield place
        return
    for key in (*old, *(key for key in new if key not in old)):
        yield from _changed((*place, key), old.get(key, _ABSENT), new.get(key, _ABSENT))


_ABSENT = object()


def lets_more_out(before: _Document, after: _Document) -> list[KeyPath]:
    """Return the keys by whose change rows may leave the server that didn't: patterns that are new to
    tables.include, and gone from tables.exclude or tables.exclude_columns."""
    old, new = (_patterns(side) for side in (before, after))
    wider = {"include": new["include"] - old["include"]}
    wider |= {key: old[key] - new[key] for key in ("exclude", "exclude_columns")}
    return [("tables", key) for key, patterns in wider.items() if patterns]


def _patterns(document: _Document) -> dict[str, set[str]]:
    tables = document.get("tables")
    lists = {key: tables.get(key) if isinstance(tables, Mapping) else None for key in _LISTS}
    return {key: {str(item) for item in given} if isinstance(given, list) else set() for key, given in lists.items()}


_LISTS = ("include", "exclude", "exclude_columns")
