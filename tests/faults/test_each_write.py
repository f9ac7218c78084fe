"""Whichever write of a sync fails: afterwards each row is in the lake once, as if it hadn't."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from binlake import pipeline
from binlake.errors import BinlakeError
from binlake.report import Report
from binlake.storage.disks import Disks
from binlake.store.metadata import query
from mirror import Mirror, on_mariadb, sync_alone
from no_session import NoSession
from servers import Server

WRITES = (
    "open_new", "open_new_private", "write", "write_if_absent", "delete_folder", "make_private_folder",
)  # fmt: skip
OURS = ("batches", "lake_versions", "runs", "watermarks", "schemas", "ddl_history")
Way = Literal["refused", "answer lost", "full from here on"]
EACH = 13
"""Of so many writes one fails, a different one in each way."""


class Writes:
    """Counts writes to storage. Each later one fails, too, where the disk is ``full from here on``."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, self.failing, self.way = 0, 0, ""
        for name in WRITES:
            patch.setattr(Disks, name, self._counted(getattr(Disks, name)))

    def _counted(self, write: Any) -> Any:
        def counted(*arguments: Any) -> Any:
            self.count += 1
            is_full = self.way == "full from here on" and 0 < self.failing <= self.count
            if is_full or (self.way == "refused" and self.count == self.failing):
                raise OSError(28, "No space left on device")
            written = write(*arguments)
            if self.way == "answer lost" and self.count == self.failing:
                raise OSError(5, "Input/output error")
            return written

        return counted

    @contextmanager
    def failing_at(self, number: int, way: Way) -> Iterator[None]:
        self.count, self.failing, self.way = 0, number, way
        with suppress(BinlakeError):  # what isn't needed may fail unheard
            yield
        self.failing = 0


@pytest.fixture
def waiting(server: Server, database: str, lake: Path) -> Mirror:
    """Tables with and without a key, and what modes keep beside them; the log has rows and statements for a sync."""
    mirror = Mirror(server, database, lake, None, reader="direct")  # type: ignore[arg-type]
    mirror.modes = [{"tables": f"{database}.a", "history": {}, "log": {}}]
    mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9))",
        "CREATE TABLE b (id INT, v VARCHAR(9))",
        "INSERT INTO a VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO b VALUES (1, 'x'), (1, 'x')",
    )
    pipeline.bootstrap(mirror.config, mirror.origin, NoSession(), Report(quiet=True))
    mirror.execute(
        "UPDATE a SET v = 'new' WHERE id = 1",
        "DELETE FROM b LIMIT 1",
        "ALTER TABLE a ADD n INT DEFAULT 7",
        "DELETE FROM a WHERE id = 2",
        "INSERT INTO b VALUES (2, 'y')",
        "CREATE TABLE c (id INT PRIMARY KEY)",
        "INSERT INTO c VALUES (1)",
    )
    return mirror


def content(mirror: Mirror) -> dict[str, list[str]]:
    """The rows of all tables, and for which batches and tables there are rows in metadata."""
    folder = Path(mirror.config.root)
    tables = [log.parent for log in (folder / mirror.database).glob("*/_delta_log")]
    rows = {table.name: sorted(map(str, query(str(table)).to_pylist())) for table in tables}
    for name in OURS:
        told = [row for row in mirror.metadata.read(name) if row.get("kind") != "failed"]
        rows[name] = sorted(f"{row['batch']} {row.get('database')} {row.get('table')}" for row in told)
    rows["staged"] = [str(path) for path in (folder / "_staging").glob("[0-9]*")]
    return rows


@on_mariadb
def test_a_sync_goes_on_whichever_write_failed(
    waiting: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copied(name: str) -> Mirror:
        shutil.copytree(waiting.folder, tmp_path / name)
        return replace(waiting, folder=tmp_path / name)

    writes, whole = Writes(monkeypatch), copied("whole")
    sync_alone(whole)
    most, wanted = writes.count, content(whole)
    whole.assert_equal("a", "b", "c")
    for place, way in enumerate(get_args(Way)):
        for number in range(1 + place * EACH // 3, most, EACH):
            mirror = copied(f"{number} {way}")
            with writes.failing_at(number, way):
                sync_alone(mirror)
            sync_alone(mirror)
            assert content(mirror) == wanted, f"write {number}: {way}"
