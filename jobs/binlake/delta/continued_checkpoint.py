"""Checkpoints continued by the commits behind them, of tables on a disk.

deltalake lists the log and reads the last checkpoint with all commits behind it, twice, to write the next one: 70 ms of
CPU for 60 commits, and more with each commit that was ever made. A process that follows a source does that to some
table in every second batch. Most commits only add and remove data files: their actions replace rows of the checkpoint
before. Source: Delta's protocol, "Action Reconciliation" and "Checkpoint Schema".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from binlake.delta import delta_actions
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.log_files import FileKey, file_key
from binlake.storage import files

_Identity = tuple[str, FileKey]
_Changed = dict[_Identity, tuple[str, DeltaAction]]
"""The last action on each file or transaction: its kind and fields."""
_MOST_COMMITS = 300
_COLUMNS = frozenset({"add", "remove", "metaData", "protocol", "txn", "domainMetadata", "sidecar"})
_VECTOR = frozenset({"storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality"})
_FIELDS: Mapping[str, frozenset[str]] = {
    "add": frozenset(
        {"path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags", "deletionVector",
         "baseRowId", "defaultRowCommitVersion", "clusteringProvider"}
    ),
    "remove": frozenset(
        {"path", "deletionTimestamp", "dataChange", "extendedFileMetadata", "partitionValues", "size", "stats", "tags",
         "deletionVector", "baseRowId", "defaultRowCommitVersion"}
    ),
    "txn": frozenset({"appId", "version", "lastUpdated"}),
}  # fmt: skip
"""The fields of actions, as deltalake's checkpoints have them. Spark's have statistics in columns, too."""
_NAMES = {"add": "path", "remove": "path", "txn": "appId"}
_MAPS = ("partitionValues", "tags")


def continued(table_path: str, version: int) -> pa.Table | None:
    """Return the rows of a table's checkpoint at a version: those of the newest checkpoint before it, changed by the
    commits in between. Rows that deltalake would leave out by their age stay.

    Returns None where deltalake has to write it: the last checkpoint isn't as deltalake writes it, or commits change
    more than data files. Raises OSError, StagingError, ValueError, KeyError, ArrowException where the log can't be
    read.
    """
    names, begins = delta_actions.checkpoint_before(table_path, version)
    if len(names) != 1 or version - begins >= _MOST_COMMITS:
        return None
    with files.opened(names[0]) as source:
        checkpoint = pq.ParquetFile(source).read(use_threads=False)
    changed = _changed(table_path, range(begins, version + 1))
    if changed is None or not _is_of_deltalake(checkpoint):
        return None
    rows = [{kind: _as_row(fields)} for kind, fields in changed.values()]
    kept = checkpoint.filter(pa.array(_kept(checkpoint, changed)))
    return pa.concat_tables([kept, pa.Table.from_pylist(rows, checkpoint.schema)])


def _changed(table_path: str, versions: Iterable[int]) -> _Changed | None:
    """Return the last action on each file, with the same deletion vector, and on each transaction; None where there are
    other actions, or other fields."""
    changed: _Changed = {}
    for version in versions:
        for action in delta_actions.of_commit(table_path, version):
            if not delta_actions.is_of_files(action):
                return None
            for kind in _FIELDS.keys() & action.keys():
                fields = action[kind]
                if not (fields.keys() <= _FIELDS[kind] and (fields.get("deletionVector") or {}).keys() <= _VECTOR):
                    return None
                changed[_identity(kind, fields)] = kind, fields
    return changed


def _identity(kind: str, fields: Mapping[str, Any]) -> _Identity:
    """Return what an action is about: a later one about the same replaces it."""
    return ("txn", (fields["appId"],)) if kind == "txn" else ("file", file_key(fields))


def _is_of_deltalake(checkpoint: pa.Table) -> bool:
    """Tell whether a checkpoint has the columns and fields that deltalake writes, and no parts in other files."""
    if set(checkpoint.column_names) != _COLUMNS or checkpoint["sidecar"].null_count < checkpoint.num_rows:
        return False
    return all({field.name for field in checkpoint.schema.field(kind).type} == _FIELDS[kind] for kind in _FIELDS)


def _kept(checkpoint: pa.Table, changed: _Changed) -> np.ndarray:
    """Return which rows of a checkpoint no later action replaces."""
    kept = np.ones(checkpoint.num_rows, np.bool_)
    names = pa.array({identity[0] for _, identity in changed}, pa.string())
    for kind, name in _NAMES.items():
        may_go = pc.is_in(pc.struct_field(checkpoint[kind], name), names)
        for place in np.flatnonzero(may_go.to_numpy()):
            kept[place] = _identity(kind, checkpoint[kind][int(place)].as_py()) not in changed
    return kept


def _as_row(fields: DeltaAction) -> dict[str, Any]:
    """Return an action's fields as Arrow takes them."""
    return {name: list(value.items()) if name in _MAPS and value else value for name, value in fields.items()}
