"""S3 puts a conditional write off (HTTP 409): it is tried again, and nothing of others is taken for ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from binlake.retries import Retries, steady
from binlake.storage import files, stores
from binlake.store.metadata import Metadata
from fake_s3 import FakeS3

PATH = "s3a://lake/t/_delta_log/00000000000000000001.json"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    monkeypatch.setattr(stores, "CONFLICTS", Retries(steady(0.001), attempts=20))
    with FakeS3() as running:
        account = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        for name, value in {**running.environment, **account}.items():
            monkeypatch.setenv(name, value)
        yield running


def test_a_commit_is_written_once_the_other_write_is_over(store: FakeS3) -> None:
    store.conflicts = 2
    files.write_if_absent(PATH, "ours")
    assert (store.objects.popitem()[1], store.conflicts) == (b"ours", 0)


def test_of_two_commits_that_of_others_stands(store: FakeS3) -> None:
    store.conflicts = 1
    store.before_conflict = lambda name: store.objects.update({name: b"theirs"})
    with pytest.raises(FileExistsError):
        files.write_if_absent(PATH, "ours")
    assert list(store.objects.values()) == [b"theirs"]


def test_a_store_that_puts_off_for_ever_is_told(store: FakeS3) -> None:
    store.conflicts = 10_000
    with pytest.raises(OSError, match="again and again"):
        files.write_if_absent(PATH, "ours")
    assert not store.objects


def test_a_metadata_table_is_made_though_its_first_commit_is_put_off(store: FakeS3) -> None:
    """Further commits deltalake tries again by itself."""
    store.conflicts = 2
    assert Metadata("s3a://lake/s/_binlake").table("runs").version() == 0
    assert (list(store.objects), store.conflicts) == ([f"s/_binlake/runs/_delta_log/{0:020}.json"], 0)
