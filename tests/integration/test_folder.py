"""A folder of binlog files in the place of the server: an archive, or copies that are still growing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from binlake.doctor.preflight import preflight
from binlake.errors import ConfigurationError, PositionLost, UsageError
from binlake.source.folder import Folder
from binlake.source.server import Source

if TYPE_CHECKING:
    from mirror import Mirror


@pytest.fixture
def archive(mirror: Mirror, tmp_path: Path) -> Archive:
    """The server's log from a fresh file on, read from copies."""
    mirror.execute("FLUSH BINARY LOGS")
    archive = Archive(mirror, tmp_path / "archive")
    mirror.files = archive.folder
    return archive


class Archive:
    """Copies of the server's binlog files."""

    def __init__(self, mirror: Mirror, folder: Path) -> None:
        self.mirror, self.folder = mirror, folder
        folder.mkdir()
        self.first = self.head()[0]

    def head(self) -> tuple[str, int]:
        with Source.open(self.mirror.endpoint) as source:
            return source.head()[:2]

    def copy(self, *, last_bytes: int | None = None) -> None:
        """All files from the first one on; of the last one only that many bytes."""
        for path in sorted(self.mirror.server.datadir.glob("binlog.[0-9]*")):
            if path.name >= self.first:
                shutil.copy(path, self.folder)
        if last_bytes is not None:
            with (self.folder / self.head()[0]).open("r+b") as file:
                file.truncate(last_bytes)


def test_tables_are_born_in_files(mirror: Mirror, archive: Archive) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'ä'), (2, NULL)")
    mirror.execute("FLUSH BINARY LOGS", "UPDATE t SET v = 'zwei' WHERE id = 2", "DELETE FROM t WHERE id = 1")
    archive.copy()
    assert mirror.snapshot() == []
    mirror.sync()
    mirror.assert_equal("t")
    assert mirror.sync().message.startswith("nothing new: proved up to ")
    mirror.execute("INSERT INTO t VALUES (3, 'later')")
    archive.copy()
    assert mirror.sync().mutations == 1
    mirror.assert_equal("t")


@pytest.mark.parametrize("missing", [1, 20, 60])
def test_a_copy_that_ends_in_the_middle_of_a_transaction_is_read_up_to_the_one_before(
    mirror: Mirror, archive: Archive, missing: int
) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'whole')")
    mirror.execute("BEGIN", "INSERT INTO t VALUES (2, 'cut')", "INSERT INTO t VALUES (3, 'off')", "COMMIT")
    archive.copy(last_bytes=archive.head()[1] - missing)
    mirror.snapshot()
    assert mirror.sync().mutations == 1
    archive.copy()
    assert mirror.sync().mutations == 2
    mirror.assert_equal("t")


def test_a_lake_made_from_the_server_goes_on_with_the_archive(mirror: Mirror, archive: Archive) -> None:
    mirror.files = None
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.snapshot()
    mirror.execute("INSERT INTO t VALUES (2)")
    mirror.sync()
    mirror.execute("INSERT INTO t VALUES (3)")
    archive.copy()
    mirror.files = archive.folder
    assert mirror.sync().mutations == 1
    mirror.assert_equal("t")
    mirror.files = None
    mirror.execute("INSERT INTO t VALUES (4)")
    assert mirror.sync().mutations == 1
    mirror.assert_equal("t")


def test_a_file_that_is_missing_stops_the_sync(mirror: Mirror, archive: Archive) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    archive.copy()
    mirror.snapshot()
    mirror.sync()
    mirror.execute("FLUSH BINARY LOGS", "INSERT INTO t VALUES (1)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (2)")
    archive.copy()
    middle = sorted(archive.folder.glob("binlog.[0-9]*[0-9]"))[1]  # MariaDB has an index of GTIDs beside each
    middle.unlink()
    with pytest.raises(PositionLost, match="are gone"):
        mirror.sync()
    assert [check.name for check in preflight(mirror.config, mirror.origin) if check.ok is False] == ["numbering"]
    archive.copy()
    mirror.sync()
    mirror.assert_equal("t")


def test_an_index_file_says_what_belongs_to_the_log(mirror: Mirror, archive: Archive) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    archive.copy()
    (archive.folder / "other.000001").write_bytes(b"something else")
    with pytest.raises(ConfigurationError, match="several logs: binlog, other"):
        mirror.snapshot()
    (archive.folder / "binlog.index").write_text(f"/var/lib/mysql/{archive.head()[0]}\n")
    mirror.snapshot()
    mirror.sync()
    mirror.assert_equal("t")


def test_what_only_a_server_can_do_is_refused(mirror: Mirror, archive: Archive) -> None:
    with pytest.raises(ConfigurationError, match="holds no binlog file"):
        mirror.snapshot()
    archive.copy()
    with pytest.raises(UsageError, match="files hold no table to copy"):
        mirror.snapshot("*.*")
    with pytest.raises(UsageError, match="verify needs a server"):
        mirror.verify()
    assert all(check.ok for check in preflight(mirror.config, Folder(archive.folder)))
