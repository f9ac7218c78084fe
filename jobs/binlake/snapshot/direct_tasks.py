"""The direct reader inside Spark's tasks, on whichever host they run.

``read`` returns frames with the same columns and types as ``jdbc.read``; ``copy`` writes the rows to data files inside
the task that reads them, which is five times as fast. A failed task passes on only text: what the functions here raise
in one, ``direct.sql_error``, ``storage_error`` and ``restore.refused_text`` parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from binlake.errors import LakeError
from binlake.schema import hash_key
from binlake.serialization import dumps, loads
from binlake.snapshot import direct, jdbc, restore, resultset
from binlake.snapshot.attempts import Copied
from binlake.snapshot.direct import DataFiles, QueriedRows, ServerFailed, SqlError, task_error
from binlake.snapshot.jdbc import ChunkQuery
from binlake.snapshot.restore_arrow import NoText, NoValue
from binlake.storage import storage_errors

_STORAGE = re.compile(r"binlake storage error (\{.*\})")


def read(session: SparkSession, query: ChunkQuery) -> DataFrame:
    """Return a frame of one partition, with the columns and types of ``jdbc.read``. It can be read once."""
    schema = jdbc.read(session, query).schema
    arrow = to_arrow_schema(schema)

    def read_there(nothing: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for columns in QueriedRows(query).columns(len(arrow)):
                yield resultset.as_batch(columns, arrow)
        except ServerFailed as failed:
            raise task_error(failed.error) from None
        except resultset.Truncated as error:
            raise task_error(SqlError(0, str(error))) from None

    return session.range(0, 1, 1, 1).mapInArrow(read_there, schema)


def copy(session: SparkSession, query: ChunkQuery, target: DataFiles) -> Copied:
    """Copy a chunk in one Spark task that reads the rows and writes them. Raises Spark's error if the task fails."""
    (copied,) = session.sparkContext.parallelize([(query, target)], 1).map(_copied).collect()
    assert isinstance(copied, Copied)
    return copied


def _copied(given: tuple[ChunkQuery, DataFiles]) -> Copied:
    query, target = given
    hash_key.use(target.keys)
    try:
        return direct.copied(QueriedRows(query).columns(len(target.schema.mirrored)), target)
    except NoText as error:
        raise RuntimeError(f"{restore.NOT_TEXT} {error.number}") from None
    except ServerFailed as failed:
        raise task_error(failed.error) from None
    except NoValue as error:
        raise task_error(SqlError(0, str(error))) from None
    except (LakeError, OSError) as error:
        cause = error.message if isinstance(error, LakeError) else storage_errors.cause_of(error)
        raise _storage_failed(cause) from None


def storage_error(message: str) -> str | None:
    """Return the storage's error from the message of a task's exception, None if it has none."""
    match = _STORAGE.search(message)
    return loads(_StorageMessage, match[1]).text if match else None


@dataclass(frozen=True)
class _StorageMessage:
    """A storage error's text, as a task passes it on."""

    text: str


def _storage_failed(cause: str) -> RuntimeError:
    # A function of its own, since Spark's message quotes the line that raises.
    return RuntimeError(f"binlake storage error {dumps(_StorageMessage(cause))}")
