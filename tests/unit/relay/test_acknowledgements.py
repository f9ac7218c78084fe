"""What clients acknowledged survives a kill, in a file that is cleared once the state has it."""

from __future__ import annotations

from pathlib import Path

from binlake.relay.core import Acknowledgements


def test_the_newest_count_of_each_client_is_read_until_it_is_cleared(tmp_path: Path) -> None:
    path = tmp_path / "relay.json.acknowledged"
    noted = Acknowledgements(str(path))
    assert noted.read() == {}
    for client, count in ((1, 3), (2, 7), (1, 12)):
        noted.note(client, count)
    assert Acknowledgements(str(path)).read() == {1: 12, 2: 7}
    Acknowledgements(str(path)).clear()  # by a process that has noted nothing yet
    assert noted.read() == {}
    noted.note(1, 13)
    assert noted.read() == {1: 13}


def test_a_line_that_was_cut_off_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "relay.json.acknowledged"
    path.write_text("1 12 \n1 13")
    assert Acknowledgements(str(path)).read() == {1: 12}


def test_nothing_is_appended_in_a_store(tmp_path: Path) -> None:
    noted = Acknowledgements("s3://bucket/relay.json.acknowledged")
    noted.note(1, 3)
    noted.clear()
    assert noted.read() == {}
