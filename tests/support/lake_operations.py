"""Files, commits, statistics and metadata of the lake are damaged, lost, or changed by others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable, write_deltalake

from damaged_log import change_statistics
from operated_source import HISTORY, LOG, OperatedSource, copy_folder
from operations import Effect, operation

Statistics = dict[str, Any]


def _maxima_too_low(stats: Statistics) -> None:
    stats["maxValues"] = {name: _lower(value) for name, value in stats["maxValues"].items()}


def _minima_too_high(stats: Statistics) -> None:
    stats["minValues"] = {name: stats["maxValues"].get(name, value) for name, value in stats["minValues"].items()}


def _fewer_rows(stats: Statistics) -> None:
    stats["numRecords"] = max(1, stats["numRecords"] - 1)


def _more_rows(stats: Statistics) -> None:
    stats["numRecords"] += 5


def _all_null(stats: Statistics) -> None:
    stats["nullCount"] = dict.fromkeys(stats["nullCount"], stats["numRecords"])


def _lower(value: Any) -> Any:
    return value // 2 if isinstance(value, int) else value


LIES = (_maxima_too_low, _minima_too_high, _fewer_rows, _more_rows, _all_null)


def _table(source: OperatedSource) -> str:
    return source.random.choice(source.tables())


def _any_folder(source: OperatedSource) -> Path:
    """Return the folder of a table, or of one beside a mirror."""
    beside = [Path(f"{source.path(HISTORY)}__history"), Path(f"{source.path(LOG)}__log")]
    there = [source.path(table) for table in source.tables()] + [path for path in beside if path.exists()]
    chosen = source.random.choice(there)
    source.log.append(f"in {chosen}")
    return chosen


def _data_files(folder: Path) -> list[Path]:
    return sorted(Path(unquote(uri).removeprefix("file://")) for uri in DeltaTable(str(folder)).file_uris())


def _commits(folder: Path) -> list[Path]:
    return sorted((folder / "_delta_log").glob("*.json"))


@operation(seen_by="verify")
def a_data_file_is_damaged(source: OperatedSource) -> Effect:
    folder = _any_folder(source)
    if files := _data_files(folder):
        file, how = source.random.choice(files), source.random.choice(["gone", "cut", "flipped", "empty"])
        source.log.append(f"{file.name} is {how}")
        content = file.read_bytes()
        if how == "gone":
            file.unlink()
        elif how == "flipped":
            at = source.random.randrange(len(content))
            file.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        else:
            file.write_bytes(content[: len(content) // 2] if how == "cut" else b"")
    yield


@operation(seen_by="verify")
def a_deletion_vector_is_lost(source: OperatedSource) -> Effect:
    for file in (source.folder / "lake").rglob("deletion_vector*.bin"):
        if source.random.random() < 0.5:
            source.log.append(f"{file} is gone")
            file.unlink()
    yield


@operation()
def the_newest_commit_is_lost(source: OperatedSource) -> Effect:
    folder = _any_folder(source)
    for commit in _commits(folder)[-source.random.randint(1, 2) :]:
        if int(commit.stem) > 0:
            commit.unlink()
    for left in (folder / "_delta_log").glob("*.crc"):
        left.unlink()
    yield


@operation(seen_by="verify")
def a_commit_is_damaged(source: OperatedSource) -> Effect:
    commits = _commits(_any_folder(source))
    commit, how = source.random.choice(commits), source.random.choice(["gone", "cut", "empty"])
    source.log.append(f"{commit.name} is {how}")
    if how == "gone":
        commit.unlink()
    else:
        content = commit.read_bytes()
        commit.write_bytes(content[: len(content) // 2] if how == "cut" else b"")
    yield


@operation()
def an_older_copy_of_a_folder_is_restored(source: OperatedSource) -> Effect:
    folder = _any_folder(source)
    copy = source.folder / f"kept {source.number()}"
    copy_folder(folder, copy)
    source.write(3)
    source.expect("sync")
    copy_folder(copy, folder)
    shutil.rmtree(copy)
    yield


@operation()
def a_folder_is_removed(source: OperatedSource) -> Effect:
    shutil.rmtree(_any_folder(source))
    yield


@operation()
def the_hint_at_a_checkpoint_is_wrong(source: OperatedSource) -> Effect:
    hint = source.random.choice(['{"version": 4000, "size": 10}', "[]", "null", "", '{"version": -1}', "\x00\x00"])
    source.log.append(f"the hint is {hint!r}")
    (_any_folder(source) / "_delta_log" / "_last_checkpoint").write_text(hint)
    yield


@operation()
def checkpoints_are_lost(source: OperatedSource) -> Effect:
    for checkpoint in (_any_folder(source) / "_delta_log").glob("*.checkpoint*.parquet"):
        checkpoint.unlink() if source.random.random() < 0.5 else checkpoint.write_bytes(b"PAR1")
    yield


@operation(seen_by="verify")
def statistics_lie(source: OperatedSource) -> Effect:
    folder = source.path(_table(source))
    lie = source.random.choice(LIES)
    source.log.append(f"statistics in {folder}: {lie.__name__}")
    change_statistics(str(folder), lie, files=source.random.choice([1, 1000]))
    yield


@operation()
def somebody_else_writes_a_table(source: OperatedSource) -> Effect:
    folder = _any_folder(source)
    rows = DeltaTable(str(folder)).to_pyarrow_table() if not _has_vectors(folder) else None
    if rows is None or not rows.num_rows or source.random.random() < 0.3:
        DeltaTable(str(folder)).delete() if rows is not None else shutil.rmtree(folder)
    else:
        mode: Any = source.random.choice(["append", "overwrite"])
        write_deltalake(str(folder), rows.slice(0, 1), mode=mode)
    yield


def _has_vectors(folder: Path) -> bool:
    features = DeltaTable(str(folder)).protocol().reader_features or []
    return bool({"deletionVectors", "columnMapping"} & set(features))


@operation()
def somebody_else_vacuums_a_table(source: OperatedSource) -> Effect:
    folder = _any_folder(source)
    there = {file.name for file in _data_files(folder)}
    for file in folder.glob("*.parquet"):
        if file.name not in there:
            file.unlink()
    yield


@operation()
def a_link_leads_out_of_a_folder(source: OperatedSource) -> Effect:
    outside = source.folder / f"outside {source.number()}"
    outside.mkdir()
    (outside / "part-0.parquet").write_bytes(b"of others")
    os.utime(outside / "part-0.parquet", (0, 0))
    link = _any_folder(source) / "linked"
    link.symlink_to(outside)
    yield
    source.run("maintain")
    assert (outside / "part-0.parquet").read_bytes() == b"of others"
    link.unlink(missing_ok=True)


# metadata ------------------------------------------------------------------------------------------------------------


def _metadata_folder(source: OperatedSource) -> Path:
    folders = sorted(path for path in source.metadata.iterdir() if (path / "_delta_log").is_dir())
    chosen = source.random.choice(folders)
    copy_folder(source.metadata, source.backup)
    source.log.append(f"the metadata table {chosen.name}")
    return chosen


@operation()
def a_metadata_table_is_lost(source: OperatedSource) -> Effect:
    shutil.rmtree(_metadata_folder(source))
    yield


@operation()
def all_metadata_are_lost(source: OperatedSource) -> Effect:
    copy_folder(source.metadata, source.backup)
    shutil.rmtree(source.metadata)
    yield


@operation()
def a_commit_of_metadata_is_lost(source: OperatedSource) -> Effect:
    commits = _commits(_metadata_folder(source))
    how = source.random.choice(["the newest is gone", "the newest is cut"])
    source.log.append(how)
    if how.endswith("gone"):
        commits[-1].unlink()
    else:
        commits[-1].write_bytes(commits[-1].read_bytes()[:20])
    yield


@operation()
def a_file_of_metadata_is_lost(source: OperatedSource) -> Effect:
    if files := _data_files(_metadata_folder(source)):
        source.random.choice(files).unlink()
    yield


@operation()
def metadata_are_restored_from_an_older_copy(source: OperatedSource) -> Effect:
    copy_folder(source.metadata, source.backup)
    source.write(3)
    source.expect("sync")
    chosen = source.random.choice(["all", *sorted(path.name for path in source.backup.iterdir() if path.is_dir())])
    source.log.append(f"an older copy of {chosen}")
    if chosen == "all":
        copy_folder(source.backup, source.metadata)
    else:
        copy_folder(source.backup / chosen, source.metadata / chosen)
    yield


@operation()
def staged_files_are_lost(source: OperatedSource) -> Effect:
    for folder in (source.folder / "lake").rglob("_staging"):
        shutil.rmtree(folder)
    yield


@operation()
def a_run_died_on_another_machine(source: OperatedSource) -> Effect:
    """It died a while ago: its lease stays for another ten seconds, or until somebody takes it."""
    from binlake import config as configuration, pipeline
    from binlake.store.metadata import now_us

    holder = "elsewhere boot 1 namespace 1 pid 1 started 1"
    taken: dict[str, str | int | None] = {
        "token": "of another",
        "holder": holder,
        "since_us": now_us(),
        "expires_us": now_us() + 10_000_000,
    }
    metadata = pipeline.metadata_of(configuration.load(source.yaml))
    metadata.swap("lease", "true", taken)
    yield
