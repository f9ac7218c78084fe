"""Whole files through a server and the engine: fed in chunks, synced, judged table by table, failures reduced.

``python tests/strangers/run.py KIND MINUTES [SEED [sampled]]`` goes through the suites in an order of the seed; a
sample leaves those of rare engines and settings out.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

from mirror import MERGES, Merge, Mirror  # noqa: E402
from servers import KINDS, Kind, Server, Setting  # noqa: E402
from strangers.feeding import Fed, Feeder, ServerGone, end_prepared  # noqa: E402
from strangers.lakes import SNAPSHOT, Lakes, snapshot, verdicts_of  # noqa: E402
from strangers.suites import Suite, suites  # noqa: E402
from strangers.variables import restore, variables  # noqa: E402
from strangers.verdict import FAILURES, Verdict, tables_of  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLED = ("main", "rpl", "json", "gcol", "innodb", "gis")
WHOLE = (*SAMPLED, "binlog", "engines", "funcs_1", "parts", "innodb_gis", "innodb_zip", "innodb_fts", "jp",
         "collations", "vcol", "versioning", "period", "compat", "sql_sequence", "binlog_gtid", "binlog_nogtid",
         "rpl_gtid", "rpl_nogtid", "sys_vars", "stress", "maria", "archive", "federated", "encryption")  # fmt: skip
TABLES_AT_ONCE = 40
"""A chunk is synced when it has about so many."""
IN_HALVES = 0.3
"""The share of the files whose tables are snapshotted in the middle."""
LONGEST_NAME = 40
SERVER_SECONDS = 900.0
"""How long one server is used, and one set of settings."""
MERGES_OF_SAMPLE: tuple[Merge, ...] = ("rewrite", "mark")
"""Spark takes minutes for a chunk's tables of a few rows each."""
REDUCING_SECONDS, REDUCING_SECONDS_OF_SAMPLE = 300.0, 120.0
BASE: dict[str, Setting] = {
    "lock_wait_timeout": 2,
    "innodb_lock_wait_timeout": 2,
    "event_scheduler": False,
}


def settings(kind: Kind, chance: random.Random) -> dict[str, Setting]:
    """What a server of this run is set to besides the tests' own settings: each by its own throw."""
    chosen: dict[str, Setting] = dict(BASE)

    def sometimes(share: float, **more: Setting) -> None:
        if chance.random() < share:
            chosen.update(more)

    sometimes(0.5, sql_mode="NO_ENGINE_SUBSTITUTION")
    sometimes(0.3, explicit_defaults_for_timestamp=False)
    sometimes(0.5, character_set_server=chance.choice(["latin1", "ucs2", "sjis"]))
    sometimes(0.3, default_time_zone="+05:30")
    sometimes(0.3, **{"binlog_transaction_compression" if kind == "mysql" else "log_bin_compress": True})
    sometimes(0.2, lower_case_table_names=1)
    if kind == "mysql":
        sometimes(0.3, gtid_mode=False, enforce_gtid_consistency=False)
    return chosen


@dataclass
class FileRun:
    """One file of a chunk. middle: how many of its statements were fed before its tables were snapshotted."""

    name: str
    feeder: Feeder
    statements: Iterator[Fed]
    middle: int | None = None

    @property
    def script(self) -> list[Fed]:
        """What was fed, with the snapshot where it was."""
        fed = list(self.feeder.fed)
        if self.middle is not None:
            fed.insert(self.middle, SNAPSHOT)
        return fed


@dataclass
class Chunk:
    runs: list[FileRun] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def run_of(self, database: str) -> FileRun | None:
        lower = database.lower()
        return next((run for run in self.runs if lower in map(str.lower, run.feeder.databases)), None)


