"""Editing a YAML that is broken: one with errors, or with the name of another file's source.

For users who may add a source. They may change what the page sets in a good one, and what the form for a new source
asks for besides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, HTTPException

from binlake.config import PipelineConfig, yaml_file
from binlake.config.yaml_file import KeyPath, YamlFile
from binlake.errors import ConfigurationError, KeyProblem
from binlake_airflow.page import edited_yaml
from binlake_airflow.page.access import Reader, ReaderDep, from_here, may_add
from binlake_airflow.page.edited_yaml import OUTSIDE, EditedYaml, ReadYaml
from binlake_airflow.page.remedies import Answer
from binlake_airflow.page.settable import is_fixable, unfixable_sections
from binlake_airflow.page.source_edit import TextAsked, as_checked, as_opened, read_as_opened, save
from binlake_airflow.sources import pipelines_folder, sections_in, sources_of

_UNREAD = "what it holds can't be compared while the file isn't YAML: edit the file where it is"
_CONNECTION = ("source", "connection")

router = APIRouter(prefix="/api/broken/{file}", dependencies=[Depends(from_here), Depends(may_add)])


@router.get("")
def text(file: str) -> Answer:
    """Return the text of a broken YAML, and why it can't be saved from here, if so. Raises 404 for other files."""
    return as_opened(edited_yaml.read(_broken(file)[0]))


@router.post("/check")
def check(file: str, reader: ReaderDep, asked: TextAsked) -> Answer:
    """Return the difference, what is wrong by line and key, and the doctor's lines, as for a source's YAML."""
    return as_checked(_edited(file, reader, asked)[1], reader, file)


@router.post("/write")
def write(file: str, reader: ReaderDep, asked: TextAsked) -> Answer:
    """Save the text, and record who changed which keys. Raises 409 if the file was changed since it was opened."""
    return save(*_edited(file, reader, asked), reader, asked, file)


def _broken(file: str) -> tuple[Path, dict[str, str]]:
    """Return a broken file's path, and the names of the good ones by their sources. Raises 404 for other files."""
    files = list(sources_of(pipelines_folder()))
    good = {config.source.name: path.name for path, config in files if isinstance(config, PipelineConfig)}
    for path, config in files:
        if path.name == file and not isinstance(config, PipelineConfig):
            return path, good
    raise HTTPException(404, f"{file!r} is no broken YAML in {pipelines_folder()}")


def _edited(file: str, reader: Reader, asked: TextAsked) -> tuple[ReadYaml, EditedYaml]:
    """Return the file as it is, and as it is to be. Raises 409 if it was changed since it was opened."""
    path, good = _broken(file)
    now = read_as_opened(path, asked)
    old = _document(now)

    def refused(new: YamlFile, changed: list[KeyPath]) -> list[KeyProblem]:
        keys = [key for key in changed if not is_fixable(key)]
        problems = [KeyProblem(new.line(key), ".".join(map(str, key)), OUTSIDE) for key in keys]
        return problems if old is not None else [*problems, *_unread(now.text)]

    new = edited_yaml.compared(now, old or {}, asked.text, refused)
    return now, _for_this_user(new, reader, good)


def _document(now: ReadYaml) -> Mapping[str, Any] | None:
    """Return what the file holds; None if it can't be read as YAML."""
    try:
        return yaml_file.parsed(now.text.encode(), now.path).document
    except ConfigurationError:
        return None


def _unread(text: str) -> list[KeyProblem]:
    """Return the sections that the page doesn't set, or the whole file if its sections aren't seen."""
    sections = sections_in(text)
    if "source" not in sections:
        return [KeyProblem(0, "", _UNREAD)]
    return [KeyProblem(0, section, _UNREAD) for section in sorted(sections & unfixable_sections())]


def _for_this_user(new: EditedYaml, reader: Reader, good: Mapping[str, str]) -> EditedYaml:
    """Refuse the name of another file's source, and a connection that the user couldn't give a new source."""
    if new.config is None:
        return new
    source, problems = new.config.source, []
    if source.name in good:
        text = f"{source.name!r} is the source of {good[source.name]}: give each source a name of its own"
        problems.append(KeyProblem(0, "source.name", text))
    is_new = ".".join(_CONNECTION) in new.changed
    if is_new and (source.is_files or not reader.may_use(source.connection)):
        problems.append(KeyProblem(0, ".".join(_CONNECTION), f"you may not use the connection {source.connection!r}"))
    return replace(new, config=None, problems=problems) if problems else new
