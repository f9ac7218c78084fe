"""``binlake check``: YAMLs of a repository, tried without a server."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from binlake.cli import command_line

ROOT = Path(__file__).parents[3]
SOURCE = """\
source: {{name: {name}, connection: nowhere, server_id: 4001}}
tables: {{include: ['*.*']}}
lake: {{path: lake}}
"""
FEEDS = """\
feeds:
  - {{name: changes, sources: [{source}], format: text, sink: "file:///tmp/out", where: "{where}"}}
"""
Check = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """The exit code, the lines, and what stands on standard error. No server can be reached."""

    def refuse(*_: object) -> None:
        raise AssertionError("something was connected with")

    monkeypatch.setattr(socket.socket, "connect", refuse)

    def run(*paths: Path | str) -> tuple[int, list[str], str]:
        code = command_line.run(["check", *map(str, paths)])
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sources and a file of feeds over one of them."""
    for name in ("shop", "bank"):
        (tmp_path / f"{name}.yaml").write_text(SOURCE.format(name=name))
    (tmp_path / "feeds.yaml").write_text(FEEDS.format(source="shop.yaml", where="table = 'orders'"))
    (tmp_path / "notes.txt").write_text("a: [")
    return tmp_path


def test_each_file_of_a_folder_has_a_line(check: Check, folder: Path) -> None:
    lines = [
        f"ok    {folder}/bank.yaml: source bank",
        f"ok    {folder}/feeds.yaml: 1 feed",
        f"ok    {folder}/shop.yaml: source shop",
    ]
    assert check(folder) == (0, lines, "")
    assert check(folder / "shop.yaml", folder, folder / "bank.yaml")[1] == [lines[2], lines[0], lines[1]], "once each"


def test_the_sources_of_this_repository(check: Check) -> None:
    code, lines, _ = check(ROOT / "dags" / "pipelines")
    assert code == 0
    assert lines


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no settings"),
        ("a: [", r"line 1, column 5: this isn't YAML as it should be: .*"),
        (
            SOURCE.format(name="new") + "tabels: {}\nschedule: never\n",
            r"line 5: schedule: 'never' is not a cron expression; .*; line 4: tabels: there is no key 'tabels'; .*",
        ),
        (
            SOURCE.format(name="new") + FEEDS.format(source="x", where="TABLE ="),
            r"feed changes: .*",
        ),
        (FEEDS.format(source="gone.yaml", where="op = 'x'"), r"can't read .*/gone.yaml: No such file or directory"),
        (FEEDS.format(source="shop.yaml", where="TABLE ="), r"feed changes: .*"),
        (FEEDS.format(source="shop.yaml", where="x").replace("text", "tekst"), r"line 2: feeds.0.format: .*"),
    ],
)
def test_an_error_is_told_in_one_line_with_its_place(check: Check, folder: Path, text: str, said: str) -> None:
    (folder / "new.yaml").write_text(text)
    code, lines, error = check(folder)
    assert code == 1
    assert re.fullmatch(rf"FAIL  {re.escape(str(folder))}/new\.yaml: {said}", lines[2])
    assert [line[:4] for line in lines] == ["ok  ", "ok  ", "FAIL", "ok  "]
    assert error.startswith("binlake: 1 of 4 files can't be used\n")


def test_two_files_with_one_name_are_both_refused(check: Check, folder: Path) -> None:
    """Airflow keeps the one that is older there; a checkout has no such order."""
    other = folder / "more"
    other.mkdir()
    (other / "copy.yaml").write_text(SOURCE.format(name="shop"))
    assert check(folder)[0] == check(other)[0] == 0, "each alone"
    code, lines, error = check(folder, other)
    assert code == 1
    assert [line for line in lines if line.startswith("FAIL")] == [
        f"FAIL  {folder}/shop.yaml: source.name: 'shop' is the source of {other}/copy.yaml, too",
        f"FAIL  {other}/copy.yaml: source.name: 'shop' is the source of {folder}/shop.yaml, too",
    ]
    assert "2 of 4 files can't be used" in error


def test_a_wrong_path_is_not_good(check: Check, folder: Path) -> None:
    """A CI whose folder was renamed must not stay green."""
    empty = folder / "empty"
    empty.mkdir()
    for path, said in ((folder / "gone", "isn't there"), (empty, "has no file *.yaml")):
        code, lines, error = check(folder, path)
        assert (code, lines) == (2, [])
        assert f"{path} {said}" in error
