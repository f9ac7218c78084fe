"""Which unexpected errors in a table's step stop the table alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError

from binlake.merge.delta_names import refused_by_merge, refused_with_vectors, taken_by_delta
from binlake.merge.unexpected_errors import of_table
from binlake.planner.manifest import StagedFile
from binlake.schema.table import Column, TableName

NAME = TableName("shop", "t")
ID = Column("id", "int")
FILE = StagedFile("p", NAME, (ID,), ("id",), 0, 0, 1, 0, 0, (7, 400, 0), (7, 900, 0), 1, "", {})


class AnalysisException(Exception):
    """As pyspark's."""

    def getCondition(self) -> str:
        return "AMBIGUOUS_REFERENCE"


@pytest.mark.parametrize(
    "error", [RecursionError(), MemoryError(), KeyError("v"), ValueError("v"), TypeError(), pa.ArrowInvalid("v")]
)
def test_errors_of_code_stop_their_table(error: Exception) -> None:
    stopped = of_table(error, NAME, [FILE])
    assert stopped is not None
    assert stopped.message.startswith("shop.t: file 7 of the log, from offset 400: ")
    assert type(error).__name__ in stopped.message
    assert "'v'" not in stopped.message
    assert "binlake table resume" in stopped.remedy


def test_a_query_that_spark_refuses_stops_its_table() -> None:
    stopped = of_table(AnalysisException(), NAME, [])
    assert stopped is not None
    assert "AnalysisException (AMBIGUOUS_REFERENCE)" in stopped.message


@pytest.mark.parametrize("error", [OSError("no space left on device"), CommitFailedError("another"), ConnectionError()])
def test_errors_of_storage_are_no_tables_own(error: Exception) -> None:
    assert of_table(error, NAME, [FILE]) is None


def test_names_of_deltas_own_columns() -> None:
    assert refused_by_merge(["id", "_Row_Id_"])
    assert not refused_by_merge(["id", "row_id", "filePath"])
    assert refused_with_vectors(["id", "FilePath"])
    assert not refused_with_vectors(["id", "file_path", "_row_id_"])
    assert taken_by_delta(["id", "__delta_internal_is_row_deleted"]) == "__delta_internal_is_row_deleted"
    assert taken_by_delta(["id"]) == ""
