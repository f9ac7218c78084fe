"""Tables of one batch are merged one after the other where they have few rows, else side by side."""

from __future__ import annotations

from pathlib import Path
from threading import Condition

import pytest

from begun_alone import begin_alone
from binlake.merge import apply
from binlake.planner.outcome import TableOutcome
from mirror import Mirror, on_mysql, sync_alone
from servers import Server

MEETING = 60.0
"""Seconds for which a table that is merged waits for another one."""


class Meetings:
    """Lets each merge wait for another one, and counts the most that were at work at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self._seconds, self._at_work, self.most = seconds, 0, 0
        self._changed = Condition()
        self._merge = apply._Group.run
        monkeypatch.setattr(apply._Group, "run", lambda group: self._run(group))

    def _run(self, group: apply._Group) -> list[TableOutcome]:
        with self._changed:
            self._at_work += 1
            self.most = max(self.most, self._at_work)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most > 1, self._seconds)
        try:
            return self._merge(group)
        finally:
            with self._changed:
                self._at_work -= 1


@on_mysql
@pytest.mark.parametrize(("rows", "seconds", "most"), [(1, 0.2, 1), (60_000, MEETING, 2)])
def test_few_rows_take_turns(
    server: Server, database: str, lake: Path, monkeypatch: pytest.MonkeyPatch, rows: int, seconds: float, most: int
) -> None:
    mirror = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    for table in ("a", "b"):
        mirror.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v CHAR(64))")
    begin_alone(mirror)
    for table in ("a", "b"):
        mirror.execute(
            f"SET SESSION cte_max_recursion_depth = {rows}",
            f"INSERT INTO {table} WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows})"
            " SELECT n, SHA2(n, 256) FROM s",
        )
    meetings = Meetings(monkeypatch, seconds)
    sync_alone(mirror)
    assert meetings.most == most
    mirror.assert_equal("a", "b")
