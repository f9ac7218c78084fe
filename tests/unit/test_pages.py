"""The README pages are true: their settings, commands, options and files exist, and none is missing."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from binlake.cli import command_line
from binlake.cli.help_topics import TOPICS
from binlake.config import PipelineConfig
from binlake.schema.datatypes import REGISTRY, delta_type
from binlake.schema.table import Column
from settings_tables import Setting, settings_of, tables_in

ROOT = Path(__file__).parents[2]
PAGES = [*(topic.page for topic in TOPICS.values()), "tests/README.md"]
SETTINGS = settings_of(PipelineConfig)
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
TOP_LEVEL = ("jobs", "plugins", "dags", "sql", "docker", "tests")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_the_front_door_is_short() -> None:
    assert len(text_of("README.md").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_read_at_once(page: str) -> None:
    assert len(text_of(page).splitlines()) <= 200


# settings ------------------------------------------------------------------------------------------------------------
def listed(page: str) -> dict[str, list[Setting]]:
    return tables_in(text_of(page))


def test_each_section_of_the_yaml_is_listed_once() -> None:
    sections = [section for page in PAGES for section in listed(page)]
    assert sorted(sections) == sorted(SETTINGS)


@pytest.mark.parametrize("section", SETTINGS, ids=lambda section: section or "top")
def test_a_section_lists_every_setting_and_only_settings(section: str) -> None:
    (rows,) = [tables[section] for page in PAGES if section in (tables := listed(page))]
    assert rows == SETTINGS[section]


# commands ------------------------------------------------------------------------------------------------------------
class Command(NamedTuple):
    """A command that a page names, without its comment."""

    page: str
    text: str


def in_blocks(text: str, page: str) -> Iterator[Command]:
    """The lines of a page's blocks for the shell."""
    for _, language, block in FENCE.findall(text):
        if language == "sh":
            yield from (Command(page, line.partition(" #")[0].strip()) for line in block.splitlines())


def commands() -> Iterator[Command]:
    """The lines of all blocks for the shell, and all code inside sentences."""
    for page in PAGES:
        text = text_of(page)
        yield from in_blocks(text, page)
        for code in CODE.findall(FENCE.sub("", text)):
            yield Command(page, " ".join(code.split()))


BINLAKE = sorted({command for command in commands() if command.text.startswith("binlake ")})


@cache
def parser_of() -> argparse.ArgumentParser:
    return command_line._parser()


def below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a command's own commands, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


def walk(words: list[str], parser: argparse.ArgumentParser) -> list[tuple[argparse.ArgumentParser, list[str]]]:
    """The parsers that a command's words name, each with the words that are left; ``a|b`` names two."""
    known = below(parser)
    if not known or not words or words[0].startswith("-"):
        return [(parser, words)]
    unknown = [name for name in words[0].split("|") if name not in known]
    assert not unknown, f"there is no command {unknown}"
    return [end for name in words[0].split("|") for end in walk(words[1:], known[name])]


@pytest.mark.parametrize("command", BINLAKE, ids=lambda command: command.text[:60])
def test_a_command_that_a_page_names_exists_with_its_options(command: Command) -> None:
    words = re.sub(r"[\[\]]", " ", command.text).split()[1:]
    for parser, rest in walk(words, parser_of()):
        for word in rest:
            for option in word.split("|"):
                if option.startswith("-"):
                    assert option in options_of(parser), f"{command.page}: {command.text}: there is no {option}"


PLACEHOLDER = re.compile(r"[\[\]…|]|\bFIRST\b")
COMPLETE = sorted(
    {
        command
        for page in PAGES
        for command in in_blocks(text_of(page), page)
        if command.text.startswith("binlake ") and not PLACEHOLDER.search(command.text)
    }
)


@pytest.mark.parametrize("command", COMPLETE, ids=lambda command: command.text[:60])
def test_a_command_that_a_page_writes_out_is_parsed(command: Command) -> None:
    """FILE, TEXT and the like are parsed as they are; N, BATCH and TOPIC give way to values that exist."""
    text = (
        command.text.replace("--port N", "--port 1")
        .replace(" BATCH", " 1")
        .replace(" TOPIC", " yaml" if " help " in command.text else " t")
    )
    words = shlex.split(text)[1:]
    assert callable(parser_of().parse_args(words).command)


def test_an_option_that_a_page_names_alone_exists_somewhere() -> None:
    parsers = [parser_of(), *below(parser_of()).values()]
    parsers += [inner for parser in parsers[1:] for inner in below(parser).values()]
    known = set().union(*map(options_of, parsers)) | {"-XX:TieredStopAtLevel=1", "--profile"}  # the JVM's, Docker's
    named = {(command.page, command.text.split()[0]) for command in commands() if re.match("--?[A-Za-z]", command.text)}
    assert {(page, option) for page, option in named if option not in known} == set()


def test_the_front_door_and_the_operations_page_name_every_command() -> None:
    for page in ("README.md", "jobs/README.md"):
        for name in below(parser_of()):
            assert re.search(rf"\b{name}\b", text_of(page)), f"{page} doesn't name binlake {name}"


def test_make_targets_that_a_page_names_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {command.text.split()[1] for command in commands() if re.match(r"make [a-z]", command.text)}
    assert named <= targets


# types ---------------------------------------------------------------------------------------------------------------
def test_the_page_of_types_lists_each_type_and_its_type_in_the_lake() -> None:
    rows = re.findall(
        r"^\| ([A-Z0-9, ]+) \| (\S+) \| (.*) ?\|$", text_of("jobs/binlake/schema/README.md"), re.MULTILINE
    )
    listed_types = {name.lower(): (delta, rest) for names, delta, rest in rows for name in names.split(", ")}
    assert listed_types.keys() == REGISTRY.keys()
    for name, (delta, rest) in listed_types.items():
        assert delta_type(Column("c", name)).partition("(")[0] == delta
        if "UNSIGNED" in rest:
            assert rest.strip() == f"UNSIGNED: {delta_type(Column('c', name, unsigned=True))}"


# files ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("page", PAGES)
def test_files_and_pages_that_a_page_names_exist(page: str) -> None:
    text = text_of(page)
    named = {code for code in CODE.findall(text) if re.fullmatch(rf"({'|'.join(TOP_LEVEL)})/[\w./-]*", code)}
    lost = {name for name in named if not (ROOT / name).exists()} - {"docker/.env", "dags/"}
    links = {link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link}
    lost |= {link for link in links if not (ROOT / page).parent.joinpath(link).exists()}
    assert not lost


@pytest.mark.parametrize("page", PAGES)
def test_topics_that_a_page_points_to_exist(page: str) -> None:
    assert set(re.findall(r"binlake help ([a-z]+)", text_of(page))) <= set(TOPICS)


def test_the_servers_page_has_the_statements_of_the_sql_files() -> None:
    page = text_of("jobs/binlake/source/README.md")
    blocks = [block for _, language, block in FENCE.findall(page) if language == "sql"]
    files = ("server_settings", "grants_mysql", "grants_mariadb")
    wanted = [
        "".join(f"{line}\n" for line in text_of(f"sql/{name}.sql").splitlines() if line and not line.startswith("--"))
        for name in files
    ]
    assert blocks == wanted
