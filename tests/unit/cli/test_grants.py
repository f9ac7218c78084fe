"""``binlake grants`` prints the files in sql/ for an account and the databases of a YAML."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from binlake.cli import command_line

ROOT = Path(__file__).parents[3]
YAML = """
source: {name: shop, connection: shop, server_id: 4001}
tables: {include: [INCLUDE]}
lake: {path: ./lake}
"""


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert command_line.run(["grants", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_the_file_is_printed_for_an_account(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    text = (ROOT / "sql" / f"grants_{kind}.sql").read_text()
    assert printed(capsys, "--server", kind, "--for", "binlake") == text
    of_a_host = printed(capsys, "--server", kind, "--for", "mirrors@10.0.0.%")
    assert of_a_host == text.replace("'binlake'@'%'", "'mirrors'@'10.0.0.%'")
    for quote in "'\"`":
        account = f"{quote}mirrors{quote}@{quote}10.0.0.%{quote}"
        assert printed(capsys, "--server", kind, "--for", account) == of_a_host


@pytest.mark.parametrize(
    ("include", "databases"),
    [
        ("shop.*, shop.orders", ["`shop`.*"]),
        ("my_shop.*, 'crm?.*'", [r"`my\_shop`.*", "`crm_`.*"]),
        ("'shop_*.orders'", [r"`shop\_%`.*"]),
        ("shop.*, '*.orders'", ["*.*"]),
        ("'shop[12].*'", ["*.*"]),
    ],
)
def test_databases_are_those_of_the_yaml(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, include: str, databases: list[str]
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(YAML.replace("INCLUDE", include))
    said = printed(capsys, "--server", "mysql", "--for", "binlake", "--config", str(file))
    assert granted_on(said) == databases


def granted_on(said: str) -> list[str]:
    pattern = r"^GRANT SELECT, LOCK TABLES ON (.*) TO 'binlake'@'%';$"
    return re.findall(pattern, said, re.MULTILINE)


def test_databases_are_named_before_there_is_a_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, "--server", "mysql", "--for", "binlake", "--databases", "shop", "my_shop", "a.b", "shop")
    assert granted_on(said) == ["`shop`.*", r"`my\_shop`.*", "`a.b`.*"]


@pytest.mark.parametrize("account", ["a'b", "`a", "a\\", "'a`"])
def test_what_is_no_account_is_refused(capsys: pytest.CaptureFixture[str], account: str) -> None:
    assert command_line.run(["grants", "--server", "mysql", "--for", account]) == 2
    assert "is no account" in capsys.readouterr().err
