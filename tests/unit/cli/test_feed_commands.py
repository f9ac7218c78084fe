"""What ``binlake feed`` says of a YAML without feeds, and of a feed that isn't in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake.cli import command_line

SOURCE = "source: {name: shop, connection: mine, server_id: 1}\ntables: {include: ['*.*']}\nlake: {path: ./lake}\n"
FEEDS = "feeds:\n- {name: out, format: text, sink: 'file:///data/out'}\n"


@pytest.mark.parametrize(
    ("feeds", "command", "said"),
    [
        ("", ["feed"], "shop.yaml has no feeds\n  → write a section feeds into it; binlake help feeds shows how"),
        ("", ["feed", "--feed", "in"], "there is no feed 'in' in"),
        (FEEDS, ["feed", "--feed", "in"], "there is no feed 'in' in"),
        (FEEDS, ["feed", "--feed", "in"], "shop.yaml; there are: out\n  → add it under feeds: in the YAML"),
    ],
)
def test_a_feed_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], feeds: str, command: list[str], said: str
) -> None:
    yaml = tmp_path / "shop.yaml"
    yaml.write_text(SOURCE + feeds)
    assert command_line.run([*command, "--config", str(yaml)]) == 2
    assert said in capsys.readouterr().err
