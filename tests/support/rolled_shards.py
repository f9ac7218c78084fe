"""Statements that go through the shards of a merged table, for random walks."""

from __future__ import annotations

import random

ROLLED = (
    "ADD COLUMN c1 VARCHAR(9) DEFAULT 'one' FIRST",
    "RENAME COLUMN v TO note",
    "MODIFY n BIGINT, ADD COLUMN c2 INT",
    "DROP COLUMN c1",
    "RENAME COLUMN note TO v, ADD COLUMN c1 INT DEFAULT 3",
    "RENAME COLUMN c2 TO note, RENAME COLUMN n TO c2",
    "MODIFY c2 DECIMAL(30,0), DROP COLUMN v",
    "ADD COLUMN v VARCHAR(20) DEFAULT 'again' AFTER id, ADD COLUMN n INT",
)
"""ALTERs that go through the shards, each through all of them before the next: types then go together."""


def drawn_changes(chance: random.Random, number: int, create: str) -> list[str]:
    """Return statements on the rows of a shard's table orders. create: its CREATE TABLE, by which it is replaced."""
    changes = [
        f"INSERT INTO orders (id) VALUES ({number})",
        f"INSERT INTO orders (id) VALUES ({number + 5000}), ({number + 6000})",
        f"UPDATE orders SET id = {-number} WHERE id = {number - 1}",
        f"DELETE FROM orders WHERE id % 5 = {chance.randrange(5)}",
    ]
    done = chance.sample(changes, 3)
    if chance.random() < 0.05:
        done.append("TRUNCATE TABLE orders")
    if chance.random() < 0.05:
        done += ["DROP TABLE orders", create, f"INSERT INTO orders (id) VALUES ({number})"]
    return done
