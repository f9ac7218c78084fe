"""Feeds whose names look alike don't take each other's place in Kafka."""

from __future__ import annotations

from binlake.feeds.sinks.kafka import transactional_id


def test_each_feed_of_each_source_has_a_transactional_id_of_its_own() -> None:
    names = ("a", "b", "a-b", "b-c", "a-b-c", "a-", "-b", "a--b", "c")
    owners = [f"{source}/{feed}" for source in names for feed in names]
    assert len({transactional_id(owner) for owner in owners}) == len(owners)
    assert transactional_id("shop/out-1") == "binlake-shop-out-1", "as it was, so that an open transaction is ended"
