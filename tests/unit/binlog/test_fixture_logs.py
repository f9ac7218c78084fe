"""Real logs of both servers under many settings (tests/binlogs): the rows are what the servers said, or the table stops
with the stated remedy."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "binlogs"))

import logs

from binlake.binlog.border import Mutations, SliceSummary, Stopped
from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.reader import Emitted, read
from binlake.binlog.transport import FileTransport
from binlake.gtid import GtidPosition, GtidSet
from binlake.position import Slice
from binlake.schema.invalid import KEEP_DATES
from binlake.staging.staged_files import stage_slice


def decoded(log: logs.Log, start: int = 4, stop: int = 0) -> list[Emitted]:
    end = stop or log.part.stop
    part = Slice(log.part.file, start, end, 0, end == log.part.stop)
    wanted = lambda database, table: f"{database}.{table}" == log.expected["table"]  # noqa: E731
    return list(read(FileTransport(log.path), part, wanted, invalid=KEEP_DATES))


@pytest.fixture(params=logs.NAMES)
def log(request: pytest.FixtureRequest) -> logs.Log:
    return logs.log(request.param)


def test_there_are_logs_of_both_servers() -> None:
    assert len([name for name in logs.NAMES if name.startswith("mysql-")]) >= 12
    assert len([name for name in logs.NAMES if name.startswith("mariadb-")]) >= 11


def test_mutations_are_what_the_server_said(log: logs.Log) -> None:
    emitted = decoded(log)
    mutations = logs.mutations(emitted, log.expected["columns"])
    stops = [item for item in emitted if isinstance(item, Stopped)]
    if log.expected["remedy"]:
        assert {(str(stop.name), log.expected["remedy"] in stop.remedy) for stop in stops} == {
            (log.expected["table"], True)
        }
        said = iter(log.expected["mutations"])
        assert all(mutation in said for mutation in mutations), "in this order, with some left out"
        assert len(mutations) < len(log.expected["mutations"])
    else:
        assert not stops
        assert mutations == log.expected["mutations"]


def test_the_gtids_of_a_slice_are_those_of_its_transactions(log: logs.Log) -> None:
    boundaries = list(transaction_boundaries(FileTransport(log.path), log.part))
    middle = boundaries[len(boundaries) // 2].start_offset
    for start, stop in ((4, log.part.stop), (4, middle), (middle, log.part.stop)):
        (executed,) = [item for item in decoded(log, start, stop) if isinstance(item, SliceSummary)]
        inside = [boundary.gtid for boundary in boundaries if start <= boundary.start_offset < stop and boundary.gtid]
        empty = GtidPosition() if log.path.name.startswith("mariadb") else GtidSet()
        assert executed.gtid_set == str(empty.adding(inside))
        uuids = {gtid.partition(":")[0] for gtid in inside} or {""}
        assert executed.servers == (tuple((uuid, 1) for uuid in uuids) if isinstance(empty, GtidSet) else ())


def in_set(gtid: str, executed: str) -> bool:
    """``uuid:1-5:tag:1-3`` of MySQL, ``0-1-12`` of MariaDB."""
    if ":" not in gtid:
        domain, server, number = gtid.split("-")
        return any(gtid_.split("-")[:2] == [domain, server] and int(number) <= int(gtid_.split("-")[2])
                   for gtid_ in executed.split(","))  # fmt: skip
    uuid, *rest = gtid.split(":")
    tag, number = rest if len(rest) == 2 else ["", *rest]
    for group in executed.replace("\n", "").split(","):
        owner, *parts = group.strip().split(":")
        current = ""
        for part in parts:
            if not re.fullmatch(r"[0-9-]+", part):
                current = part
            elif owner == uuid and current == tag:
                low, _, high = part.partition("-")
                if int(low) <= int(number) <= int(high or low):
                    return True
    return False


def test_gtids_and_commit_times_are_the_servers(log: logs.Log) -> None:
    begun, ended = log.expected["committed_us"]
    rows = [row for item in decoded(log) if isinstance(item, Mutations) for row in item.batch.to_pylist()]
    for row in rows:
        if log.name == "mysql-anonymous":
            assert row["gtid"] is None
        else:
            assert in_set(row["gtid"], log.expected["gtids"])
            assert (":fixture:" in row["gtid"]) == (log.name == "mysql-tagged")
        # MariaDB's log has whole seconds
        assert begun - 1_000_000 <= row["committed_us"] <= ended


def rows_of(emitted: list[Emitted]) -> list[dict[str, object]]:
    return [row for item in emitted if isinstance(item, Mutations) for row in item.batch.to_pylist()]


FOLLOWED = [name for name in logs.NAMES if not logs.log(name).expected["remedy"]]
"""A table that stops begins again in the next slice."""


@pytest.mark.parametrize("name", FOLLOWED)
def test_any_split_between_transactions_gives_the_same_mutations(name: str) -> None:
    log = logs.log(name)
    everything = rows_of(decoded(log))
    limits = list(transaction_boundaries(FileTransport(log.path), log.part))
    cuts = sorted({4, *(limit.end_offset for limit in limits), log.part.stop})
    assert len(cuts) > 5
    pieces = {span: rows_of(decoded(log, *span)) for span in itertools.pairwise(cuts)}
    assert [row for piece in pieces.values() for row in piece] == everything
    for cut in cuts[1:-1]:
        assert rows_of(decoded(log, 4, cut)) + rows_of(decoded(log, cut, log.part.stop)) == everything
    for step in (2, 3):
        chosen = [*cuts[::step], *([] if cuts[-1] in cuts[::step] else [cuts[-1]])]
        assert [row for span in itertools.pairwise(chosen) for row in rows_of(decoded(log, *span))] == everything


def test_a_folder_read_twice_is_staged_alike(tmp_path: Path) -> None:
    contents: list[list[tuple[str, int, bytes]]] = []
    for attempt in ("first", "second"):
        for number, name in enumerate(logs.NAMES):
            log = logs.log(name)
            items = read(FileTransport(logs.HERE), log.part, lambda database, table: True, invalid=KEEP_DATES)
            stage_slice(items, log.part, number, str(tmp_path / attempt), KEEP_DATES)
        files = sorted((tmp_path / attempt).rglob("*.parquet"))
        contents.append([(str(f.relative_to(tmp_path / attempt)), f.stat().st_size, f.read_bytes()) for f in files])
    assert len(contents[0]) >= len(logs.NAMES)
    assert contents[0] == contents[1]
