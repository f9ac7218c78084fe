"""``binlake help`` prints the README pages, and the wheel holds all of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from binlake.cli import command_line, help_topics
from binlake.cli.help_topics import QUESTIONS, TOPICS

ROOT = Path(__file__).parents[3]


def test_a_topic_prints_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    for topic in TOPICS.values():
        assert command_line.run(["help", topic.name]) == 0
        assert capsys.readouterr().out == (ROOT / topic.page).read_text(encoding="utf-8")


def test_without_a_topic_each_is_listed_in_one_line_below_its_question(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(TOPICS)
    assert [line for line in lines if not line.startswith("  ")] == list(QUESTIONS)
    assert all(line.endswith("?") for line in QUESTIONS)
    assert all(len(line) <= 100 for line in lines)


def test_an_unknown_topic_is_refused_with_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.run(["help", "nonsense"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "nonsense" in said
    assert all(f"'{name}'" in said for name in TOPICS)


def test_every_page_is_a_topic() -> None:
    pages = {str(page.relative_to(ROOT)) for folder in ("jobs", "plugins", "dags", "sql", "docker") for page in
             (ROOT / folder).rglob("*.md")}  # fmt: skip
    assert pages | {"README.md"} == {topic.page for topic in TOPICS.values()}


def test_the_readme_lists_the_topics() -> None:
    rows = re.findall(r"^\| `(\w+)` \| \[(\S+)\]\(\2\) \| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert rows == [(topic.name, topic.page, topic.about) for topic in TOPICS.values() if topic.name != "overview"]


def test_the_wheel_holds_the_pages_that_stand_outside_its_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    forced = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    outside = [topic.page for topic in TOPICS.values() if not topic.page.startswith("jobs/binlake/")]
    pages = {source: target for source, target in forced.items() if source.endswith(".md")}
    assert pages == {page: f"binlake/readme/{page}" for page in outside}
    scripts = {source: target for source, target in forced.items() if source.endswith(".sql")}
    assert scripts == {
        f"sql/grants_{kind}.sql": f"binlake/readme/sql/grants_{kind}.sql" for kind in ("mysql", "mariadb")
    }


def test_an_installed_page_is_found_inside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "binlake"
    for place in ("readme/sql/README.md", "feeds/README.md"):
        (package / place).parent.mkdir(parents=True)
        (package / place).write_text(place)
    monkeypatch.setattr(help_topics, "_PACKAGE", package)
    monkeypatch.setattr(help_topics, "_CHECKOUT", tmp_path / "nowhere")
    assert TOPICS["analysts"].text == "readme/sql/README.md"
    assert TOPICS["feeds"].text == "feeds/README.md"


def test_a_page_that_is_missing_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(help_topics, "_PACKAGE", tmp_path)
    monkeypatch.setattr(help_topics, "_CHECKOUT", tmp_path)
    assert command_line.run(["help", "docker"]) == 3
    assert "install binlake's wheel again" in capsys.readouterr().err


def test_every_message_that_names_a_topic_names_one_that_exists() -> None:
    sources = [path for folder in ("jobs", "plugins") for path in (ROOT / folder).rglob("*.py")]
    named = {topic for path in sources for topic in re.findall(r"binlake help ([a-z]+)", path.read_text())}
    assert named
    assert named <= set(TOPICS)
