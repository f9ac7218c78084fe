"""Editing a source's YAML: its text, the difference and the checks beforehand, and the file itself.

For users who may edit the source's sync DAG. What they may change is in settable.py. A check writes nothing, and asks
the source's server where the form for a new source may ask one, and the user may use the connection.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from airflow.models.log import Log
from airflow.utils.session import create_session
from fastapi import APIRouter, HTTPException
from pydantic import Field

from binlake.config import PipelineConfig
from binlake.doctor.preflight import preflight
from binlake.errors import UsageError
from binlake.source.log import Origin, allowed, folder_of
from binlake_airflow.page import edited_yaml
from binlake_airflow.page.access import Reader, ReaderDep, SourceDep, guarded, may_edit
from binlake_airflow.page.action_notes import Asked, note, reason_of
from binlake_airflow.page.edited_yaml import EditedYaml, ReadYaml
from binlake_airflow.page.remedies import Answer
from binlake_airflow.page.source_form import as_lines, asks, endpoint_of, writable

_MOST_LETTERS = 256 << 10
_MOST_KEYS = 20
"""The most changed keys that are named in a record."""


class TextAsked(Asked):
    """A request about a new text. mark: of the text that was opened."""

    text: str = Field(max_length=_MOST_LETTERS)
    mark: str = Field(max_length=64)


router = APIRouter(prefix="/api/sources/{source}/yaml", dependencies=guarded(may_edit))


@router.get("")
def text(loaded: SourceDep) -> Answer:
    """Return the text of the source's YAML, and why it can't be saved from here, if so."""
    return as_opened(edited_yaml.read(loaded[0]))


@router.post("/check")
def check(source: str, loaded: SourceDep, reader: ReaderDep, asked: TextAsked) -> Answer:
    """Return the difference, what is wrong with the text by line and key, and the doctor's lines, or why the server
    wasn't asked. Raises 409 if the file was changed since it was opened."""
    _, new = _edited(loaded, reader, asked)
    return as_checked(new, reader, source)


@router.post("/write")
def write(source: str, loaded: SourceDep, reader: ReaderDep, asked: TextAsked) -> Answer:
    """Save the text, and record who changed which keys. Raises 409 if the file was changed since it was opened."""
    return save(*_edited(loaded, reader, asked), reader, asked, source)


def as_opened(now: ReadYaml) -> Answer:
    """Return the answer about a file that is opened to be edited."""
    is_writable = writable(now.path.parent)
    unwritable = None if is_writable else f"the API server may not write {now.path.parent}: edit the file where it is"
    return Answer({"file": str(now.path), "text": now.text, "mark": now.mark, "unwritable": unwritable})


def as_checked(new: EditedYaml, reader: Reader, name: str) -> Answer:
    """Return the answer about a new text. name: of the source or file, for Airflow's audit log."""
    answer: dict[str, Any] = {"diff": new.diff, "changed": new.changed, "checks": [], "grants": [], "unasked": None}
    answer["problems"] = [asdict(problem) for problem in new.problems]
    if new.config is None or not new.diff:
        return Answer(answer)
    answer["unasked"] = _unasked(new.config, reader)
    if answer["unasked"] is None:
        try:
            origin = _origin(new.config, reader)
        except HTTPException as missing:  # the connection, which may be made later
            return Answer(answer | {"unasked": missing.detail})
        _log("binlake_check_source", reader, source=name)
        answer |= as_lines(preflight(new.config, origin, spark_checks=False, writes=False))
    return Answer(answer)


def save(now: ReadYaml, new: EditedYaml, reader: Reader, asked: TextAsked, name: str) -> Answer:
    """Save a new text, and record it. name: of the source or file, for Airflow's audit log. Raises UsageError."""
    if new.config is None:
        problems = [asdict(problem) for problem in new.problems]
        return Answer({"detail": f"{now.path.name} would be refused: nothing is saved", "problems": problems}, 422)
    if not new.diff:
        raise UsageError("nothing is changed", remedy="change the text first")
    _log("binlake_edit_source", reader, source=name, changed=new.changed, why=asked.why)
    edited_yaml.save(now, new.text)
    recorded = note(new.config, "edit", reason_of(reader, asked), _changes(new))
    message = f"{now.path} is saved: {recorded}. Airflow makes its DAGs again within minutes"
    return Answer({"message": message, "diff": new.diff, "mark": edited_yaml.mark_of(new.text.encode())})


def _edited(loaded: SourceDep, reader: Reader, asked: TextAsked) -> tuple[ReadYaml, EditedYaml]:
    """Return the file as it is, and as it is to be. Raises 409 if it was changed since it was opened."""
    now = read_as_opened(loaded[0], asked)
    return now, edited_yaml.edited(now, asked.text, may_add=reader.may_add())


def read_as_opened(file: Path, asked: TextAsked) -> ReadYaml:
    """Return the file as it is. Raises UsageError if it was changed since it was opened."""
    now = edited_yaml.read(file)
    if now.mark != asked.mark:
        raise edited_yaml.changed_meanwhile(now.path)
    return now


def _unasked(config: PipelineConfig, reader: Reader) -> str | None:
    """Return why the source's server can't be asked for this user; None if it can."""
    if not asks():
        return "Airflow's setting [core] test_connection isn't Enabled"
    if config.source.is_files or reader.may_use(config.source.connection):
        return None
    return f"you may not use the connection {config.source.connection!r}"


def _origin(config: PipelineConfig, reader: Reader) -> Origin:
    folder = folder_of(config.source.connection)
    return folder or allowed(endpoint_of(reader, config.source.connection), config.source)


def _log(event: str, reader: Reader, **extra: Any) -> None:
    """Write a line of Airflow's audit log. It doesn't have the text, whose values others may not see."""
    with create_session() as session:
        session.add(Log(event=event, owner=reader.name, extra=json.dumps(extra)))


def _changes(new: EditedYaml) -> str:
    """Return which keys were changed, in words."""
    if not new.changed:
        return "changed comments"
    more = len(new.changed) - _MOST_KEYS
    return f"changed {', '.join(new.changed[:_MOST_KEYS])}" + (f" and {more} more" if more > 0 else "")
