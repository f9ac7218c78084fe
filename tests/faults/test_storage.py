"""The lake's storage fails: full or unwritable disks, lost and damaged files. Each is told with its path and what to
do; no batch is recorded, no row merged that shouldn't be; and once it is fixed a rerun ends equal."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from binlake import faults, pipeline
from binlake.cli import command_line
from binlake.lease import lease
from binlake.merge import apply
from binlake.report import Report
from binlake.snapshot import few_rows
from binlake.spark import session
from binlake.staging import staged_files as staging
from mirror import Mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.parametrize("server", ["mysql"], indirect=True)  # the lake's side is the same for both
TABLES = ("t", "u")
FREE = "free space on the lake's disk, then run again"
ALLOW = "writable for this account"
ANEW = "run again: the batch is staged again"
MORE_ROWS = "(WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 400) SELECT n FROM s) x"


# disks ---------------------------------------------------------------------------------------------------------------


class Disk:
    """A file system of its own at a folder of the lake."""

    def __init__(self, folder: Path, size: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(f"{' '.join(command)}: {done.stderr.strip()} (these tests mount small disks: run them as root)")

    @property
    def free(self) -> int:
        return shutil.disk_usage(self.folder).free

    @property
    def _ballast(self) -> Path:
        return self.folder / "_ballast"

    def fill(self, *, but: int = 0) -> None:
        """Nothing more has room, or next to nothing: ``but`` bytes."""
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):  # full sooner: other threads write, too
            file.write(bytes(max(0, self.free - but)))

    def make_room(self) -> None:
        self._ballast.unlink()

    def forbid(self) -> None:
        self._run("mount", "-o", "remount,ro", str(self.folder))

    def allow(self) -> None:
        self._run("mount", "-o", "remount,rw", str(self.folder))

    def unmount(self) -> None:
        # Java closes what it couldn't write when it pleases; the kernel takes the disk away after that.
        self._run("umount", "--lazy", str(self.folder))


@pytest.fixture
def disk() -> Iterator[Callable[..., Disk]]:
    """Mounts a disk; all go with the test."""
    mounted: list[Disk] = []

    def mount(folder: Path, size: str = "8m") -> Disk:
        mounted.append(Disk(folder, size))
        return mounted[-1]

    yield mount
    for disk in reversed(mounted):
        disk.unmount()


# the mirror ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(mirror: Mirror, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Two tables on the server, none in the lake yet; the command line works in this process."""
    monkeypatch.setattr(session, "build", lambda name, **options: spark)
    monkeypatch.setenv("AIRFLOW_CONN_TESTS", mirror.server.uri())
    create(mirror)
    return mirror


@pytest.fixture
def followed(fresh: Mirror) -> Mirror:
    """As above, followed by way of the log alone, which creates the tables: the batch that waits has many steps."""
    follow(fresh)
    return fresh


def follow(mirror: Mirror) -> None:
    mirror.execute("DROP TABLE t", "DROP TABLE u")
    mirror.follow_from_here()
    create(mirror)
    work(mirror)


def create(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))",
        "CREATE TABLE u (v VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        "INSERT INTO u VALUES ('same'), ('same')",
    )


def work(mirror: Mirror) -> None:
    """Changes that come out otherwise when they are merged twice, or in part."""
    mirror.execute(
        "INSERT INTO t SELECT (SELECT max(id) FROM t) + n, SHA2(n, 512) FROM " + MORE_ROWS,
        "UPDATE t SET v = CONCAT(LEFT(v, 100), '!') WHERE id % 2",
        "INSERT INTO u VALUES ('same'), ('new')",
    )


def command(mirror: Mirror, *arguments: str) -> int:
    return command_line.run([arguments[0], "--config", str(mirror.write_yaml()), *arguments[1:]])


def staging_folder(mirror: Mirror) -> Path:
    return Path(mirror.config.staging_path())


def metadata_folder(mirror: Mirror) -> Path:
    return Path(mirror.config.metadata_path("lease")).parent


def tables_folder(mirror: Mirror) -> Path:
    return Path(mirror.path("t")).parent


def recorded(mirror: Mirror) -> list[int]:
    return sorted(row["batch"] for row in mirror.metadata.read("runs") if row["kind"] == "sync")


def assert_good_again(mirror: Mirror) -> None:
    """A rerun ends equal; the batch is recorded once, each of its steps committed once."""
    assert command(mirror, "sync") == 0
    mirror.assert_equal(*TABLES)
    assert recorded(mirror) == [1]
    mirror.assert_each_once(*TABLES)
    assert {batch for _, batch, _ in mirror.commits(*TABLES)} == {1}


