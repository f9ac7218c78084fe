"""Delta tables by deltalake, in every kind of storage: each is opened here, with the options of its store."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from binlake.errors import LakeError
from binlake.storage import files, object_storage, storage_errors, stores

_Result = TypeVar("_Result")


def opened(path: str, version: int | None = None) -> DeltaTable:
    """Open a table. Raises what deltalake raises, and ConfigurationError."""
    return DeltaTable(path, version=version, storage_options=stores.storage_options(path))


def is_table(path: str) -> bool:
    """Tell whether a table is at a path. Raises LakeError where that can't be found out."""
    try:
        return bool(DeltaTable.is_deltatable(path, stores.storage_options(path)))
    except (DeltaError, OSError) as error:
        raise storage_errors.failed(f"can't look for a Delta table at {path}", error) from error


def created(create: Callable[[], _Result]) -> _Result:
    """Make a table's first commit by ``create``, and return what that returns.

    It is repeated where S3 answers with HTTP 409 because another conditional write of the name is under way. deltalake
    does so itself for further commits; for the first it looks for another's commit, and finds none.
    """
    for _ in range(object_storage.CONFLICTS):
        try:
            return create()
        except DeltaError as error:
            if "Invalid table version" not in str(error):
                raise
            time.sleep(object_storage.CONFLICT_SECONDS)
    return create()


def refuse_overwriting_store(folder: str) -> None:
    """Raise LakeError for an object store that takes two commits for one version, which loses the first.

    The store is tried below the folder; a file system isn't tried.
    """
    if stores.store_of(folder) is None:
        return
    path, options = f"{folder}/_probe-{uuid.uuid4().hex[:12]}", stores.storage_options(folder)
    try:
        write_deltalake(path, pa.table({"n": [0]}), storage_options=options)
        if stores.store_of(folder) == "azure" and files.has_folder(path):
            raise LakeError(
                f"{folder}: the storage account has a hierarchical namespace, on which two runs that race weren't "
                "proved safe",
                remedy="use an account without one, s3://, or a folder that all hosts share",
            )
        first, second = opened(path), opened(path)
        first.update(updates={"n": "1"})
        try:
            second.update(updates={"n": "2"})
        except CommitFailedError:
            return
    except (DeltaError, OSError) as error:
        raise storage_errors.failed(f"can't write a Delta table below {folder}", error) from error
    finally:
        files.remove_folder(path)
    raise LakeError(
        f"{folder}: the store took two commits for one version of a table: it doesn't know If-None-Match",
        remedy="use a store with conditional writes: on this one two runs would overwrite each other's commits",
    )
