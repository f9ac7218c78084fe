"""Whatever a server's own test suite does, the lake equals the server, or the table says why it stands still.

A sample of another seed each time: ``BINLAKE_STRANGERS_SEED`` repeats one, ``BINLAKE_STRANGERS_SECONDS`` a server
(default 180) says how far. What stopped or was snapshotted anew is printed.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from servers import KINDS, Kind
from strangers.run import SAMPLED, prepared, standing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = float(os.environ.get("BINLAKE_STRANGERS_SECONDS", "180"))
SEED = int(os.environ.get("BINLAKE_STRANGERS_SEED") or random.SystemRandom().randrange(10**6))
REDUCING_SECONDS = 120


@pytest.mark.timeout(SECONDS + 900)
@pytest.mark.parametrize("kind", KINDS)
def test_the_lake_equals_the_server_or_says_why_it_stands_still(kind: Kind, spark: SparkSession) -> None:
    failures: list[str] = []
    verdicts = []
    with prepared(kind, spark, SEED, SAMPLED) as run:
        for chunk in run.until(time.monotonic() + SECONDS):
            verdicts += chunk.verdicts
            failures += run.failures(chunk, REDUCING_SECONDS)
    counts = Counter(verdict.outcome for verdict in verdicts)
    print(dict(counts), *standing(verdicts), sep="\n")
    assert not failures, "\n\n".join([f"BINLAKE_STRANGERS_SEED={SEED}", *failures])
    assert counts["equal"]
