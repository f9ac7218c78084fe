"""Ranges of a key by which rows are hashed on the server and in the lake."""

from __future__ import annotations

from binlake.schema.table import Column, TableSchema
from binlake.verify.hashing.hashes import KeyCuts, TableHashes

KEY = Column("order_id", "int", server_name="id")


def test_each_side_has_its_own_name_of_the_key() -> None:
    hashes = TableHashes(TableSchema((KEY,), key=("order_id",)), 10, KeyCuts(KEY, (5,)))
    assert hashes.server_range(0) == "`id` < 5"
    assert hashes.lake_chunk.startswith("CASE WHEN `order_id` < 5 THEN 0 ELSE 1 END * 10")
    assert "`order_id` >= 5" in hashes.lake_where([12])
    assert "`id` >= 5" in hashes.server_where([12])


def test_a_table_that_is_not_cut_is_one_range() -> None:
    hashes = TableHashes(TableSchema((KEY,), key=("order_id",)), 10)
    assert hashes.server_range(0) == "TRUE"
    assert hashes.lake_chunk.startswith("0 * 10")