class Run:
    """Files of one server's suite, or of the other's (both servers take most of either), in an order of the seed."""

    def __init__(
        self,
        server: Server,
        spark: SparkSession,
        folder: Path,
        source: Suite,
        files: Sequence[Path],
        seed: int,
        merges: tuple[Merge, ...],
    ):
        self.server, self.source = server, source
        self.chance = random.Random(seed)
        self.files = sorted(files)
        self.chance.shuffle(self.files)
        self.lakes = Lakes(server, spark, folder, self.chance, merges)

    def until(self, end: float) -> Iterator[Chunk]:
        """Chunk by chunk, until a moment of ``time.monotonic()`` or the last file."""
        paths = iter(self.files)
        while time.monotonic() < end and (chunk := self._chunk(paths, end)).runs:
            yield chunk

    def _chunk(self, paths: Iterator[Path], end: float) -> Chunk:
        mirror = self.lakes.fresh(snapshots=True)
        as_it_was = variables(self.server)
        chunk = Chunk()
        halves: list[FileRun] = []
        for path in paths:
            run = self._begun(path)
            chunk.runs.append(run)
            if self.chance.random() < IN_HALVES:
                halves.append(run)
                self._feed(run, self.chance.randint(3, 60))
                run.feeder.connections.rest()
                end_prepared(self.server)
                run.middle = len(run.feeder.fed)
            else:
                self._feed(run)
                restore(self.server, as_it_was)
            if len(tables_of(self.server)) > TABLES_AT_ONCE or time.monotonic() > end:
                break
        self._snapshot(mirror, halves)
        for run in halves:
            self._feed(run)
        restore(self.server, as_it_was)
        chunk.verdicts = verdicts_of(mirror)
        return chunk

    def _begun(self, path: Path) -> FileRun:
        name = self.source.name(path)
        database = re.sub(r"\W+", "_", name)[:LONGEST_NAME].lower()
        feeder = Feeder(self.server, self.source, path, database, self.chance.randrange(2**32))
        return FileRun(name, feeder, feeder.statements())

    def _feed(self, run: FileRun, most: int | None = None) -> None:
        """To the file's end, or some statements of it."""
        try:
            for _ in islice(run.statements, most):
                pass
        except ServerGone as gone:
            print(f"{run.name}: the server ended at: {gone}")
            self.server.kill()
            self.server.start()
            most = None
        if most is None:
            run.feeder.close()

    def _snapshot(self, mirror: Mirror, halves: list[FileRun]) -> None:
        there = {name.database for name in tables_of(self.server)}
        if chosen := sorted(there & {database for run in halves for database in run.feeder.databases}):
            snapshot(mirror, chosen)

    def failures(self, chunk: Chunk, seconds: float) -> Iterator[str]:
        """Each kind of failure once for each file, with the smallest script that does it; all within seconds."""
        seen: set[tuple[str, str]] = set()
        end = time.monotonic() + seconds
        for verdict in chunk.verdicts:
            if verdict.outcome not in FAILURES:
                continue
            suspects = [run] if (run := chunk.run_of(verdict.database)) else chunk.runs
            for suspect in suspects:
                if (suspect.name, verdict.kind) in seen:
                    continue
                left = end - time.monotonic()
                script = self.lakes.smallest(verdict, suspect.script, left) if left > 0 else []
                if script or len(suspects) == 1:
                    seen.add((suspect.name, verdict.kind))
                    yield _shown(suspect.name, verdict, script)
                    break
            else:
                yield _shown(", ".join(run.name for run in suspects), verdict, [])


def _shown(name: str, verdict: Verdict, script: Sequence[Fed]) -> str:
    lines = [f"{name}: {verdict.name} {verdict.outcome}: {verdict.reason}"]
    lines += [
        f"  {fed.connection}: {fed.text};" + (f"  -- fails: {fed.failed}" if fed.failed else "") for fed in script
    ]
    return "\n".join(
        lines if script else [*lines, "  (not reduced: its statements alone don't do it, or time was over)"]
    )


def standing(verdicts: Iterable[Verdict]) -> list[str]:
    """What is stopped or was snapshotted again, a line for each kind of reason, the most frequent first."""
    kinds: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.outcome in ("stopped", "snapshot asked", "unreadable"):
            kinds[verdict.kind].append(verdict)
    ordered = sorted(kinds.values(), key=len, reverse=True)
    return [f"{len(failures)} {failures[0].outcome}: {failures[0].name}: {failures[0].reason}" for failures in ordered]


@contextmanager
def prepared(kind: Kind, spark: SparkSession, seed: int, names: Sequence[str]) -> Iterator[Run]:
    """A server set by the seed, and a run over the suites named: most often this server's own."""
    chance = random.Random(seed)
    chosen = settings(kind, chance)
    source = chance.choice([suite for suite in suites() for _ in range(3 if suite.kind == kind else 1)])
    print(f"{kind}: seed {seed}, {source.kind}'s suites, settings {chosen}", flush=True)
    with Server(kind, **chosen) as server, tempfile.TemporaryDirectory(prefix="binlake-strangers-") as folder:
        merges = MERGES_OF_SAMPLE if names == SAMPLED else MERGES
        yield Run(server, spark, Path(folder), source, source.files(*names), seed, merges)


def main(kind: Kind, minutes: float, seed: int, names: Sequence[str] = WHOLE) -> bool:
    """Prints as it goes; whether nothing failed."""
    from binlake.spark import session

    made = {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    spark = session.build("strangers", master="local[2]", short_lived=names == SAMPLED, more=made)
    verdicts: list[Verdict] = []
    failures = 0
    end = time.monotonic() + minutes * 60
    while time.monotonic() < end:
        with prepared(kind, spark, seed, names) as run:
            for number, chunk in enumerate(run.until(min(end, time.monotonic() + SERVER_SECONDS))):
                verdicts += chunk.verdicts
                counts = Counter(verdict.outcome for verdict in chunk.verdicts)
                print(f"  chunk {number}: {len(chunk.runs)} files; {dict(counts)}", flush=True)
                for failure in run.failures(chunk, REDUCING_SECONDS if names == WHOLE else REDUCING_SECONDS_OF_SAMPLE):
                    failures += 1
                    print(failure, flush=True)
        seed += 1
    print(*standing(verdicts), sep="\n")
    print(f"{kind}: {dict(Counter(verdict.outcome for verdict in verdicts))}", flush=True)
    return not failures


if __name__ == "__main__":
    wanted = KINDS if sys.argv[1] == "both" else [sys.argv[1]]
    first = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(10**6)
    chosen = SAMPLED if "sampled" in sys.argv[4:] else WHOLE
    good = [main(kind, float(sys.argv[2]), first, chosen) for kind in wanted]  # type: ignore[arg-type]
    sys.exit(0 if all(good) else 1)
