"""An Iceberg REST catalog of Iceberg's own handlers follows a table under random changes, by runs that are killed at
requests drawn at random: each snapshot there reads as the Delta version does. Seeds take formats 3 and 2 in turn.

    python tests/soak/iceberg_rest.py [--seed 1] [--changes 600] [--merged] [--s3]

With --merged the table shows others, as random_merged_iceberg.py says; with --s3 it is in an S3 store.
docker/local/setup.sh iceberg_rest brings the catalog, store the store.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

from pyiceberg.catalog import load_catalog  # noqa: E402
from random_iceberg import RandomTable  # noqa: E402
from random_merged_iceberg import RandomShards  # noqa: E402

from binlake.config.catalogs_config import RestCatalogConfig  # noqa: E402
from binlake.iceberg import published_table, table_metadata  # noqa: E402
from binlake.iceberg.publication import publish  # noqa: E402
from binlake.lake.duckdb_views import load_extension  # noqa: E402
from binlake.registered.rest_catalog import RestCatalog  # noqa: E402
from binlake.registered.rest_client import RestClient  # noqa: E402
from binlake.registered.sqlite_catalog import CatalogName  # noqa: E402
from iceberg_readers import by_delta, duckdb_connection, newest_by_duckdb, ordered  # noqa: E402
from iceberg_rest_server import TOKEN, iceberg_rest_server  # noqa: E402
from object_store import ObjectStore  # noqa: E402

CHANGES_OF_A_SEED = 120
FILES: dict[str, str] = {}
"""How pyiceberg reaches the tables' files."""


class Killed(BaseException):
    """The process ends here."""


class FragileClient(RestClient):
    """Dies at a request that is drawn at random, before or behind it."""

    drawn = random.Random(0)
    share = 0.0

    def _opened(self, request: urllib.request.Request) -> dict[str, Any]:
        when = self.drawn.random()
        if when < self.share / 2:
            raise Killed
        answer = super()._opened(request)
        if when < self.share:
            raise Killed
        return answer


class Walk:
    """A random table, and its name in the catalog."""

    def __init__(self, folder: str, seed: int, server: str) -> None:
        self.seed, self.version, self.drawn, self.server = seed, 2 + seed % 2, random.Random(seed), server
        self.table = self.make(
            f"{folder}/t_{seed}" if "://" in folder else f"{folder}/t {seed}"
        )  # deltalake 1.6 reads no other names in S3
        self.entry = RestCatalogConfig(kind="rest", name="soak", uri=server, connection="soak")
        self.root, self.name = folder, CatalogName(f"ns {seed}", "t/ä")
        self.killed = self.compared = 0

    def make(self, path: str) -> Any:
        return RandomTable(path, self.drawn)

    @property
    def path(self) -> str:
        return str(self.table.table.path)

    def publish(self) -> None:
        publish(self.path, self.drawn.choice([None, f"batch-{self.table.table.version}"]), self.version)

    def follow(self) -> None:
        """Bring the catalog to what is published, by as many runs as it takes."""
        while True:
            try:
                assert RestCatalog(self.entry, self.root, 60).put(self.name, self.path) == ""
                return
            except Killed:
                self.killed += 1
                if self.drawn.random() < 0.3:
                    self.step()

    def step(self) -> None:
        """Change the table, and publish it."""
        for _ in range(self.drawn.randint(1, 4)):
            self.table.change()
        if self.drawn.random() < 0.05:
            self.version = 5 - self.version
        if self.drawn.random() < 0.2:
            published_table.forget(self.path)
        self.publish()

    def compare(self) -> None:
        catalog = load_catalog("soak", type="rest", uri=self.server, token=TOKEN, **FILES)
        loaded, metadata = catalog.load_table((self.name.namespace, self.name.table)), table_metadata.newest(self.path)
        assert metadata is not None
        theirs = [each.snapshot_id for each in loaded.metadata.snapshots]
        assert sorted(theirs) == [each["snapshot-id"] for each in metadata.snapshots]
        refs = {name: ref["snapshot-id"] for name, ref in metadata.content["refs"].items()}
        assert {name: ref.snapshot_id for name, ref in loaded.metadata.refs.items()} == refs
        for number in self.drawn.sample(theirs, min(len(theirs), 5)):
            wanted = by_delta(self.path, number - 1)
            assert ordered(loaded.scan(snapshot_id=number).to_arrow()) == wanted, f"seed {self.seed}, {number}"
        wanted = by_delta(self.path)
        assert ordered(loaded.scan().to_arrow()) == wanted, f"seed {self.seed}"
        assert newest_by_duckdb(loaded.metadata_location.removeprefix("file://")) == wanted, f"seed {self.seed}"
        self.compared += 1

    def run(self) -> None:
        for number in range(CHANGES_OF_A_SEED):
            self.step()
            if self.drawn.random() < 0.7:
                self.follow()
                if number % 5 == 0:
                    self.compare()
        self.follow()
        self.compare()


class MergedWalk(Walk):
    """A table that shows random ones, and its name in the catalog."""

    def make(self, path: str) -> Any:
        return RandomShards(path, self.drawn)

    @property
    def path(self) -> str:
        return str(self.table.merged.path)

    def publish(self) -> None:
        self.table.merged.publish(self.version, self.drawn.choice([None, f"batch-{self.drawn.random()}"]))


@contextmanager
def place(folder: Path, *, in_s3: bool) -> Iterator[tuple[str, dict[str, str] | None]]:
    """Where tables are, and the variables of their store."""
    if not in_s3:
        yield str(folder), None
        return
    (folder / "store").mkdir()
    with ObjectStore(folder / "store") as store:
        os.environ.update(store.environment)
        url, account = store.environment["AWS_ENDPOINT_URL"], store.environment["AWS_ACCESS_KEY_ID"]
        FILES.update({"s3.endpoint": url, "s3.access-key-id": account, "s3.secret-access-key": store.secret})
        connection = duckdb_connection()
        load_extension(connection, "httpfs")
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{account}', SECRET '{store.secret}', URL_STYLE 'path', USE_SSL false,"
            f" ENDPOINT '{url.partition('//')[2]}', REGION '{store.environment['AWS_REGION']}')"
        )
        yield "s3a://lake/mirrors", store.environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--changes", type=int, default=600)
    parser.add_argument("--merged", action="store_true")
    parser.add_argument("--s3", action="store_true")
    asked = parser.parse_args()
    os.environ["AIRFLOW_CONN_SOAK"] = json.dumps({"extra": {"token": TOKEN}})
    FragileClient.share = 0.05
    sys.modules[RestCatalog.__module__].RestClient = FragileClient  # type: ignore[attr-defined]
    with (
        tempfile.TemporaryDirectory() as folder,
        place(Path(folder), in_s3=asked.s3) as (root, store),
        iceberg_rest_server(Path(folder) / "server", store) as server,
    ):
        done, seed = 0, asked.seed
        while done < asked.changes:
            FragileClient.drawn = random.Random(seed)
            walk = (MergedWalk if asked.merged else Walk)(root, seed, server)
            walk.run()
            done, seed = done + CHANGES_OF_A_SEED, seed + 1
            print(f"seed {seed - 1}: {walk.compared} comparisons, {walk.killed} runs killed", flush=True)


if __name__ == "__main__":
    main()
