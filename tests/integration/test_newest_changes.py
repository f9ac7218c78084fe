"""The newest mutations of a table, read from the staging that is kept: which, when and where, and no values."""

from __future__ import annotations

from dataclasses import asdict

from binlake.schema.table import TableName
from binlake_airflow.page.newest_changes import NewestChanges, newest_changes
from mirror import Mirror


def newest(mirror: Mirror, count: int = 10, *, with_key: bool = False) -> NewestChanges:
    name = TableName(mirror.database, "t")
    return newest_changes(mirror.config, mirror.metadata, name, count, with_key=with_key)


def test_the_newest_mutations_come_first_and_without_values(mirror: Mirror) -> None:
    mirror.options = {"maintain": {"staging_hours": 24}}
    mirror.execute("CREATE TABLE t (id INT, part VARCHAR(9), v TEXT, PRIMARY KEY (id, part))")
    mirror.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    mirror.snapshot()
    assert newest(mirror) == NewestChanges((), None)
    mirror.execute("INSERT INTO t VALUES (1, 'a', 'topsecret'), (2, 'bé', 'topsecret')", "INSERT INTO other VALUES (7)")
    mirror.sync()
    mirror.execute(
        "UPDATE t SET v = 'changed' WHERE id = 1",
        "XA START 'x'", "INSERT INTO t VALUES (9, 'x', 'prepared')", "XA END 'x'", "XA PREPARE 'x'",
        "XA COMMIT 'x'",
        "DELETE FROM t WHERE id = 2",
    )  # fmt: skip
    mirror.sync()
    mirror.assert_equal("t")
    answer = newest(mirror)
    assert [(change.batch, change.op) for change in answer.changes] == [
        (2, "delete"),
        (2, "update"),
        (1, "insert"),
        (1, "insert"),
    ]
    assert answer.since_batch == 1
    places = [(file, int(offset)) for file, _, offset in (change.position.partition(":") for change in answer.changes)]
    assert places == sorted(places, reverse=True)
    assert "secret" not in str(asdict(answer))
    assert {change.key is None for change in answer.changes} == {True}
    keys = [change.key for change in newest(mirror, 3, with_key=True).changes]
    assert keys == [{"id": "2", "part": "bé"}, {"id": "1", "part": "a"}, {"id": "2", "part": "bé"}]
