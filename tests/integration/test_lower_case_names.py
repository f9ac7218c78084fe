"""Servers with lower_case_table_names=1: a statement may write a name as it likes, and means the one table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from binlake.doctor.preflight import preflight
from binlake.errors import ConfigurationError
from binlake.source.folder import Folder
from binlake.source.log import folder_of
from mirror import Mirror
from servers import KINDS, Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=KINDS)
def lowering(request: pytest.FixtureRequest, new_server: type[Server]) -> Iterator[Server]:
    with new_server(request.param, lower_case_table_names=1) as server:
        server.execute("CREATE DATABASE Shop")
        yield server


def test_statements_concern_the_table_they_mean(lowering: Server, spark: SparkSession, tmp_path: Path) -> None:
    mirror = Mirror(lowering, "shop", tmp_path, spark)
    mirror.execute(
        "CREATE TABLE Orders (Id INT PRIMARY KEY, V INT)",
        "INSERT INTO ORDERS VALUES (1, 1), (2, 2)",
        "CREATE TABLE Emptied (id INT PRIMARY KEY)",
        "INSERT INTO emptied VALUES (1)",
        "CREATE TABLE Gone (id INT PRIMARY KEY)",
    )
    mirror.snapshot()
    mirror.execute(
        "ALTER TABLE ORDERS ADD COLUMN w INT DEFAULT 7",
        "INSERT INTO orders VALUES (3, 3, 3)",
        "TRUNCATE Emptied",
        "INSERT INTO EMPTIED VALUES (2)",
        "RENAME TABLE oRDERS TO Shop.`Ärger`",
        "UPDATE `ärger` SET v = 9 WHERE id = 1",
        "DROP TABLE GONE",
        "CREATE TABLE SHOP.Like_It LIKE `ÄRGER`",
    )
    mirror.sync()
    mirror.assert_equal("ärger", "emptied", "like_it")
    living = {row["table"] for row in mirror.metadata.read("watermarks") if row["status"] == "following"}
    assert living == {"ärger", "emptied", "like_it"}
    mirror.include = ["Shop.*"]
    (said,) = [check for check in preflight(mirror.config, mirror.endpoint) if check.name == "lower_case_table_names"]
    assert (said.ok, "Shop.*" in said.found, "lower case" in said.remedy) == (False, True, True)


def test_a_folder_of_such_a_servers_files_says_so() -> None:
    assert folder_of("file:///logs?lower_case_table_names=1") == Folder(Path("/logs"), lower_case_names=True)
    assert folder_of("file:///logs") == Folder(Path("/logs"))
    with pytest.raises(ConfigurationError, match="lower_case_table_names=1"):
        folder_of("file:///logs?lower=1")
