"""Histories of tables under random transactions: ``random_history.py KIND EVENTS [MINUTES [SEED]]``.

Rows of few keys change, move, go and come back, with TRUNCATE and ALTER TABLE among them, snapshots, syncs that are cut
off at their commits, others that are killed as processes, and upkeep. Then the history must be the one that an oracle
plays from the server's log, row by row. EVENTS is how many events of rows the log gets, at least, unless MINUTES are
over before; a tenth of both goes to a history with a version for each mutation.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

from binlake.spark import session  # noqa: E402
from history_played import play  # noqa: E402
from mirror import Mirror  # noqa: E402
from servers import Kind, Server  # noqa: E402

OF_A_ROUND = 4000
"""Events."""
FEWEST = 3
"""Rounds."""
KILLED, UPKEEP = 4, 10
"""Every how many rounds a sync is killed, and maintain runs."""


def main(kind: Kind, events: int, minutes: float, seed: int) -> None:
    print(f"{kind}: {events:,} events, seed {seed}", flush=True)
    spark = session.build("soak", master="local[2]")
    for share, per in ((1, "transaction"), (10, "mutation")):
        with Server(kind) as server, tempfile.TemporaryDirectory(prefix="binlake-soak-") as lake:
            server.execute("CREATE DATABASE d")
            mirror = Mirror(server, "d", Path(lake), spark)
            _play(mirror, events // share, minutes / share, seed, per)
    spark.stop()


def _play(mirror: Mirror, events: int, minutes: float, seed: int, per: str) -> None:
    began, chance = time.monotonic(), random.Random(seed + 1)
    rounds = max(events // OF_A_ROUND, FEWEST)

    def between(number: int) -> bool:
        print(f"  round {number + 1} of {rounds}, {time.monotonic() - began:,.0f} s", flush=True)
        if number % KILLED == 1:
            _kill_a_sync(mirror, chance)
        if number % UPKEEP == UPKEEP - 1:
            mirror.sync()
            mirror.maintain()
        return number < FEWEST or time.monotonic() - began < 60 * minutes

    oracle = play(mirror, seed, events, rounds, keys=200, ddl_share=0.004, between=between, per=per)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        f"{mirror.server.kind}, per {per}: {oracle.events:,} events with {oracle.mutations:,} mutations and"
        f" {oracle.statements:,} statements made {len(oracle.player.versions()):,} versions, those of the oracle;"
        f" the server's rows at {len(oracle.at):,} boundaries; {time.monotonic() - began:,.0f} s,"
        f" {used.ru_utime + used.ru_stime:,.0f} CPU s by now",
        flush=True,
    )


def _kill_a_sync(mirror: Mirror, chance: random.Random) -> None:
    command = [str(Path(sys.executable).with_name("binlake")), "sync", "--config", str(mirror.write_yaml())]
    process = subprocess.Popen(
        command,
        env={**os.environ, "AIRFLOW_CONN_TESTS": mirror.server.uri()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(chance.uniform(1, 8))
    process.send_signal(signal.SIGKILL)  # it may be done by then
    process.wait()


if __name__ == "__main__":
    minutes = float(sys.argv[3]) if len(sys.argv) > 3 else 600
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.randint(1, 10**6)
    main(sys.argv[1], int(sys.argv[2]), minutes, seed)  # type: ignore[arg-type]
