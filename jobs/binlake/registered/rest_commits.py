"""Commits that bring a table of an Iceberg REST catalog to what is published: requirements and updates. Pure.

A commit holds only if the table is what it was when the commit was made: its uuid, its current schema, and the snapshot
of its branch. What was done before isn't in the next one: a commit whose answer got lost is made again from what the
catalog has by then.

Source: Iceberg's "REST Catalog Spec", CommitTableRequest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from binlake.iceberg.table_metadata import DELTA_ID, DELTA_VERSION, MAIN, normal_address

MetadataJson = Mapping[str, Any]
"""A table's metadata, as JSON has it."""

_PATH = "write.metadata.path"
_REMOVES_OLD, _KEEPS = "write.metadata.delete-after-commit.enabled", "write.metadata.previous-versions-max"
_OF_THE_CATALOG = frozenset({_PATH, _REMOVES_OLD, _KEEPS})
_KEPT_FILES = 100


def registered(ours: MetadataJson, folder: str) -> dict[str, Any]:
    """Return the metadata with which a table is registered. folder: the address of the folder in which the catalog
    keeps its metadata files, of which it removes old ones itself."""
    own = {_PATH: folder, _REMOVES_OLD: "true", _KEEPS: str(_KEPT_FILES)}
    return {**ours, "properties": {**ours["properties"], **own}}


def is_published_by_us(theirs: MetadataJson) -> bool:
    """Return whether a table of the catalog came from binlake, and nobody else has written it."""
    snapshots = theirs.get("snapshots") or ()
    return DELTA_ID in theirs.get("properties", {}) and all(
        DELTA_VERSION in (snapshot.get("summary") or {}) for snapshot in snapshots
    )


def continues(ours: MetadataJson, theirs: MetadataJson) -> bool:
    """Return whether what is published follows what the catalog has: else the table is another one by now, as it was
    made again or restored."""
    if ours["table-uuid"] != theirs["table-uuid"] or ours["format-version"] != theirs["format-version"]:
        return False
    if _partitions(ours) != _partitions(theirs):
        return False
    lists = {each["snapshot-id"]: normal_address(each["manifest-list"]) for each in theirs.get("snapshots") or ()}
    new = [each for each in ours["snapshots"] if each["snapshot-id"] not in lists]
    same = [each for each in ours["snapshots"] if each["snapshot-id"] in lists]
    if any(lists[each["snapshot-id"]] != normal_address(each["manifest-list"]) for each in same):
        return False
    newest = max((each["snapshot-id"] for each in ours["snapshots"]), default=0)
    if any(number > newest for number in lists):
        return False
    return all(each["sequence-number"] > theirs.get("last-sequence-number", 0) for each in new)


def _partitions(content: MetadataJson) -> tuple[Any, list[Any]]:
    """Return the ids of the ways in which a table is partitioned, the one for new files first, and their fields."""
    parts = ("source-id", "field-id", "name", "transform")
    specs = sorted(content.get("partition-specs") or (), key=lambda spec: int(spec["spec-id"]))
    return content.get("default-spec-id"), [
        (spec["spec-id"], [[field.get(part) for part in parts] for field in spec["fields"]]) for spec in specs
    ]


def commit_of(ours: MetadataJson, theirs: MetadataJson) -> dict[str, Any] | None:
    """Return the commit that brings a table to what is published; None where it is there."""
    updates = list(_updates(ours, theirs))
    if not updates:
        return None
    main = (theirs.get("refs") or {}).get(MAIN)
    requirements = [
        {"type": "assert-table-uuid", "uuid": theirs["table-uuid"]},
        {"type": "assert-current-schema-id", "current-schema-id": theirs["current-schema-id"]},
        {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": main["snapshot-id"] if main else None},
    ]
    return {"requirements": requirements, "updates": updates}


def _updates(ours: MetadataJson, theirs: MetadataJson) -> Iterator[dict[str, Any]]:
    there = {each["snapshot-id"] for each in theirs.get("snapshots") or ()}
    new = [each for each in ours["snapshots"] if each["snapshot-id"] not in there]
    ids, added = _schema_ids(ours, theirs, {each["schema-id"] for each in new})
    for schema in added:
        yield {"action": "add-schema", "schema": schema, "last-column-id": ours["last-column-id"]}
    current = ids[ours["current-schema-id"]]
    if current != theirs["current-schema-id"]:
        yield {"action": "set-current-schema", "schema-id": current}
    wanted, has = ours["properties"], theirs.get("properties", {})
    changed = {key: value for key, value in wanted.items() if key not in _OF_THE_CATALOG and has.get(key) != value}
    if changed:
        yield {"action": "set-properties", "updates": changed}
    for snapshot in new:
        yield {"action": "add-snapshot", "snapshot": {**snapshot, "schema-id": ids[snapshot["schema-id"]]}}
    refs, their_refs = ours["refs"], theirs.get("refs") or {}
    for name, ref in refs.items():
        if their_refs.get(name, {}).get("snapshot-id") != ref["snapshot-id"]:
            yield {"action": "set-snapshot-ref", "ref-name": name, **ref}
    for name in their_refs:
        if name not in refs:
            yield {"action": "remove-snapshot-ref", "ref-name": name}
    if gone := sorted(there - {each["snapshot-id"] for each in ours["snapshots"]}):
        yield {"action": "remove-snapshots", "snapshot-ids": gone}


def _schema_ids(
    ours: MetadataJson, theirs: MetadataJson, used: set[int]
) -> tuple[dict[int, int], list[dict[str, Any]]]:
    """Return the catalog's ids of the schemas that are used, by ours, and those that it lacks.

    It numbers schemas itself: the next one has the largest id so far and one more. Where a catalog does otherwise, it
    refuses the commit, as it lacks the current schema.
    """
    known = {_form(schema): schema["schema-id"] for schema in theirs["schemas"]}
    ids: dict[int, int] = {}
    added: list[dict[str, Any]] = []
    for schema in ours["schemas"]:
        if schema["schema-id"] in used or schema["schema-id"] == ours["current-schema-id"]:
            form = _form(schema)
            if form not in known:
                known[form] = max(known.values(), default=-1) + 1
                added.append({**schema, "schema-id": known[form]})
            ids[schema["schema-id"]] = known[form]
    return ids, added


def _form(schema: MetadataJson) -> str:
    """Return the columns of a schema in one form."""
    return json.dumps(schema["fields"], sort_keys=True, ensure_ascii=False).replace(", ", ",")
