"""Choice of the storage in which a path lies."""

from __future__ import annotations

from functools import cache

from binlake.caches import remembered
from binlake.errors import LakeError, UsageError
from binlake.storage import stores
from binlake.storage.protocol import Storage

# A kind is imported when a path of it is asked for: reading metadata alone needs none.


def storage_of(path: str) -> Storage:
    """Return the storage of a path. Raises ConfigurationError, LakeError and UsageError where it can't be reached."""
    if "://" not in path or path.startswith(stores.DISKS):
        return _disks()
    if stores.is_hdfs(path):
        return _hdfs(path)
    if stores.store_of(path) is None:
        raise LakeError(f"no storage is known for {path}", remedy="use a folder, s3://, abfss:// or hdfs://")
    stores.check(path)
    return _object_storage(stores.container_and_name(path)[0], stores.at(path))


@cache
def _disks() -> Storage:
    from binlake.storage.disks import Disks

    return Disks()


@remembered("containers of stores")
def _object_storage(container: str, store: stores.Store) -> Storage:
    """Return the storage of a container, one for each account that reaches it."""
    from binlake.storage.object_storage import AzureStorage, S3Storage

    if isinstance(store, stores.S3):
        return S3Storage(container, store)
    assert isinstance(store, stores.Azure)
    return AzureStorage(container, store)


def _hdfs(path: str) -> Storage:
    try:
        from binlake.storage import hdfs
    except ImportError as error:
        raise UsageError(f"hdfs:// needs hdfs-native: {error}", remedy="pip install 'binlake[hdfs]'") from error
    return hdfs.HdfsStorage(path.removeprefix(hdfs.PREFIX).partition("/")[0])