class Refused:
    """What a command that failed said."""

    def __init__(self, code: int, said: str) -> None:
        self.code, self.said = code, said

    def names(self, *words: object) -> None:
        assert self.code == 3, self.said
        for word in words:
            assert str(word) in self.said, f"{word} isn't in: {self.said}"
        assert "Traceback" not in self.said
        assert "unexpected" not in self.said
        last = self.said[self.said.rindex("binlake: ") :].strip().splitlines()
        assert len(last) == 2, f"a line, and what to do: {last}"
        assert "\x1b" not in self.said


@pytest.fixture
def failing(capfd: pytest.CaptureFixture[str]) -> Callable[..., Refused]:
    """Runs a command, and gives what it said."""

    def run(mirror: Mirror | Path, name: str = "sync") -> Refused:
        capfd.readouterr()
        path = mirror if isinstance(mirror, Path) else mirror.write_yaml()
        code = command_line.run([name, "--config", str(path)])
        said = capfd.readouterr().err
        return Refused(code, said[said.find("binlake: ") :])

    return run


@contextmanager
def at(point: str, act: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What happens when a run comes to a point for the first time."""
    reached: list[str] = []

    def fault(here: str) -> None:
        if here == point and not reached:
            reached.append(here)
            act()

    with monkeypatch.context() as patch:
        patch.setattr(faults, "at_point", fault)
        yield
    assert reached, f"{point} was never reached"


def cut_off() -> None:
    raise RuntimeError("cut off")


# full and forbidden disks --------------------------------------------------------------------------------------------


def test_a_full_disk_while_staging(
    followed: Mirror, disk: Callable[..., Disk], failing: Callable[..., Refused]
) -> None:
    small = disk(staging_folder(followed))
    for but in (0, 40_000):  # full from the start; in the middle of a file
        small.fill(but=but)
        left = small.free
        failing(followed).names("can't write", staging_folder(followed) / "1", "No space left", FREE)
        assert small.free >= left  # an attempt that failed takes no room
        small.make_room()
    assert recorded(followed) == []
    assert followed.commits(*TABLES) == {}
    assert_good_again(followed)


def test_a_full_disk_while_merging(
    followed: Mirror, disk: Callable[..., Disk], failing: Callable[..., Refused], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = disk(tables_folder(followed))
    with at("epoch committed", small.fill, monkeypatch):  # a step is done, the next can't be
        failing(followed).names(f"{followed.database}.", small.folder, "No space left", FREE)
    done = followed.commits(*TABLES)
    assert done
    failing(followed).names(small.folder, FREE)
    assert followed.commits(*TABLES) == done
    assert recorded(followed) == []
    small.make_room()
    assert_good_again(followed)


def test_a_full_disk_under_the_metadata(
    fresh: Mirror, disk: Callable[..., Disk], failing: Callable[..., Refused], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run comes a step further, and is stopped there."""
    small = disk(metadata_folder(fresh))
    follow(fresh)
    small.fill()
    failing(fresh).names("can't write the metadata table", small.folder, "No space left", FREE)
    small.make_room()
    for point in ("planned", "manifest written", "epoch committed", "merged"):
        with at(point, small.fill, monkeypatch):
            failing(fresh).names("can't write the metadata table", small.folder, "No space left", FREE)
        assert recorded(fresh) == []
        small.make_room()
    assert_good_again(fresh)


def test_folders_that_may_not_be_written(
    followed: Mirror, disk: Callable[..., Disk], failing: Callable[..., Refused]
) -> None:
    for folder in (staging_folder(followed), tables_folder(followed)):
        small = disk(folder)
        small.forbid()
        failing(followed).names(folder, ALLOW)
        small.allow()
    assert recorded(followed) == []
    assert followed.commits(*TABLES) == {}
    assert_good_again(followed)


def test_a_lake_that_is_a_file(fresh: Mirror, failing: Callable[..., Refused]) -> None:
    blocked = Mirror(fresh.server, fresh.database, fresh.folder / "blocked" / "lake", fresh.spark)
    blocked.folder.parent.write_text("precious")
    path = fresh.folder / "blocked.yaml"
    path.write_text(json.dumps(blocked.config.model_dump()))
    for name in ("sync", "snapshot", "status", "history"):
        failing(path, name).names(f"{fresh.folder}/blocked isn't a folder", "lake.path")
    assert blocked.folder.parent.read_text() == "precious"


# snapshots -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", ["jdbc", "direct"])
@pytest.mark.parametrize("forbidden", [False, True], ids=["full", "read-only"])
def test_a_snapshot_that_finds_no_room(
    fresh: Mirror,
    disk: Callable[..., Disk],
    failing: Callable[..., Refused],
    monkeypatch: pytest.MonkeyPatch,
    forbidden: bool,
    reader: str,
) -> None:
    if reader == "direct":
        monkeypatch.setattr(few_rows, "MOST_ROWS", -1)
    fresh.options["snapshot"] = {"reader": reader}
    for folder in (metadata_folder(fresh), staging_folder(fresh), tables_folder(fresh)):
        small = disk(folder)
        small.forbid() if forbidden else small.fill()
        failing(fresh, "snapshot").names(folder, ALLOW if forbidden else FREE)
        small.allow() if forbidden else small.make_room()
    assert fresh.metadata.read("watermarks") == []
    fresh.execute("UPDATE t SET v = 'meanwhile' WHERE id = 1", "DELETE FROM u LIMIT 1")
    assert command(fresh, "snapshot") == 0
    work(fresh)
    assert_good_again(fresh)


def gone(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flipped(file: Path) -> None:
    """A bit in the values of the first column's last page."""
    column = pq.read_metadata(file).row_group(0).column(0)
    begin = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(file.read_bytes())
    data[begin + column.total_compressed_size - 2] ^= 1
    file.write_bytes(data)


def copied_files(mirror: Mirror) -> list[Path]:
    """Data files that no commit knows yet."""
    return sorted(tables_folder(mirror).rglob("snapshot-*/part-*.parquet"))


def test_copied_chunks_that_are_damaged_before_their_commit(
    fresh: Mirror, failing: Callable[..., Refused], monkeypatch: pytest.MonkeyPatch
) -> None:
    for damage in (gone, cut, empty):

        def act(damage: Callable[[Path], None] = damage) -> None:
            for file in copied_files(fresh):
                damage(file)

        with at("chunks written", act, monkeypatch):
            refused = failing(fresh, "snapshot")
        refused.names(tables_folder(fresh), "run again: they are copied again")
    assert not any(DeltaTable.is_deltatable(fresh.path(table)) for table in TABLES)
    assert command(fresh, "snapshot") == 0
    work(fresh)
    assert_good_again(fresh)


def test_a_file_that_goes_while_its_commit_begins(
    fresh: Mirror, failing: Callable[..., Refused], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a VACUUM of somebody else: what is gone is asked for once more when nothing can come between."""

    def act() -> None:
        for file in copied_files(fresh):
            gone(file)

    with at("commit begun", act, monkeypatch):
        failing(fresh, "snapshot").names(tables_folder(fresh), "run again: they are copied again")
    assert command(fresh, "snapshot") == 0
    fresh.assert_equal(*TABLES)


def test_a_chunk_that_is_lost_between_two_runs(fresh: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    for lose in (copied_files, lambda mirror: sorted(staging_folder(mirror).rglob("copied.json"))):
        with at("chunks written", cut_off, monkeypatch):
            assert command(fresh, "snapshot") == 3
        assert lose(fresh)
        for file in lose(fresh):
            gone(file)
    assert command(fresh, "snapshot") == 0
    fresh.assert_equal(*TABLES)


def test_what_dead_snapshots_wrote_is_removed(fresh: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, point in enumerate(("chunk copied", "chunks written", "chunk copied"), start=30):
        with at(point, cut_off, monkeypatch):
            assert command(fresh, "snapshot") == 3
        assert copied_files(fresh)
        fresh.execute(f"ALTER TABLE t MODIFY v VARCHAR(2{number})", f"ALTER TABLE u MODIFY v VARCHAR({number})")
    assert command(fresh, "snapshot") == 0
    fresh.assert_equal(*TABLES)
    listed = {path for table in TABLES for path in DeltaTable(fresh.path(table)).file_uris()}
    assert {str(file) for file in tables_folder(fresh).rglob("*.parquet") if "_delta_log" not in str(file)} == listed
    assert not list((staging_folder(fresh) / "snapshot").iterdir())


# staged files --------------------------------------------------------------------------------------------------------


@contextmanager
def no_merge(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A MERGE that begins is a fault of the test."""

    def begun(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a MERGE began")

    with monkeypatch.context() as patch:
        patch.setattr(apply, "merge_epoch", begun)
        yield


def staged_files(mirror: Mirror) -> list[Path]:
    return sorted(staging_folder(mirror).rglob("*.parquet"))


def damage_file(damage: Callable[[Path], None]) -> Callable[[Mirror], Path]:
    def act(mirror: Mirror) -> Path:
        *_, last = staged_files(mirror)
        damage(last)
        return last

    return act


def damage_manifest(damage: Callable[[Path], None]) -> Callable[[Mirror], Path]:
    def act(mirror: Mirror) -> Path:
        (manifest,) = staging_folder(mirror).rglob("manifest.json")
        damage(manifest)
        return manifest

    return act


def half_written(file: Path) -> None:
    file.write_text(file.read_text()[: file.stat().st_size // 2])


def another_count(file: Path) -> None:
    """Still JSON: a key range that is too narrow would merge rows twice."""
    text = file.read_text()
    changed = text.replace('"ranges": {"id": [', '"ranges": {"id": [1', 1)
    assert changed != text
    file.write_text(changed)


def anothers(file: Path) -> None:
    """A whole manifest, of another batch."""
    manifest = staging.Manifest.from_json(file.read_text())
    file.write_text(staging.Manifest(manifest.batch + 1, manifest.attempt, ()).to_json())


def not_an_object(file: Path) -> None:
    file.write_text('["batch"]')


DAMAGES = {
    "file gone": damage_file(gone),
    "file cut": damage_file(cut),
    "file empty": damage_file(empty),
    "file flipped": damage_file(flipped),
    "manifest gone": damage_manifest(gone),
    "manifest empty": damage_manifest(empty),
    "manifest half written": damage_manifest(half_written),
    "manifest with another count": damage_manifest(another_count),
    "manifest of another batch": damage_manifest(anothers),
    "manifest that isn't one": damage_manifest(not_an_object),
}


def stage(mirror: Mirror) -> None:
    pipeline.plan(mirror.config, mirror.origin)
    pipeline.stage(mirror.config, mirror.origin, lambda _: mirror.spark, Report())


def test_damaged_staging_is_found_before_a_merge_and_staged_anew(
    followed: Mirror, failing: Callable[..., Refused], monkeypatch: pytest.MonkeyPatch
) -> None:
    with no_merge(monkeypatch):
        for damage in DAMAGES.values():
            stage(followed)
            path = damage(followed)
            failing(followed).names(path, ANEW)
    assert recorded(followed) == []
    assert followed.commits(*TABLES) == {}
    assert_good_again(followed)


def test_a_batch_that_is_merged_in_part_is_staged_anew(
    followed: Mirror, failing: Callable[..., Refused], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is staged again is the same, so that the steps that are done stay done."""
    for damage in ("file flipped", "manifest gone"):
        with at("epoch committed", cut_off, monkeypatch):
            assert command(followed, "sync") == 3
        done = followed.commits(*TABLES)
        assert done
        path = DAMAGES[damage](followed)
        with no_merge(monkeypatch):
            failing(followed).names(path, ANEW)
        assert followed.commits(*TABLES) == done
    assert_good_again(followed)


def test_a_batch_merged_in_part_that_tells_something_else_is_refused(
    followed: Mirror, failing: Callable[..., Refused], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a table was excluded meanwhile, and staging damaged."""
    with at("table merged", cut_off, monkeypatch):
        assert command(followed, "sync") == 3
    done = followed.commits(*TABLES)
    DAMAGES["file flipped"](followed)
    failing(followed).names(ANEW)
    begun = [table for table in TABLES if DeltaTable.is_deltatable(followed.path(table))]
    followed.exclude = [f"{followed.database}.{({*TABLES} - {begun[0]}).pop()}"]
    refused = failing(followed)
    refused.names("differs from its first staging", f"{followed.database}.{begun[0]}", "binlake snapshot --config FILE")
    assert followed.commits(*TABLES) == done
    followed.exclude = []
    assert_good_again(followed)


def test_a_damaged_batch_whose_log_is_gone(followed: Mirror, failing: Callable[..., Refused]) -> None:
    stage(followed)
    DAMAGES["file cut"](followed)
    failing(followed).names(ANEW)
    purge(followed)
    for _ in range(2):
        failing(followed).names("purged", "binlake snapshot")
    assert followed.commits(*TABLES) == {}
    assert command(followed, "snapshot") == 0
    work(followed)
    assert command(followed, "sync") == 0
    followed.assert_equal(*TABLES)
    assert lease.read(followed.metadata).open is None


def purge(mirror: Mirror) -> None:
    mirror.execute("FLUSH BINARY LOGS")
    newest = mirror.server.execute("SHOW BINARY LOGS")[-1][0]
    while mirror.server.execute("SHOW BINARY LOGS")[0][0] != newest:
        mirror.execute(f"PURGE BINARY LOGS TO '{newest}'")


def test_a_batch_staged_twice_is_the_same_to_the_byte(followed: Mirror) -> None:
    followed.execute("ALTER TABLE t ADD n INT DEFAULT 5", "INSERT INTO t VALUES (100000, 'x', 6)")
    stages: list[dict[str, bytes]] = []
    for _ in range(2):
        stage(followed)
        with lease.held(followed.metadata) as held:
            opened = held.control().open
            assert opened is not None
            folder = staging_folder(followed) / str(opened.batch) / opened.attempt
            stages.append({str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.parquet")})
            held.advance(replace(opened, state="planned", attempt=""))
    assert len(stages[0]) == 3
    assert stages[0] == stages[1]
